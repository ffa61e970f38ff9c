// `plumbd restore`: every file of a backup is checked before anything is written. Restored files
// belong to the owner of the folder.
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "tests/server/backup/fixture.h"

namespace plumbline::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class RestoreTest : public BackupTest {
 protected:
  void SetUp() override {
    MakeData();
    ASSERT_EQ(Backup(Dir()).status, 0);
  }
  std::string To() const { return folder_.File("restored"); }
  bool Serves(const std::string& data) {
    const auto server = Start(data);
    const bool there = Eventually([&] {
      const auto run = server->Run("run");
      return run && run->closed_step() == 100;
    });
    EXPECT_EQ(server->Stop(), 0);
    return there;
  }
};

TEST_F(RestoreTest, EachFileThatIsMissingShortOrDamagedIsNamed) {
  const auto refused = [&](const std::string& file, const std::string& what) {
    const Ended done = Restore(Dir(), To());
    EXPECT_EQ(done.status, 1) << file << " " << what;
    EXPECT_THAT(done.errors, AllOf(HasSubstr(Dir() + "/" + file + ": "), HasSubstr("xpected")));
    EXPECT_FALSE(std::filesystem::exists(To()));
  };
  const auto files = FilesBelow(Dir());
  EXPECT_GT(files.size(), 7u);
  for (const std::string& file : files) {
    const std::string path = Dir() + "/" + file, bytes = ReadFile(path);
    std::filesystem::remove(path);
    refused(file, "missing");
    WriteFile(path, bytes.substr(0, bytes.size() / 2));
    refused(file, "short");
    std::string damaged = bytes;
    if (file == "manifest.json") {  // a digit of a size; otherwise a change that no parser detects
      const size_t digit = damaged.find("\"bytes\": ") + 9;
      damaged[digit] = damaged[digit] == '9' ? '8' : '9';
    } else {
      damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 4);
    }
    WriteFile(path, damaged);
    refused(file, "damaged");
    WriteFile(path, bytes);
  }
  EXPECT_EQ(Restore(Dir(), To()).status, 0);
  EXPECT_TRUE(Serves(To()));
}

TEST_F(RestoreTest, AFolderInUseOrWithFilesIsRefused) {
  {
    const auto server = Start(Data());
    const Ended done = Restore(Dir(), Data());
    EXPECT_EQ(done.status, 1);
    EXPECT_THAT(done.errors, HasSubstr("another plumbd uses this data directory (process " +
                                       std::to_string(server->process().pid()) + ")"));
  }
  const Ended done = Restore(Dir(), Data());
  EXPECT_EQ(done.status, 1);
  EXPECT_THAT(done.errors,
              AllOf(HasSubstr("--data " + Data() + ": expected an empty folder, found"),
                    HasSubstr("move it elsewhere first")));
  EXPECT_TRUE(Serves(Data()));
  folder_.Write("other/mine", "mine");
  EXPECT_EQ(Restore(Dir(), folder_.File("other")).status, 1);
  EXPECT_EQ(ReadFile(folder_.File("other/mine")), "mine");
  EXPECT_EQ(Restore(Dir(), folder_.File("other/mine")).status, 1);
  EXPECT_EQ(Restore(folder_.File("other"), To()).status, 1);  // not a backup
}

// A hostile manifest must not reach elsewhere.
TEST_F(RestoreTest, NamesOutsideTheBackupAreRefused) {
  const std::string path = Dir() + "/manifest.json", text = ReadFile(path);
  for (const std::string name : {"../gaps.plg", "/gaps.plg", "a/../gaps.plg", "./gaps.plg"}) {
    std::string changed = text;
    changed.replace(changed.find("\"gaps.plg\""), 10, "\"" + name + "\"");
    WriteFile(path, changed);
    const Ended done = Restore(Dir(), To());
    EXPECT_EQ(done.status, 1);
    EXPECT_THAT(done.errors, HasSubstr("\"" + name + "\" is outside"));
  }
}

// The service's folder is a symlink and belongs to a separate user, as with DynamicUser=.
TEST_F(RestoreTest, ASymlinkIsFollowedAndFilesGetTheFoldersOwner) {
  std::filesystem::create_directories(folder_.File("private/plumbd"));
  std::filesystem::create_symlink("private/plumbd", To());
  const bool root = geteuid() == 0;
  if (root) {
    ASSERT_EQ(chown(folder_.File("private/plumbd").c_str(), 4242, 4243), 0);
  }
  ASSERT_EQ(Restore(Dir(), To()).status, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(To()));
  size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(To() + "/")) {
    struct stat info {};
    ASSERT_EQ(lstat(entry.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 077, 0u) << entry.path();
    if (root) {
      EXPECT_EQ(info.st_uid, 4242u) << entry.path();
      EXPECT_EQ(info.st_gid, 4243u) << entry.path();
    }
    ++files;
  }
  EXPECT_GT(files, 7u);
  EXPECT_TRUE(Serves(To()));
  // The target of the symlink is missing.
  std::filesystem::remove_all(folder_.File("private/plumbd"));
  ASSERT_EQ(Restore(Dir(), To()).status, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(To()));
  EXPECT_TRUE(Serves(To()));
}

TEST_F(RestoreTest, OneThatIsCutOffIsNotStartedAndIsCompletedByTheNext) {
  std::filesystem::remove_all(Dir());
  {
    const auto server = Start(Data());
    Send(*server, 101, 600);
    EXPECT_EQ(server->Stop(), 0);
  }
  ASSERT_EQ(Backup(Dir()).status, 0);
  int cut_off = 0;
  // On a busy machine a restore may end before the signal: repeats until one was interrupted.
  for (int i = 0; i < 5 || (cut_off == 0 && i < 40); ++i) {
    {
      Process restore({PLUMBD_PROGRAM, "restore", Dir(), "--data", To()});
      while (!std::filesystem::exists(To() + "/restore.unfinished") && restore.running())
        std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(i % 5));
      restore.Signal(SIGKILL);
      restore.Wait();
    }
    if (std::filesystem::exists(To() + "/restore.unfinished")) {
      ++cut_off;
      Process server({PLUMBD_PROGRAM, "--data", To(), "--grpc", "127.0.0.1:0", "--http", "off"});
      EXPECT_EQ(server.Wait(), 1);
      EXPECT_THAT(server.errors(), HasSubstr("a restore into it was interrupted"));
      const Ended again = Restore(Dir(), To());
      EXPECT_EQ(again.status, 0) << again.errors;
    }
    const auto server = Start(To());
    EXPECT_TRUE(Eventually([&] {
      const auto run = server->Run("run");
      return run && run->closed_step() == 600;
    }));
    server->process().Signal(SIGKILL);
    server->process().Wait();
    std::filesystem::remove_all(To());
  }
  EXPECT_GT(cut_off, 0);
}

}  // namespace
}  // namespace plumbline::test
