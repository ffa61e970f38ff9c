// A job is restarted under its name and sends no attempt. None of its evidence is lost or late, and
// an audit of the stored run has both attempts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "tests/server/support.h"

namespace plumbline::test {
namespace {

class RestartedRunTest : public ::testing::Test {
 protected:
  void Start() {
    server_ = std::make_unique<Plumbd>(
        std::vector<std::string>{"--data", folder_.File("data"), "--grace", "1"});
    ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
  }
  // Runs all ranks of a job, from its first step on; killed, or with a goodbye.
  void Train(uint64_t first_stream, int64_t steps, bool well) {
    std::vector<std::unique_ptr<AgentStream>> ranks;
    for (uint32_t r = 0; r < kRanks; ++r) {
      const v1::Source source = SourceOf("again", r, kRanks);
      ranks.push_back(std::make_unique<AgentStream>(*server_, first_stream + r,
                                                    std::vector<v1::Source>{source}));
      ASSERT_TRUE(ranks.back()->Welcomed());
    }
    for (int64_t s = 0; s < steps; ++s) {
      for (uint32_t r = 0; r < kRanks; ++r)
        ranks[r]->Send(ScalarStep(SourceOf("again", r, kRanks), s), static_cast<uint64_t>(s) + 1);
    }
    const auto last = static_cast<uint64_t>(steps) + 1;
    for (uint32_t r = 0; r < kRanks; ++r) {
      if (well) ranks[r]->Send(Goodbye(SourceOf("again", r, kRanks), steps - 1), last);
      ASSERT_TRUE(ranks[r]->Acknowledged(well ? last : last - 1));
      if (!well) ranks[r]->Break();
    }
    for (auto& rank : ranks) {
      if (well) {
        EXPECT_TRUE(rank->Finish().ok());
      }
    }
  }
  void ExpectAttempt(uint32_t attempt, int64_t newest_step) {
    std::optional<v1::RunInfo> run;
    EXPECT_TRUE(Eventually([&] {
      run = server_->Run("again");
      return run && run->attempt() == attempt && run->closed_step() >= newest_step;
    })) << (run ? run->ShortDebugString() : "no such run");
    if (!run) return;
    EXPECT_EQ(run->late(), 0u);
    EXPECT_EQ(run->lost(), 0u);
    EXPECT_THAT(server_->Incidents("again", "meta/data-loss"), testing::IsEmpty());
  }

  static constexpr uint32_t kRanks = 2;
  TempFolder folder_;
  std::unique_ptr<Plumbd> server_;
};

TEST_F(RestartedRunTest, GoesOnAsItsNextAttempt) {
  Start();
  Train(10, 40, true);
  ExpectAttempt(0, 39);
  Train(20, 30, true);
  ExpectAttempt(1, 29);
  // Killed; and restarted with a restarted server, too.
  Train(30, 20, false);
  ExpectAttempt(2, 18);
  server_->process().Signal(SIGKILL);
  server_->process().Wait();
  Start();
  Train(40, 10, true);
  ExpectAttempt(3, 9);

  const Ended audit = RunToEnd({PLUMB_PROGRAM, "audit", "--server", server_->address(), "--run",
                                "again", "--format", "json", "--quiet"});
  const auto report = nlohmann::json::parse(audit.output);
  for (const auto& finding : report["findings"])
    EXPECT_NE(finding["rule"], "meta/data-loss") << finding.dump(1);
}

}  // namespace
}  // namespace plumbline::test
