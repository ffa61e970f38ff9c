// Ranks that are blocked, and ranks that wait for them, by heartbeats.
#include <gtest/gtest.h>

#include "analysis/processes/hang_verdict.h"
#include "tests/server/stream/liveness_run.h"

namespace plumbline::server {
namespace {

TEST_F(LivenessTest, TheRankThatStandsIsNamedAndTheOthersWait) {
  Begin(4);
  Train(20);
  Train(1, {2});  // the others begin the next step, and wait in it
  Pass(milliseconds(9000));
  EXPECT_TRUE(reported_.empty());
  Pass(milliseconds(3000));
  ASSERT_EQ(reported_.size(), 1u);
  EXPECT_EQ(Of(reported_[0].ranks()), (std::vector<uint32_t>{2}));
  EXPECT_EQ(Of(reported_[0].waiting()), (std::vector<uint32_t>{0, 1, 3}));
  EXPECT_EQ(reported_[0].step(), 19);
  EXPECT_EQ(reported_[0].cause(), v1::RanksHung::CAUSE_STUCK);
  EXPECT_EQ(State("still"), 4u);
  const v1::Verdict verdict = analysis::HangVerdict(reported_[0]);
  EXPECT_EQ(verdict.finding().level(), v1::LEVEL_ERROR);
  EXPECT_EQ(verdict.finding().strength(), v1::STRENGTH_BOUNDED);
  EXPECT_EQ(Of(verdict.site().ranks()), (std::vector<uint32_t>{2}));
  EXPECT_EQ(verdict.details().fields().at("kind").string_value(), "not-launched");
  // Reported once; and again if it hangs again for longer than the pause that it recovered from.
  Pass(milliseconds(60000));
  EXPECT_EQ(reported_.size(), 1u);
  Train(1, {0, 1, 3});  // it recovers
  Train(20);
  Train(1, {1});
  Pass(milliseconds(100000));
  EXPECT_EQ(reported_.size(), 1u) << "the run came back from a pause of 72 s";
  Pass(milliseconds(60000));
  ASSERT_EQ(reported_.size(), 2u);
  EXPECT_EQ(Of(reported_[1].ranks()), (std::vector<uint32_t>{1}));
}

// The command names the process of the first rank that is named. Any sender chooses its host's
// name, so a name that is more than a name for a shell is in no command.
TEST_F(LivenessTest, TheCommandHasTheRealHostAndProcess) {
  const auto command = [this](const std::string& host) {
    host_ = host;
    Begin(4, "run-" + host);
    Train(20);
    Train(1, {2});
    Pass(milliseconds(12000));
    EXPECT_FALSE(reported_.empty());
    const v1::Verdict verdict = analysis::HangVerdict(reported_.back());
    const auto& details = verdict.details().fields();
    const auto found = details.find("command");
    return found == details.end() ? std::string() : found->second.string_value();
  };
  EXPECT_EQ(command("gpu-12.example.org"), "ssh gpu-12.example.org py-spy dump --pid 4713");
}

TEST_F(LivenessTest, AHostileHostIsInNoCommand) {
  v1::RanksHung hung;
  hung.set_cause(v1::RanksHung::CAUSE_STUCK);
  hung.add_ranks(0);
  hung.set_pid(7);
  const auto has = [&hung](const std::string& host, int64_t pid = 7) {
    hung.set_host(host);
    hung.set_pid(pid);
    return analysis::HangVerdict(hung).details().fields().contains("command");
  };
  EXPECT_TRUE(has("node0"));
  for (const char* host :
       {"", "$(reboot)", "a b", "-oProxyCommand=x", "a;b", "a`b`", "a\nb", "\u202e"})
    EXPECT_FALSE(has(host)) << host;
  EXPECT_FALSE(has("node0", 0));
  EXPECT_FALSE(has("node0", -1));
}

TEST_F(LivenessTest, AllInOneStepNameNoneAndBecomeAnErrorLate) {
  Begin(2);
  Train(20);
  Pass(milliseconds(12000));
  ASSERT_EQ(reported_.size(), 1u);
  EXPECT_TRUE(reported_[0].ranks().empty());
  EXPECT_EQ(analysis::HangVerdict(reported_[0]).finding().level(), v1::LEVEL_WARNING);
  Pass(milliseconds(300000));
  ASSERT_EQ(reported_.size(), 2u);
  EXPECT_EQ(analysis::HangVerdict(reported_[1]).finding().level(), v1::LEVEL_ERROR);
}

// All ranks are in one step, and all but one are within a collective. The rank outside of the
// collective is awaited.
TEST_F(LivenessTest, WhoHasNotEnteredTheCollectiveIsNamed) {
  Begin(4);
  Train(20);
  for (const uint32_t waits : {0u, 2u, 3u}) ranks_[waits].stage = v1::Span::KIND_COLLECTIVE;
  Pass(milliseconds(9000));
  EXPECT_TRUE(reported_.empty());
  Pass(milliseconds(3000));
  ASSERT_EQ(reported_.size(), 1u);
  EXPECT_EQ(Of(reported_[0].ranks()), (std::vector<uint32_t>{1}));
  EXPECT_EQ(Of(reported_[0].waiting()), (std::vector<uint32_t>{0, 2, 3}));
  EXPECT_EQ(analysis::HangVerdict(reported_[0]).finding().level(), v1::LEVEL_ERROR);
}

// If all ranks are within the collective, no rank is named. A declared stage takes precedence over
// a collective.
TEST_F(LivenessTest, ACollectiveOfAllNamesNoneAndACheckpointExplainsIt) {
  Begin(3);
  Train(20);
  for (Rank& rank : ranks_) rank.stage = v1::Span::KIND_COLLECTIVE;
  ranks_[1].stage = v1::Span::KIND_CHECKPOINT;
  Pass(milliseconds(30000));
  EXPECT_TRUE(reported_.empty());
  ranks_[1].stage = v1::Span::KIND_COLLECTIVE;
  Pass(milliseconds(3000));
  ASSERT_EQ(reported_.size(), 1u);
  EXPECT_TRUE(reported_[0].ranks().empty());
}

TEST_F(LivenessTest, SlowStepsNeedFiveOfThem) {
  Begin(2);
  Train(10, {}, milliseconds(20000));
  EXPECT_TRUE(reported_.empty());
  Train(1, {0}, milliseconds(60000));
  EXPECT_TRUE(reported_.empty());
  Pass(milliseconds(50000));
  EXPECT_EQ(reported_.size(), 1u);
}

// Two groups of ranks: 0 and 1 wait in the next step, 2 waits in this one for 3.
TEST_F(LivenessTest, OfLaggingRanksAWaitingOneIsNotNamed) {
  Begin(4);
  Train(20);
  Train(1, {2, 3});
  for (const uint32_t r : {0, 1, 2}) ranks_[r].stage = v1::Span::KIND_COLLECTIVE;
  Pass(milliseconds(12000));
  ASSERT_EQ(reported_.size(), 1u);
  EXPECT_EQ(Of(reported_[0].ranks()), (std::vector<uint32_t>{3}));
  EXPECT_EQ(Of(reported_[0].waiting()), (std::vector<uint32_t>{0, 1, 2}));
}

// The ranks stop before the length of a step is known: reported after five minutes, and one level
// lower.
TEST_F(LivenessTest, AFastLoopThatStopsEarlyIsReportedLate) {
  Begin(2);
  for (int i = 0; i < 100; ++i) Train(1, {}, milliseconds(i % 50 == 0 ? 250 : 0));
  Train(1, {1});
  Pass(milliseconds(290000));
  EXPECT_TRUE(reported_.empty());
  Pass(milliseconds(20000));
  ASSERT_EQ(reported_.size(), 1u);
  EXPECT_EQ(Of(reported_[0].ranks()), (std::vector<uint32_t>{1}));
  const v1::Verdict verdict = analysis::HangVerdict(reported_[0]);
  EXPECT_EQ(verdict.finding().level(), v1::LEVEL_WARNING);
  EXPECT_NE(verdict.finding().explanation().find("too few steps were observed"), std::string::npos);
  EXPECT_EQ(verdict.finding().explanation().find("longest pause"), std::string::npos);
  Pass(milliseconds(3600000));
  EXPECT_EQ(reported_.size(), 1u);
}

// An agent that does not report how long it is blocked, and a run whose steps were never measured.
TEST_F(LivenessTest, WithoutKnowledgeItIsSilent) {
  Begin(2);
  Train(3);
  Pass(milliseconds(100000));
  EXPECT_TRUE(reported_.empty());
  EXPECT_EQ(State("running"), 0u);
}

TEST_F(LivenessTest, TooFewStepsDoNotGiveTheLengthOfOne) {
  Begin(2);
  Train(5);  // four were ended, so that the first three are over, and four were timed
  Pass(milliseconds(60000));
  EXPECT_TRUE(reported_.empty());
}

class QuickLivenessTest : public LivenessTest {
 protected:
  QuickLivenessTest() : LivenessTest(std::chrono::seconds(1)) {}
};

// A heartbeat is out of date once a batch shows a newer step.
TEST_F(QuickLivenessTest, ANewerStepOutweighsTheLastHeartbeat) {
  Begin(2);
  Train(20);
  Pass(milliseconds(1250));
  for (Rank& rank : ranks_) rank.beats = false;
  Train(1, {}, milliseconds(2500));
  EXPECT_TRUE(reported_.empty());
}

}  // namespace
}  // namespace plumbline::server
