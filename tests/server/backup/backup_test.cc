// Tests `plumbd backup` of a server that has stopped, and the cases that it refuses.
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "plumbline/v1/capsule.pb.h"
#include "server/capsules/capsule_files.h"
#include "server/journal/segments.h"
#include "tests/server/backup/fixture.h"

namespace plumbline::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

bool Exists(const std::string& path) {
  return std::filesystem::exists(std::filesystem::symlink_status(path));
}

void FlipByte(const std::string& path, size_t at) {
  std::string bytes = ReadFile(path);
  ASSERT_LT(at, bytes.size());
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  WriteFile(path, bytes);
}

TEST_F(BackupTest, AStoppedServerIsCopiedByTheNamesOfItsConfiguration) {
  MakeData();
  const std::string config =
      folder_.Write("plumbd.toml", "[data]\ndirectory = \"" + Data() + "\"\n");
  const Ended done = RunToEnd({PLUMBD_PROGRAM, "backup", Dir(), "--config", config});
  ASSERT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.output,
              AllOf(HasSubstr("plumbd backup: " + Dir() + ": entries 1 to "),
                    HasSubstr(" checkpoints (newest at entry "), HasSubstr("checked")));
  EXPECT_THAT(FilesBelow(Dir()), testing::IsSupersetOf({"alerts.sqlite", "gaps.plg", "journal/id",
                                                        "journal/00000000000000000001.plj",
                                                        "manifest.json", "store.sqlite"}));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(Dir()))
    EXPECT_EQ(entry.status().permissions() & std::filesystem::perms(077), std::filesystem::perms(0))
        << entry.path();
  // The manifest has the digests of `sha256sum`, for other tools.
  const std::string manifest = ReadFile(Dir() + "/manifest.json");
  for (const std::string& file : FilesBelow(Dir())) {
    if (file == "manifest.json") continue;
    const Ended sum = RunToEnd({"/usr/bin/sha256sum", Dir() + "/" + file});
    EXPECT_THAT(manifest, HasSubstr(sum.output.substr(0, 64))) << file;
  }

  const std::string data = folder_.File("restored");
  const Ended restored = Restore(Dir(), data);
  ASSERT_EQ(restored.status, 0) << restored.errors;
  for (const std::string& file : FilesBelow(Dir())) {
    if (file == "manifest.json") continue;
    EXPECT_EQ(ReadFile(data + "/" + file), ReadFile(Dir() + "/" + file)) << file;
  }
  const auto server = Start(data);
  EXPECT_TRUE(Eventually([&] {
    const auto run = server->Run("run");
    return run && run->closed_step() == 100;
  }));
  EXPECT_FALSE(server->Incidents("run").empty());
}

TEST_F(BackupTest, AFolderThatIsNoDataDirectoryIsRefused) {
  std::filesystem::create_directory(Data());
  const Ended done = Backup(Dir());
  EXPECT_EQ(done.status, 1);
  EXPECT_THAT(done.errors, AllOf(HasSubstr(Data() + "/journal/id: expected"),
                                 HasSubstr("is " + Data() + " the data directory of a plumbd?")));
  EXPECT_FALSE(Exists(Dir()));
  EXPECT_FALSE(Exists(Dir() + ".unfinished"));
  EXPECT_EQ(RunToEnd({PLUMBD_PROGRAM, "backup", Dir()}).status, 2);  // --data is missing
  EXPECT_EQ(RunToEnd({PLUMBD_PROGRAM, "backup", "--data", Data()}).status, 2);
}

TEST_F(BackupTest, AMissingPartOfTheServersFilesIsAFailure) {
  MakeData();
  ASSERT_EQ(Backup(folder_.File("whole")).status, 0);
  for (const std::string name : {"alerts.sqlite", "gaps.plg", "capsules"}) {
    std::filesystem::rename(Data() + "/" + name, folder_.File("aside"));
    const Ended done = Backup(Dir());
    EXPECT_EQ(done.status, 1) << name;
    EXPECT_THAT(done.errors, HasSubstr(Data() + "/" + name + ": is missing"));
    EXPECT_FALSE(Exists(Dir())) << name;
    std::filesystem::rename(folder_.File("aside"), Data() + "/" + name);
  }
  std::filesystem::remove(Data() + "/store.sqlite");  // the journal has its contents
  const Ended done = Backup(Dir());
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.output, HasSubstr("the server has no store.sqlite"));
}

// The folder belongs to the service, which must not make root read the files of others.
TEST_F(BackupTest, LinksInTheDataDirectoryAreNotFollowed) {
  MakeData();
  const std::string secret = folder_.Write("secret", "a key");
  std::filesystem::create_directories(Data() + "/capsules/2222");
  std::filesystem::create_directories(Data() + "/capsules/3333");
  folder_.Write("info.pb", "");
  const auto refuses = [&](const std::string& name, const std::string& target) {
    const std::string path = Data() + "/" + name, aside = folder_.File("aside");
    const bool was = Exists(path);
    if (was) std::filesystem::rename(path, aside);
    std::filesystem::create_symlink(was ? aside : target, path);
    const Ended done = Backup(Dir());
    EXPECT_EQ(done.status, 1) << name << done.output;
    EXPECT_THAT(done.errors, HasSubstr("found a symbolic link")) << name;
    EXPECT_FALSE(Exists(Dir())) << name;
    std::filesystem::remove(path);
    if (was) std::filesystem::rename(aside, path);
  };
  refuses("quarantine", secret);
  refuses("gaps.plg", secret);
  refuses("journal", secret);
  refuses("journal/id", secret);
  refuses("checkpoint", secret);
  refuses("capsules/2222/info.pb", secret);
  folder_.Write("data/capsules/3333/info.pb", "");
  refuses("capsules/3333/extra", secret);
  EXPECT_EQ(Backup(Dir()).status, 0);
  if (geteuid() != 0) return;  // only root changes owners
  const std::string id = Data() + "/journal/id";
  ASSERT_EQ(chown(id.c_str(), 1, 1), 0);
  EXPECT_THAT(Backup(Dir()).errors, HasSubstr(id + ": expected a file of user 0"));
  ASSERT_EQ(chown(id.c_str(), 0, 0), 0);
  const std::string unfinished = folder_.File("other.unfinished");
  std::filesystem::create_directory(unfinished);
  ASSERT_EQ(chown(unfinished.c_str(), 1, 1), 0);
  EXPECT_THAT(Backup(folder_.File("other")).errors, HasSubstr("expected a folder of this user"));
}

// The path is empty, as from a script whose variable is not set. No server starts.
TEST_F(BackupTest, AnEmptyNameIsBadUsage) {
  for (const char* command : {"backup", "restore"}) {
    const Ended done = RunToEnd({PLUMBD_PROGRAM, command, "", "--data", Data()});
    EXPECT_EQ(done.status, 2) << command;
    EXPECT_THAT(done.errors, HasSubstr("expected a folder, found an empty name"));
  }
  EXPECT_FALSE(Exists(Data()));
}

TEST_F(BackupTest, HelpNamesTheOptionOfTheDataDirectory) {
  for (const char* command : {"backup", "restore"})
    EXPECT_THAT(RunToEnd({PLUMBD_PROGRAM, command, "--help"}).output, HasSubstr("--data DIR"));
}

TEST_F(BackupTest, WhatStandsAtItsPlaceIsKept) {
  MakeData();
  const auto refused = [&](const std::string& directory, const std::string& why) {
    const Ended done = Backup(directory);
    EXPECT_EQ(done.status, 1) << directory;
    EXPECT_THAT(done.errors, HasSubstr(why));
    EXPECT_FALSE(Exists(directory + ".unfinished"));
  };
  const std::string file = folder_.Write("file", "mine");
  refused(file, "expected a free name or a folder");
  folder_.Write("full/mine", "mine");
  refused(folder_.File("full"), "expected an empty folder or an older backup");
  EXPECT_EQ(ReadFile(folder_.File("full/mine")), "mine");
  refused(Data() + "/backup", "is inside the data directory");
  refused(folder_.File("none/backup"), "cannot be made");

  std::filesystem::create_directory(Dir());  // empty: like a missing one
  ASSERT_EQ(Backup(Dir()).status, 0);
  // An older backup of the same journal is replaced, a newer one is not.
  const std::string first = ReadFile(Dir() + "/manifest.json");
  ASSERT_EQ(Backup(Dir() + "/").status, 0);
  EXPECT_NE(ReadFile(Dir() + "/manifest.json"), first);
  EXPECT_FALSE(Exists(Dir() + ".previous"));
  const std::string older = folder_.File("older");
  ASSERT_EQ(Backup(older).status, 0);
  {
    const auto server = Start(Data());
    Send(*server, 101, 110);
    EXPECT_EQ(server->Stop(), 0);
  }
  ASSERT_EQ(Backup(Dir()).status, 0);
  std::filesystem::remove_all(Data());
  ASSERT_EQ(Restore(older, Data()).status, 0);
  refused(Dir(), "which is not overwritten: use another folder");
  // A server with a new journal: its backup must not replace the only one of the earlier journal.
  std::filesystem::remove_all(Data());
  MakeData(3);
  refused(Dir(), "expected a backup of the journal");
  EXPECT_EQ(Restore(Dir(), folder_.File("restored")).status, 0);
}

TEST_F(BackupTest, OneThatIsCutOffIsNone) {
  MakeData(300);
  int cut_off = 0;
  for (int i = 0; i < 5; ++i) {
    Process backup(BackupCommand(Dir()));
    EXPECT_TRUE(Eventually([&] { return Exists(Dir() + ".unfinished") || !backup.running(); }));
    std::this_thread::sleep_for(std::chrono::milliseconds(3 * i));
    backup.Signal(SIGKILL);
    backup.Wait();
    if (Exists(Dir())) {
      std::filesystem::remove_all(Dir());
      continue;
    }
    ++cut_off;
    const Ended none = Restore(Dir() + ".unfinished", folder_.File("restored"));
    EXPECT_EQ(none.status, 1);
    EXPECT_THAT(none.errors, HasSubstr("manifest.json: expected"));
    EXPECT_FALSE(Exists(folder_.File("restored")));
  }
  EXPECT_GT(cut_off, 0);
  EXPECT_EQ(Backup(Dir()).status, 0);
  EXPECT_FALSE(Exists(Dir() + ".unfinished"));
}

TEST_F(BackupTest, AFileSizeLimitLeavesNone) {
  MakeData();
  const Ended done =
      RunToEnd({"/bin/sh", "-c",
                "ulimit -f 64; exec " PLUMBD_PROGRAM " backup " + Dir() + " --data " + Data()});
  EXPECT_EQ(done.status, 1);
  EXPECT_THAT(done.errors, HasSubstr(Dir() + ".unfinished/"));
  EXPECT_FALSE(Exists(Dir()));
  EXPECT_FALSE(Exists(Dir() + ".unfinished"));
}

// If entries are missing that the server does not list as lost, the backup must report it.
TEST_F(BackupTest, DamageOfTheServersOwnFilesIsNamed) {
  MakeData();
  const auto failed = [&](const std::string& why) {
    const Ended done = Backup(Dir());
    EXPECT_EQ(done.status, 1) << why;
    EXPECT_THAT(done.errors, HasSubstr(why));
    EXPECT_FALSE(Exists(Dir()));
  };
  for (const auto& entry : std::filesystem::directory_iterator(Data() + "/checkpoint")) {
    const std::string bytes = ReadFile(entry.path());
    FlipByte(entry.path(), bytes.size() / 2);
    failed(entry.path().filename().string() + ": byte ");
    WriteFile(entry.path(), bytes);
  }
  const auto segments = *server::ListSegments(Data() + "/journal");
  ASSERT_GT(segments.size(), 3u);
  const std::string& path = segments[1].path;
  const std::string name = std::filesystem::path(path).filename(), bytes = ReadFile(path);
  std::filesystem::remove(path);
  failed("expected entries " + std::to_string(segments[1].first) + " to ");
  WriteFile(path, bytes);
  FlipByte(path, bytes.size() / 2);
  failed(name + ": byte ");
  // A start lists the loss; then the copy is as complete as the server.
  {
    const auto server = Start(Data());
    EXPECT_TRUE(Eventually(
        [&] { return server->process().errors().find("are lost") != std::string::npos; }));
    EXPECT_EQ(server->Stop(), 0);
  }
  const Ended done = Backup(Dir());
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.output, HasSubstr("were already missing and are listed as gaps"));

  std::filesystem::remove_all(Dir());
  FlipByte(Data() + "/alerts.sqlite", 0);
  failed("alerts.sqlite: ");
}

TEST_F(BackupTest, CapsulesAreCopiedAsTheyAreHeld) {
  MakeData(5);
  server::CapsuleFiles files(Data() + "/capsules");
  v1::CapsuleInfo info;
  info.mutable_finding()->set_fingerprint("00ff");
  v1::CapsuleRank& rank = *info.add_ranks();
  *rank.mutable_source() = source_;
  rank.set_state(v1::CapsuleRank::STATE_HELD);
  ASSERT_TRUE(files.Save(info).ok());
  WriteFile(files.Path(info, source_), "what a rank sent");
  WriteFile(Data() + "/capsules/00ff/info.pb.tmp", "half");
  std::filesystem::create_directory(Data() + "/capsules/just-begun");

  ASSERT_EQ(Backup(Dir()).status, 0);
  ASSERT_EQ(Restore(Dir(), folder_.File("restored")).status, 0);
  EXPECT_EQ(ReadFile(folder_.File("restored/capsules/00ff/trainer-0")), "what a rank sent");
  EXPECT_EQ(ReadFile(folder_.File("restored/capsules/00ff/info.pb")), info.SerializeAsString());
  EXPECT_FALSE(Exists(Dir() + "/capsules/00ff/info.pb.tmp"));

  std::filesystem::remove(files.Path(info, source_));
  const Ended done = Backup(Dir());
  EXPECT_EQ(done.status, 1);
  EXPECT_THAT(done.errors, HasSubstr("capsules/00ff/trainer-0: expected the part of a rank"));
}

}  // namespace
}  // namespace plumbline::test
