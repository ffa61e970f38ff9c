// A data directory of another build, between two builds whose journals differ in format:
// tests/server/journal/before_packing was recorded with the last plumbd before packed segments
// (docs/decisions/0028). It is opened, judged to the same findings, packed, and written back so
// that the older build can open it again.
//
// To record one with another build (the expected findings are written next to it):
//   PLUMB_RECORD_WITH=OLDER/plumbd PLUMB_RECORD_TO=DIR server_upgrade_test
//       --gtest_also_run_disabled_tests --gtest_filter=*Records*
// and to test the way back with that build itself, with any such directory:
//   PLUMB_RECORD_WITH=OLDER/plumbd server_upgrade_test
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "server/journal/segment_rewrite.h"
#include "server/journal/segments.h"
#include "tests/server/judge/audited.h"

namespace plumbline::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

constexpr char kRecorded[] = PLUMBLINE_SOURCE_DIR "/tests/server/journal/before_packing";
constexpr char kKeys[] =
    "[checkpoint]\nseconds = 0.05\n[journal]\nsegment_bytes = 16384\ncommit_bytes = 1\n";
constexpr uint64_t kSteps = 40;

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Returns the results that must not depend on the build: the findings of each run.
std::string Stated(const Plumbd& server) {
  std::string all;
  for (const std::string& run : {std::string("over"), std::string("goes-on")}) {
    for (const auto& [incident, found] : FoundLive(server, run)) {
      for (const std::string& finding : found.second)
        all += run + " " + found.first + " " + finding + "\n";
    }
  }
  return all;
}

class Upgrade : public testing::Test {
 protected:
  std::string Data() const { return folder_.File("data"); }
  std::string Journal() const { return Data() + "/journal"; }
  void TakeRecorded() const {
    fs::copy(kRecorded, folder_.path(), fs::copy_options::recursive);
    for (const auto& entry : fs::recursive_directory_iterator(Data()))
      fs::permissions(entry.path(), fs::perms::group_all | fs::perms::others_all,
                      fs::perm_options::remove);
  }
  std::unique_ptr<Plumbd> Start(const std::string& more = "", const std::string& program = "") {
    const std::string toml = folder_.Write("plumbd.toml", std::string(kKeys) + more);
    std::vector<std::string> options = {"--data", Data(), "--grace", "600", "--config", toml};
    auto server = std::make_unique<Plumbd>(options, std::vector<std::string>{}, program);
    EXPECT_FALSE(server->address().empty()) << server->process().errors();
    return server;
  }
  static bool CaughtUp(const Plumbd& server) {
    return Eventually([&] {
      const auto run = server.Run("goes-on");
      return run && run->closed_step() == static_cast<int64_t>(kSteps) &&
             !server.Info().catching_up();
    });
  }
  size_t Packed() const {
    size_t count = 0;
    const auto segments = server::ListSegments(Journal());
    for (const server::Segment& segment : *segments) {
      const auto is = server::IsPacked(segment);
      count += is.ok() && *is ? 1 : 0;
    }
    return count;
  }
  std::string Expected() const { return ReadFile(std::string(kRecorded) + "/findings"); }
  // Its stream continues after the acknowledged batches.
  void GoesOn(const Plumbd& server, uint64_t stream) const {
    AgentStream agent(server, stream, {SourceOf("goes-on")}, kSteps + 2);
    uint64_t held = 0;
    ASSERT_TRUE(agent.Welcomed(&held));
    EXPECT_EQ(held, kSteps + 1);
  }

  TempFolder folder_;
};

TEST_F(Upgrade, ADirectoryOfTheBuildBeforeIsTakenUpPackedAndWrittenBack) {
  TakeRecorded();
  ASSERT_NE(Expected(), "");
  EXPECT_EQ(Packed(), 0u);
  const size_t segments = server::ListSegments(Journal())->size();
  ASSERT_GT(segments, 2u);
  {
    const auto server = Start();
    ASSERT_TRUE(CaughtUp(*server)) << server->process().errors();
    // Rules have new options since: the journal is judged again, and this is reported.
    EXPECT_THAT(server->process().errors(), HasSubstr("is not used: "));
    EXPECT_THAT(server->process().errors(), Not(HasSubstr("are lost")));
    EXPECT_EQ(Stated(*server), Expected());
    EXPECT_EQ(FoundByAudit(*server, "over"), FoundLive(*server, "over"));
    GoesOn(*server, 2);
    EXPECT_TRUE(Eventually([&] { return Packed() + 1 >= segments; })) << Packed();
    server->process().Signal(SIGKILL);
    server->process().Wait();
  }
  // Without the files of this build, everything is judged again from the files of the older build.
  fs::remove_all(Data() + "/checkpoint");
  for (const char* part : {"", "-wal", "-shm"}) fs::remove(Data() + "/store.sqlite" + part);
  {
    const auto server = Start("pack = false\n");
    ASSERT_TRUE(CaughtUp(*server)) << server->process().errors();
    EXPECT_EQ(Stated(*server), Expected());
    EXPECT_TRUE(Eventually([&] { return Packed() == 0; })) << Packed();
    EXPECT_EQ(server->Stop(), 0);
  }
  if (Variable("PLUMB_RECORD_WITH").empty()) return;
  const auto server = Start("", Variable("PLUMB_RECORD_WITH"));
  ASSERT_TRUE(CaughtUp(*server)) << server->process().errors();
  EXPECT_EQ(Stated(*server), Expected());
  EXPECT_THAT(server->process().errors(), Not(HasSubstr("are lost")));
  GoesOn(*server, 2);
}

TEST_F(Upgrade, DISABLED_Records) {
  const std::string to = Variable("PLUMB_RECORD_TO");
  ASSERT_NE(to, "");
  const auto server = Start("", Variable("PLUMB_RECORD_WITH"));
  ASSERT_FALSE(server->address().empty()) << server->process().errors();
  for (uint64_t stream = 1; stream <= 2; ++stream) {
    const v1::Source source = SourceOf(stream == 1 ? "over" : "goes-on");
    AgentStream agent(*server, stream, {source});
    v1::Batch declares = BatchOf(source);
    v1::SeriesSet& set = *declares.add_series_sets();
    set.set_id(stream);
    for (const char* op : {"loss", "lr", "grad_norm"}) set.add_sites()->set_op(op);
    ASSERT_TRUE(agent.Send(declares, 1));
    for (uint64_t step = 1; step <= kSteps; ++step) {
      v1::Batch batch = step % 8 == 0 ? LeakingStep(source, static_cast<int64_t>(step),
                                                    "layers." + std::to_string(step / 8))
                                      : ScalarStep(source, static_cast<int64_t>(step));
      v1::SeriesRows& rows = *batch.add_series();
      rows.set_set(stream);
      rows.add_source(0);
      rows.add_step(static_cast<int64_t>(step));
      for (const double value : {2.0 / static_cast<double>(step), 1e-3, 0.5}) rows.add_value(value);
      ASSERT_TRUE(agent.Send(batch, step + 1));
      ASSERT_TRUE(agent.Acknowledged(step + 1));
    }
    if (stream == 1) {
      ASSERT_TRUE(agent.Send(Goodbye(source, kSteps), kSteps + 2));
      ASSERT_TRUE(agent.Acknowledged(kSteps + 2));
      ASSERT_TRUE(IsOver(*server, "over"));
    }
  }
  ASSERT_TRUE(CaughtUp(*server));
  const std::string stated = Stated(*server);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // so that a checkpoint contains it
  server->process().Signal(SIGKILL);
  server->process().Wait();
  fs::create_directories(to);
  fs::copy(Data(), to + "/data", fs::copy_options::recursive);
  WriteFile(to + "/findings", stated);
}

}  // namespace
}  // namespace plumbline::test
