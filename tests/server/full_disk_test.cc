// A full disk when plumbd starts: plumbd reports it in the usual places, and continues by itself
// when there is space.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/server/doors/support.h"
#include "tests/support/files.h"

namespace plumbline::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// A small separate file system in memory. Mounting it needs rights that not every user has. Without
// them, writes are refused instead.
class SmallDisk {
 public:
  explicit SmallDisk(const std::string& path) : path_(path) {
    fs::create_directories(path);
    mounted_ = mount("none", path.c_str(), "tmpfs", 0, "size=32m") == 0;
  }
  ~SmallDisk() {
    if (mounted_) umount2(path_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  void Fill() const {
    std::ofstream fill(path_ + "/fill", std::ios::binary);
    const std::string page(4096, 'x');
    while (fill.write(page.data(), static_cast<std::streamsize>(page.size())) && fill.flush()) {
    }
  }
  void Empty() const { fs::remove(path_ + "/fill"); }

 private:
  const std::string path_;
  bool mounted_ = false;
};

class FullDisk : public testing::Test {
 protected:
  static void SendSteps(const Plumbd& server, uint64_t first, uint64_t last) {
    AgentStream agent(server, 9, {SourceOf("run")}, first);
    for (uint64_t step = first; step <= last; ++step) {
      agent.Send(ScalarStep(SourceOf("run"), static_cast<int64_t>(step)), step);
    }
    ASSERT_TRUE(agent.Acknowledged(last));
    ASSERT_TRUE(Eventually([&] {
      const auto run = server.Run("run");
      return run && run->evidence() == last;
    }));
  }
  // Checks that a server waits if it is started while every write fails, and listens once writes
  // succeed.
  void StartsWhenWritesAreTaken(const std::string& data) {
    const std::string fault = folder_.Write("fault", "full 0");
    const std::string port = folder_.File("port");
    Process server({PLUMBD_PROGRAM, "--grpc", "127.0.0.1:0", "--http", "off", "--data", data,
                    "--port-file", port},
                   {"ASAN_OPTIONS=verify_asan_link_order=0",
                    std::string("LD_PRELOAD=") + PLUMB_FAULT_LIBRARY, "PLUMB_FAULT_FILE=" + fault});
    ASSERT_TRUE(Eventually([&] {
      return server.errors().find("the server starts and listens when there is enough space") !=
             std::string::npos;
    })) << server.errors();
    EXPECT_FALSE(fs::exists(port));
    folder_.Write("fault.new", "none 0");
    fs::rename(folder_.File("fault.new"), fault);
    EXPECT_TRUE(Eventually([&] { return fs::exists(port); })) << server.errors();
    server.Signal(SIGTERM);
    EXPECT_EQ(server.Wait(), 0) << server.errors();
  }
  TempFolder folder_;
};

class FullDiskAtTheStart : public FullDisk, public testing::WithParamInterface<int> {};

TEST_P(FullDiskAtTheStart, ItListensAndGoesOnWhenThereIsRoom) {
  const SmallDisk disk(folder_.File("disk"));
  const std::vector<std::string> options = {"--data", folder_.File("disk/data"), "--http",
                                            "127.0.0.1:0"};
  {
    Plumbd former(options);
    SendSteps(former, 1, 100);
    former.process().Signal(GetParam());
    former.process().Wait();
  }
  if (!disk.mounted()) return StartsWhenWritesAreTaken(folder_.File("disk/data"));
  disk.Fill();
  for (int round = 0; round < 2; ++round) {  // the second one on a disk that is still full
    Plumbd server(options);
    ASSERT_FALSE(server.address().empty()) << server.process().errors();
    const std::string http = HttpAddress(server);
    EXPECT_THAT(HttpAnswer(http, "/healthz"), HasSubstr("has 0 MiB free"));
    EXPECT_THAT(server.process().errors(), HasSubstr("not serving: the disk of "));
    ASSERT_TRUE(Eventually([&] {
      const auto run = server.Run("run");
      return run && run->evidence() == 100;
    }));
    if (round == 1) {
      AgentStream agent(server, 9, {SourceOf("run")}, 101);
      agent.Send(ScalarStep(SourceOf("run"), 101), 101);
      disk.Empty();
      EXPECT_TRUE(
          Eventually([&] { return HttpAnswer(http, "/healthz").find("HTTP/1.1 200") == 0; }));
      EXPECT_TRUE(agent.Acknowledged(101));
    }
    server.process().Signal(GetParam());
    server.process().Wait();
  }
  Plumbd server(options);
  EXPECT_TRUE(Eventually([&] {
    const auto run = server.Run("run");
    return run && run->evidence() == 101;
  }));
}

INSTANTIATE_TEST_SUITE_P(After, FullDiskAtTheStart, testing::Values(SIGKILL, SIGTERM),
                         [](const auto& value) {
                           return value.param == SIGKILL ? "Kill" : "Stop";
                         });

// If not even its databases can be opened, it waits for space before it listens.
TEST_F(FullDisk, WhereNothingCanBeOpenedItWaits) { StartsWhenWritesAreTaken(folder_.File("data")); }

TEST_F(FullDisk, WhoWaitsForRoomIsStoppedLikeOthers) {
  const std::string fault = folder_.Write("fault", "full 0");
  Process server(
      {PLUMBD_PROGRAM, "--grpc", "127.0.0.1:0", "--http", "off", "--data", folder_.File("data")},
      {"ASAN_OPTIONS=verify_asan_link_order=0", std::string("LD_PRELOAD=") + PLUMB_FAULT_LIBRARY,
       "PLUMB_FAULT_FILE=" + fault});
  ASSERT_TRUE(Eventually([&] {
    return server.errors().find("the server starts and listens when there is enough space") !=
           std::string::npos;
  })) << server.errors();
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0) << server.errors();
}

}  // namespace
}  // namespace plumbline::test
