// A plumbd that cannot copy its process (a limit on processes or on memory): its checkpoints are
// still taken, and a restart uses them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <limits>
#include <set>

#include "tests/server/doors/support.h"
#include "tests/support/files.h"

namespace plumbline::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class NoCopy : public testing::Test {
 protected:
  void Start(const std::string& fault) {
    folder_.Write("plumbd.toml", "[checkpoint]\nseconds = 0.05\n[ingest]\nack_seconds = 0.02\n");
    server_ = std::make_unique<Plumbd>(
        std::vector<std::string>{"--data", folder_.File("data"), "--config",
                                 folder_.File("plumbd.toml"), "--grace", "60"},
        std::vector<std::string>{"ASAN_OPTIONS=verify_asan_link_order=0",
                                 std::string("LD_PRELOAD=") + PLUMB_FAULT_LIBRARY,
                                 "PLUMB_FAULT_FILE=" + folder_.Write("fault", fault)});
    ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
  }
  bool Logged(const std::string& text) {
    return Eventually([&] { return server_->process().errors().find(text) != std::string::npos; });
  }
  // Sends one step, which is a NaN if `bad`, and waits until it is judged.
  void Send(AgentStream* agent, const v1::Source& source, uint64_t step, bool bad) {
    const double value = bad ? std::numeric_limits<double>::quiet_NaN() : 1.0;
    agent->Send(ScalarStep(source, static_cast<int64_t>(step), value), step);
    ASSERT_TRUE(agent->Acknowledged(step));
    ASSERT_TRUE(Eventually([&] {
      const auto run = server_->Run(source.run());
      return run && run->closed_step() >= static_cast<int64_t>(step);
    }));
  }
  bool HasCheckpointAt(uint64_t entry) const {
    std::error_code error;
    for (const auto& file : fs::directory_iterator(folder_.File("data/checkpoint"), error)) {
      const std::string name = file.path().filename().string();
      if (name.find(std::to_string(entry) + "-") != std::string::npos) return true;
    }
    return false;
  }
  std::set<std::string> Fingerprints() const {
    std::set<std::string> found;
    for (const v1::Incident& incident : server_->Incidents())
      found.insert(incident.finding().fingerprint());
    return found;
  }

  TempFolder folder_;
  std::unique_ptr<Plumbd> server_;
};

TEST_F(NoCopy, ACheckpointIsTakenByTheServerItself) {
  Start("fork 0");
  const v1::Source source = SourceOf("run");
  {
    AgentStream agent(*server_, 5, {source});
    for (uint64_t step = 1; step <= 10; ++step) Send(&agent, source, step, step == 7);
    EXPECT_TRUE(Logged("judging waits until it is written")) << server_->process().errors();
    EXPECT_TRUE(Eventually([&] { return HasCheckpointAt(10); }));
    // The run continues after the restart.
    Send(&agent, source, 11, false);
  }
  const std::set<std::string> before = Fingerprints();
  EXPECT_EQ(before.size(), 1u);
  server_->process().Signal(SIGKILL);
  server_->process().Wait();
  Start("fork 0");
  EXPECT_TRUE(Logged("loaded")) << server_->process().errors();
  EXPECT_TRUE(Eventually([&] { return !server_->Info().catching_up(); }));
  EXPECT_EQ(Fingerprints(), before);
  AgentStream agent(*server_, 5, {source}, 12);
  Send(&agent, source, 12, false);
  EXPECT_EQ(server_->Run("run")->evidence(), 12u);
  EXPECT_EQ(server_->Run("run")->lost(), 0u);
}

// The fault begins and ends while the server runs. The next checkpoint uses a copy again.
TEST_F(NoCopy, CopiesAreTriedAgain) {
  Start("none 0");
  const v1::Source source = SourceOf("run");
  AgentStream agent(*server_, 5, {source});
  Send(&agent, source, 1, false);
  EXPECT_TRUE(Eventually([&] { return HasCheckpointAt(1); }));
  EXPECT_EQ(server_->process().errors().find("judging waits"), std::string::npos);
  folder_.Write("fault.new", "fork 0");
  fs::rename(folder_.File("fault.new"), folder_.File("fault"));
  Send(&agent, source, 2, false);
  EXPECT_TRUE(Logged("judging waits until it is written"));
  EXPECT_TRUE(Eventually([&] { return HasCheckpointAt(2); }));
  folder_.Write("fault.new", "none 0");
  fs::rename(folder_.File("fault.new"), folder_.File("fault"));
  Send(&agent, source, 3, true);
  EXPECT_TRUE(Eventually([&] { return HasCheckpointAt(3); }));
  EXPECT_EQ(Fingerprints().size(), 1u);
}

}  // namespace
}  // namespace plumbline::test
