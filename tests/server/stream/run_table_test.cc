#include "server/stream/run_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>

#include "tests/support/batches.h"

namespace plumbline::server {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

v1::Source Source(uint32_t rank, uint32_t world, uint32_t attempt = 0) {
  return test::SourceOf("r", rank, world, attempt);
}

v1::Batch Batch(const v1::Source& source, bool finished) {
  v1::Batch b = test::BatchOf(source);
  b.add_progress()->set_finished(finished);
  return b;
}

v1::Batch Through(const v1::Source& source, int64_t step) {
  v1::Batch b = test::BatchOf(source);
  test::AddProgress(&b, step).set_newest_step(step + 1);
  return b;
}

class RunTableTest : public testing::Test {
 protected:
  using Cause = v1::RanksGone::Cause;

  RunTable::Time At(double s) {
    return RunTable::Time() + std::chrono::milliseconds(static_cast<int64_t>(1e6 + 1e3 * s));
  }
  void Connect(uint64_t stream, const v1::Source& source, double s, bool backlog = false) {
    table_.Connected(stream, source, backlog, At(s), 0);
  }
  void Take(uint64_t stream, const v1::Batch& batch, double s, bool backlog = false) {
    table_.Account(stream, batch, backlog, At(s), 0);
  }
  // Returns the ranks that are gone by now, and why; a group that never came as rank 1000.
  std::map<uint32_t, Cause> Gone(double s) {
    std::map<uint32_t, Cause> ranks;
    for (const v1::RanksGone& gone : table_.TakeGone(At(s))) {
      const bool group = gone.cause() == v1::RanksGone::CAUSE_NEVER_CAME;
      for (const v1::Source& source : gone.sources())
        ranks[group ? 1000 : source.rank()] = gone.cause();
    }
    return ranks;
  }
  std::vector<uint32_t> GoneRanks(double s) {
    std::vector<uint32_t> ranks;
    for (const auto& [rank, cause] : Gone(s)) ranks.push_back(rank);
    return ranks;
  }
  std::vector<std::string> Ended(double s) {
    table_.TakeGone(At(s));
    return table_.TakeEnded();
  }
  // Returns the step up to which steps may be closed over the ranks, if `oldest` is open; -1: none.
  int64_t MayClose(std::vector<uint32_t> ranks, int64_t oldest, int64_t newest) {
    rules::Lag lag;
    lag.role = v1::ROLE_TRAINER;
    lag.oldest = oldest;
    lag.through = newest - 64;
    lag.ranks = std::move(ranks);
    closed_.Clear();
    return table_.MayClose("r", lag, &closed_) ? closed_.through() : -1;
  }
  RunTable table_{seconds(10), 64};
  v1::StepsClosed closed_;
};

// ---- expected ranks ------------------------------------------------------------------------

TEST_F(RunTableTest, RanksThatNeverCameAreGoneAfterTheGraceFromTheFirstHello) {
  Connect(1, Source(0, 3), 0);
  Connect(2, Source(1, 3), 8);
  EXPECT_THAT(Gone(9.9), IsEmpty());
  EXPECT_THAT(Gone(10), ElementsAre(std::pair(1000u, v1::RanksGone::CAUSE_NEVER_CAME)));
  EXPECT_THAT(Gone(11), IsEmpty());
  Connect(3, Source(2, 3), 12);
  EXPECT_THAT(Gone(13), IsEmpty());
}

TEST_F(RunTableTest, AfterARestartARankThatIsNotBackIsGoneBecauseTheServerWasAway) {
  Connect(1, Source(0, 3), 0);
  Connect(2, Source(1, 3), 0);
  Archive out;
  table_.Persist(out);
  const std::string bytes = out.Take();
  RunTable again{seconds(10), 64};
  Archive in(bytes);
  again.Persist(in);
  ASSERT_TRUE(in.ok());
  table_ = std::move(again);
  table_.DisconnectAll(At(100));
  Connect(1, Source(0, 3), 101);
  EXPECT_THAT(Gone(109.9), IsEmpty());
  EXPECT_THAT(Gone(110), ElementsAre(std::pair(1u, v1::RanksGone::CAUSE_SERVER_AWAY),
                                     std::pair(1000u, v1::RanksGone::CAUSE_NEVER_CAME)));
}

TEST_F(RunTableTest, WhoWasGivenUpStaysSoAfterARestart) {
  Connect(1, Source(0, 2), 0);
  ASSERT_THAT(GoneRanks(10), ElementsAre(1000u));
  Archive out;
  table_.Persist(out);
  const std::string bytes = out.Take();
  RunTable again{seconds(10), 64};
  Archive in(bytes);
  again.Persist(in);
  table_ = std::move(again);
  table_.DisconnectAll(At(100));
  Connect(1, Source(0, 2), 101);
  EXPECT_THAT(Gone(200), IsEmpty());
}

TEST_F(RunTableTest, WhoIsConnectedAndSilentWhileOthersWaitIsGoneAfterTheGrace) {
  Connect(1, Source(0, 2), 0);
  Connect(2, Source(1, 2), 0);
  Take(1, Through(Source(0, 2), 5), 1);
  Take(2, Through(Source(1, 2), 9), 1);
  table_.Beat(2, Source(1, 2), false, At(8));
  EXPECT_THAT(Gone(1), IsEmpty());
  EXPECT_THAT(Gone(10.9), IsEmpty());
  EXPECT_THAT(Gone(11), ElementsAre(std::pair(0u, v1::RanksGone::CAUSE_SILENT)));
}

// A step takes longer than the grace. When the first rank completes it, the last one is not gone
// yet.
TEST_F(RunTableTest, TheGraceOfALaggingRankBeginsWhenOthersHaveDeliveredMore) {
  Connect(1, Source(0, 2), 0);
  Connect(2, Source(1, 2), 0);
  v1::Batch busy = Through(Source(0, 2), 5);
  busy.mutable_progress(0)->set_newest_step(7);  // its device is two steps late
  Take(1, busy, 1);
  Take(2, Through(Source(1, 2), 5), 1);
  for (int s = 1; s <= 40; ++s) {
    table_.Beat(1, Source(0, 2), true, At(s));
    table_.Beat(2, Source(1, 2), false, At(s));
    EXPECT_THAT(Gone(s), IsEmpty()) << s;
  }
  Take(2, Through(Source(1, 2), 6), 41);
  EXPECT_THAT(Gone(41), IsEmpty());
  EXPECT_THAT(Gone(50), IsEmpty());
}

TEST_F(RunTableTest, HeartbeatsKeepARankThatNothingElseComesOf) {
  Connect(1, Source(0, 2), 0);
  Connect(2, Source(1, 2), 0);
  Take(2, Through(Source(1, 2), 9), 1);
  for (int s = 1; s < 100; s += 5) {
    table_.Beat(1, Source(0, 2), false, At(s));
    table_.Beat(2, Source(1, 2), false, At(s));
    EXPECT_THAT(Gone(s), IsEmpty());
  }
}

// A stream that is far ahead is not read while another rank is awaited.
TEST_F(RunTableTest, WhoIsNotReadBecauseItIsAheadIsNotSilent) {
  Connect(1, Source(0, 3), 0);
  Connect(2, Source(1, 3), 0);
  Connect(3, Source(2, 3), 0);
  Take(1, Through(Source(0, 3), 10), 1);
  Take(2, Through(Source(1, 3), 42), 1);
  Take(3, Through(Source(2, 3), 44), 1);
  table_.Disconnected(1, Source(0, 3), At(1));
  EXPECT_THAT(Gone(1), IsEmpty());
  EXPECT_THAT(Gone(11), ElementsAre(std::pair(0u, v1::RanksGone::CAUSE_STREAM_BROKEN)));
  EXPECT_THAT(Gone(20), IsEmpty());  // their grace begins then
  EXPECT_THAT(Gone(21), ElementsAre(std::pair(1u, v1::RanksGone::CAUSE_SILENT)));
}

TEST_F(RunTableTest, ABacklogThatDoesNotFlowIsWaitedForNoLongerThanTheGrace) {
  Connect(1, Source(0, 2), 0, true);
  Connect(2, Source(1, 2), 0);
  Take(2, Through(Source(1, 2), 90), 0);
  for (int s = 1; s < 30; ++s) {
    Take(1, Through(Source(0, 2), s), s, true);
    EXPECT_THAT(Gone(s), IsEmpty()) << s;
  }
  for (int s = 30; s < 39; ++s) {
    table_.Beat(1, Source(0, 2), true, At(s));
    EXPECT_THAT(Gone(s), IsEmpty()) << s;
  }
  EXPECT_THAT(Gone(39), ElementsAre(std::pair(0u, v1::RanksGone::CAUSE_SILENT)));
}

TEST_F(RunTableTest, ComingAndGoingWithoutDeliveringDoesNotExtendTheGrace) {
  Connect(1, Source(0, 1), 0);
  Take(1, Through(Source(0, 1), 0), 1);
  table_.Disconnected(1, Source(0, 1), At(1));
  for (const int s : {4, 8}) {
    Connect(1, Source(0, 1), s);
    table_.Disconnected(1, Source(0, 1), At(s + 1));
  }
  EXPECT_THAT(GoneRanks(10), IsEmpty());
  EXPECT_THAT(GoneRanks(11), ElementsAre(0u));
}

TEST_F(RunTableTest, WhoDeliversBetweenTwoBreaksHasTheWholeGraceAgain) {
  Connect(1, Source(0, 1), 0);
  table_.Disconnected(1, Source(0, 1), At(1));
  Connect(1, Source(0, 1), 8);
  Take(1, Through(Source(0, 1), 3), 8.5);
  table_.Disconnected(1, Source(0, 1), At(9));
  EXPECT_THAT(GoneRanks(18.9), IsEmpty());
  EXPECT_THAT(GoneRanks(19), ElementsAre(0u));
}

// ---- ranks that a step may be closed over ---------------------------------------------------

class ClosingOver : public RunTableTest {
 protected:
  ClosingOver() {
    Connect(1, Source(0, 2), 0);
    Connect(2, Source(1, 2), 0);
    Take(1, Through(Source(0, 2), 0), 0);
    Take(2, Through(Source(1, 2), 99), 0);  // its newest step is 100
  }
};

TEST_F(ClosingOver, ARankThatReportsAnEmptyQueueForASecondIsClosedOverAWindowLater) {
  table_.Beat(1, Source(0, 2), false, At(1));
  EXPECT_EQ(MayClose({0}, 1, 100), -1);
  table_.Beat(1, Source(0, 2), false, At(2));
  EXPECT_EQ(MayClose({0}, 1, 100), 36);
  EXPECT_THAT(closed_.ranks(), ElementsAre(0u));
  EXPECT_EQ(closed_.run(), "r");
}

TEST_F(ClosingOver, NotFurtherThanAWindowAfterThePlaceOfTheOthersAtItsReport) {
  table_.Beat(1, Source(0, 2), false, At(1));
  table_.Beat(1, Source(0, 2), false, At(2));
  Take(2, Through(Source(1, 2), 199), 3);
  EXPECT_EQ(MayClose({0}, 1, 200), 36);
}

// Its report waited while the others were read, so it then reports more at once.
TEST_F(ClosingOver, WhoCatchesUpIsNotSlow) {
  table_.Beat(1, Source(0, 2), false, At(1));
  Take(1, Through(Source(0, 2), 80), 1.1);
  table_.Beat(1, Source(0, 2), false, At(3));
  EXPECT_EQ(MayClose({0}, 81, 200), -1);
}

TEST_F(ClosingOver, ABacklogIsWaitedForAtAnyLag) {
  for (const int s : {1, 2, 3}) Take(1, Through(Source(0, 2), s), s, true);
  EXPECT_EQ(MayClose({0}, 4, 100), -1);
}

TEST_F(ClosingOver, WhoIsFurtherThanWhatItSentHasMoreToSend) {
  v1::Batch b = Through(Source(0, 2), 1);
  b.mutable_progress(0)->set_newest_step(90);
  for (const int s : {1, 2, 3}) Take(1, b, s);
  EXPECT_EQ(MayClose({0}, 2, 100), -1);
}

TEST_F(ClosingOver, WhoBrokeOffIsWaitedFor) {
  table_.Beat(1, Source(0, 2), false, At(1));
  table_.Beat(1, Source(0, 2), false, At(2));
  table_.Disconnected(1, Source(0, 2), At(3));
  EXPECT_EQ(MayClose({0}, 1, 100), -1);
}

TEST_F(ClosingOver, WhoWasNotHeardSinceIsWaitedFor) { EXPECT_EQ(MayClose({0}, 1, 100), -1); }

TEST_F(ClosingOver, RanksThatNeverCameAreWaitedFor) {
  table_.Beat(1, Source(0, 2), false, At(1));
  table_.Beat(1, Source(0, 2), false, At(2));
  rules::Lag lag;
  lag.role = v1::ROLE_TRAINER;
  lag.oldest = 1;
  lag.through = 36;
  lag.ranks = {0};
  lag.unseen = true;
  EXPECT_FALSE(table_.MayClose("r", lag, &closed_));
}

// ---- the life of a run ----------------------------------------------------------------------

TEST_F(RunTableTest, ARankIsGoneAfterItsGraceAndOnce) {
  Connect(1, Source(0, 1), 0);
  EXPECT_THAT(GoneRanks(100), IsEmpty());
  table_.Disconnected(1, Source(0, 1), At(100));
  EXPECT_THAT(GoneRanks(109), IsEmpty());
  EXPECT_THAT(GoneRanks(110), ElementsAre(0));
  EXPECT_THAT(GoneRanks(111), IsEmpty());
  EXPECT_THAT(Ended(111), ElementsAre("r"));
  EXPECT_THAT(Ended(112), IsEmpty());
}

TEST_F(RunTableTest, ARankThatComesBackInTimeIsNotGone) {
  Connect(1, Source(0, 1), 0);
  table_.Disconnected(1, Source(0, 1), At(1));
  Connect(1, Source(0, 1), 5);
  EXPECT_THAT(GoneRanks(100), IsEmpty());
}

TEST_F(RunTableTest, AFinishedRankMayLeave) {
  Connect(1, Source(0, 1), 0);
  Take(1, Batch(Source(0, 1), true), 1);
  table_.Disconnected(1, Source(0, 1), At(2));
  EXPECT_THAT(Ended(2), ElementsAre("r"));
  EXPECT_THAT(GoneRanks(100), IsEmpty());
}

TEST_F(RunTableTest, ARunEndsWhenAllItsRanksHave) {
  Connect(1, Source(0, 2), 0);
  Connect(2, Source(1, 2), 0);
  Take(1, Batch(Source(0, 2), true), 1);
  EXPECT_THAT(Ended(100), IsEmpty());
  table_.Disconnected(2, Source(1, 2), At(100));
  EXPECT_THAT(GoneRanks(111), ElementsAre(1));
  EXPECT_THAT(Ended(111), ElementsAre("r"));
}

TEST_F(RunTableTest, ARankThatNeverCameIsWaitedForNoLongerThanOneThatBroke) {
  Connect(1, Source(0, 2), 0);
  Take(1, Batch(Source(0, 2), true), 1);
  EXPECT_THAT(Ended(9.9), IsEmpty());
  EXPECT_THAT(Ended(10), ElementsAre("r"));
}

TEST_F(RunTableTest, ANewProcessOfTheSameRankIsNotEndedByTheOldOnesGrace) {
  Connect(1, Source(0, 1), 0);
  table_.Disconnected(1, Source(0, 1), At(1));
  Connect(2, Source(0, 1), 2);
  table_.Disconnected(1, Source(0, 1), At(3));  // a late event of the old one
  EXPECT_THAT(GoneRanks(100), IsEmpty());
}

TEST_F(RunTableTest, ALaterAttemptReplacesTheEarlierOnesRanks) {
  Connect(1, Source(0, 2), 0);
  Connect(2, Source(1, 2), 0);
  table_.Disconnected(1, Source(0, 2), At(1));
  Connect(3, Source(0, 1, 1), 2);
  EXPECT_THAT(GoneRanks(100), IsEmpty());
  const auto runs = table_.List();
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].attempt(), 1u);
  EXPECT_EQ(runs[0].ranks_seen(), 1u);
  EXPECT_EQ(runs[0].ranks_connected(), 1u);
}

TEST_F(RunTableTest, ARunThatIsOverBeginsAnew) {
  Connect(1, Source(0, 2), 0);
  Connect(2, Source(1, 2), 0);
  Take(1, Batch(Source(0, 2), true), 1);
  Take(2, Batch(Source(1, 2), true), 1);
  EXPECT_THAT(Ended(1), ElementsAre("r"));
  // After rank 1 has restarted, its earlier state must not count.
  Connect(3, Source(0, 2), 2);
  Take(3, Batch(Source(0, 2), true), 3);
  EXPECT_THAT(Ended(4), IsEmpty());
  Connect(4, Source(1, 2), 5);
  Take(4, Batch(Source(1, 2), true), 6);
  EXPECT_THAT(Ended(6), ElementsAre("r"));
}

// Roles are numbers, which may come from a newer agent or be wrong. A role above the last one must
// not be looked up.
TEST_F(RunTableTest, TheLargestAndTheSmallestNumbersAreRolesToo) {
  for (const int role : {std::numeric_limits<int>::max(), std::numeric_limits<int>::min()}) {
    v1::Source source = Source(0, 2);
    source.set_run(std::to_string(role));
    source.set_role(static_cast<v1::Role>(role));
    Connect(static_cast<uint64_t>(role), source, 0);
  }
  // No other rank of the two runs came.
  EXPECT_EQ(table_.TakeGone(At(100)).size(), 2u);
  EXPECT_EQ(table_.List().size(), 2u);
}

TEST_F(RunTableTest, OneBatchMayNameTwoAttempts) {
  v1::Batch b;
  *b.add_sources() = Source(0, 1, 0);
  *b.add_sources() = Source(0, 1, 1);
  for (uint32_t s : {0u, 1u}) {
    auto* p = b.add_progress();
    p->set_source(s);
    p->set_finished(true);
    b.add_evidence()->set_source(s);
  }
  Take(1, b, 0);
  EXPECT_EQ(table_.List()[0].evidence(), 2u);
  EXPECT_EQ(table_.List()[0].ranks_finished(), 1u);
}

TEST_F(RunTableTest, WhoHasNotComeIsNamedOnceAndListedWhileItIsWaitedFor) {
  const auto awaited = [&]() -> uint64_t {
    const v1::RunInfo run = table_.List().at(0);
    const auto found = run.liveness().find(RunTable::kAwaited);
    return found == run.liveness().end() ? 0 : found->second;
  };
  Connect(1, Source(2, 8), 0);
  Connect(2, Source(5, 8), 0);
  EXPECT_EQ(awaited(), 6u);
  EXPECT_THAT(table_.TakeAwaited(At(1), seconds(2)), IsEmpty());
  const auto reported = table_.TakeAwaited(At(2), seconds(2));
  ASSERT_EQ(reported.size(), 1u);
  EXPECT_THAT(reported[0], testing::HasSubstr("waits for ranks 0-1, 3-4, 6-7 of its world of 8"));
  EXPECT_THAT(table_.TakeAwaited(At(3), seconds(2)), IsEmpty());
  Gone(1000);
  EXPECT_EQ(awaited(), 0u);
}

// Ten thousand runs of thousands of ranks must not be kept forever, rank by rank.
TEST(RunTable, RanksOfRunsThatAreOverAreBoundedAndStillCounted) {
  constexpr uint32_t kWorld = 4096;
  constexpr int kRuns = 100;
  RunTable table(seconds(10), 64);
  const RunTable::Time now = RunTable::Time() + seconds(1000);
  size_t most = 0;
  for (int r = 0; r < kRuns; ++r) {
    const std::string name = "run " + std::to_string(r);
    for (uint32_t rank = 0; rank < kWorld; ++rank) {
      const v1::Source source = test::SourceOf(name, rank, kWorld, 0);
      const uint64_t stream = 1 + static_cast<uint64_t>(r) * kWorld + rank;
      table.Account(stream, Batch(source, rank != 7), false, now, r);
      table.Disconnected(stream, source, now);
    }
    table.TakeGone(now + seconds(60));
    EXPECT_THAT(table.TakeEnded(), ElementsAre(name));
    table.SetEnded(name);
    most = std::max(most, table.ranks_over());
  }
  EXPECT_LE(most, RunTable::kMostRanksOver);
  EXPECT_GT(most, RunTable::kMostRanksOver / 2);
  const auto list = table.List();
  ASSERT_EQ(list.size(), kRuns);
  for (const v1::RunInfo& info : list) {
    EXPECT_EQ(info.ranks_seen(), kWorld);
    EXPECT_EQ(info.ranks_finished(), kWorld - 1);
    EXPECT_EQ(info.ranks_connected(), 0);
    EXPECT_EQ(info.world_size(), kWorld);
  }
  // The first run, which has the smallest stored state, starts again like any other.
  table.Account(1u << 30, Batch(test::SourceOf("run 0", 0, 1, 0), false), false, now, kRuns);
  EXPECT_FALSE(table.Ended("run 0"));
  EXPECT_EQ(table.List().front().ranks_seen(), 1);
}

}  // namespace
}  // namespace plumbline::server
