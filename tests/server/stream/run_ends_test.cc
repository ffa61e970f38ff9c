// Tests which ranks are reported as ended after their connection broke, when this is judged, and
// when the report is closed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/stream/run_table.h"
#include "tests/support/batches.h"

namespace plumbline::server {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

class RunEndsTest : public testing::Test {
 protected:
  static RunTable::Time At(double s) {
    return RunTable::Time() + std::chrono::milliseconds(static_cast<int64_t>(1e6 + 1e3 * s));
  }
  static v1::Source Source(uint32_t rank, uint32_t attempt = 0) {
    v1::Source source = test::SourceOf("r", rank, 2, attempt);
    source.set_pid(100 + rank);
    return source;
  }
  void Connect(uint64_t stream, const v1::Source& source, double s) {
    table_.Connected(stream, source, false, At(s), 0);
  }
  void Take(uint64_t stream, const v1::Source& source, int64_t step, double s,
            bool backlog = false) {
    v1::Batch batch = test::BatchOf(source);
    test::AddProgress(&batch, step).set_newest_step(step + 1);
    table_.Account(stream, batch, backlog, At(s), 0);
  }
  void Goodbye(uint64_t stream, const v1::Source& source, double s,
               v1::Ending::How how = v1::Ending::HOW_UNSPECIFIED) {
    v1::Batch batch = test::BatchOf(source);
    v1::Progress& progress = test::AddProgress(&batch, 5);
    progress.set_finished(true);
    progress.mutable_ending()->set_how(how);
    table_.Account(stream, batch, false, At(s), 0);
  }
  // Both ranks, in step 5.
  void Begin() {
    for (const uint32_t rank : {0u, 1u}) {
      Connect(rank + 1, Source(rank), 0);
      Take(rank + 1, Source(rank), 4, 0.5);
    }
  }
  // Returns the gone ranks that may be alive.
  std::vector<uint32_t> Unreachable(double s) {
    std::vector<uint32_t> ranks;
    for (const v1::RanksGone& gone : table_.TakeGone(At(s))) {
      for (const uint32_t i : gone.unreachable())
        ranks.push_back(gone.sources(static_cast<int>(i)).rank());
      table_.SetGone(gone);
    }
    return ranks;
  }
  std::vector<std::string> Continued() {
    std::vector<std::string> rules;
    for (const RunTable::Continued& w : table_.TakeContinued()) rules.push_back(w.rule);
    return rules;
  }

  RunTable table_{seconds(10)};
};

TEST_F(RunEndsTest, WhoWasHeardUntilItsConnectionBrokeEnded) {
  Begin();
  table_.Disconnected(1, Source(0), At(1), true);
  EXPECT_THAT(table_.TakeBadEnds(At(9)), IsEmpty());
  EXPECT_THAT(Unreachable(12), IsEmpty());
  EXPECT_THAT(table_.TakeBadEnds(At(12)), IsEmpty()) << "others may follow";
  EXPECT_THAT(table_.TakeBadEnds(At(15)), ElementsAre("r"));
  EXPECT_THAT(table_.TakeBadEnds(At(30)), IsEmpty()) << "once";
}

TEST_F(RunEndsTest, ARankThatMayLiveIsReportedAsUnreachable) {
  struct Break {
    double at;
    bool ended, backlog;
  };
  // Cases: silent before; connected through a relay that broke, or ended by this server; with
  // unsent messages.
  for (const Break b : {Break{8, true, false}, Break{1, false, false}, Break{1, true, true}}) {
    table_ = RunTable(seconds(10));
    Begin();
    if (b.backlog) Take(1, Source(0), 4, 0.6, true);
    table_.Disconnected(1, Source(0), At(b.at), b.ended);
    EXPECT_THAT(Unreachable(20), ElementsAre(0u));
    EXPECT_THAT(table_.TakeBadEnds(At(30)), IsEmpty());
  }
}

TEST_F(RunEndsTest, WhoDoesNotComeBackToAServerThatWasAwayMayLive) {
  Begin();
  table_.DisconnectAll(At(1));
  EXPECT_THAT(Unreachable(20), ElementsAre(0u, 1u));
  EXPECT_THAT(table_.TakeBadEnds(At(30)), IsEmpty());
}

TEST_F(RunEndsTest, AGoodbyeThatIsNotWellIsJudgedAMomentLater) {
  Begin();
  Goodbye(1, Source(0), 1);
  EXPECT_THAT(table_.TakeBadEnds(At(1)), IsEmpty());
  EXPECT_THAT(table_.TakeBadEnds(At(9)), IsEmpty());
  Goodbye(2, Source(1), 9, v1::Ending::HOW_EXCEPTION);
  EXPECT_THAT(table_.TakeBadEnds(At(9)), IsEmpty());
  EXPECT_THAT(table_.TakeBadEnds(At(11.5)), ElementsAre("r"));
}

TEST_F(RunEndsTest, WhatARestartFindsIsNotJudgedTwice) {
  Begin();
  Goodbye(1, Source(0), 1, v1::Ending::HOW_EXCEPTION);
  Archive writes;
  table_.Persist(writes);
  const std::string bytes = writes.Take();
  Archive reads(bytes);
  RunTable again(seconds(10));
  again.Persist(reads);
  ASSERT_TRUE(reads.ok()) << reads.error();
  again.SetEndsJudged("r");  // an event that was journalled after the checkpoint
  EXPECT_THAT(again.TakeBadEnds(At(2)), IsEmpty());
  EXPECT_THAT(again.TakeBadEnds(At(20)), IsEmpty());
  EXPECT_THAT(table_.TakeBadEnds(At(2)), IsEmpty());
  EXPECT_THAT(table_.TakeBadEnds(At(20)), ElementsAre("r"));
}

TEST_F(RunEndsTest, ARunThatDiedGoesOnWithItsNextAttempt) {
  Begin();
  table_.NoteDied("r", false);
  Take(2, Source(1), 6, 1);
  EXPECT_THAT(Continued(), IsEmpty()) << "who is left goes on; who died does not";
  Connect(3, Source(0, 1), 2);
  EXPECT_THAT(Continued(), IsEmpty()) << "it is there, and has done nothing";
  Take(3, Source(0, 1), 6, 3);
  EXPECT_THAT(Continued(), ElementsAre("health/run-died"));
  Take(3, Source(0, 1), 7, 3);
  EXPECT_THAT(Continued(), IsEmpty());
}

TEST_F(RunEndsTest, ARunThatDiedGoesOnWhenWhoWasGoneIsBack) {
  Begin();
  table_.Disconnected(1, Source(0), At(1), true);
  EXPECT_THAT(Unreachable(12), IsEmpty());
  table_.NoteDied("r", false);
  Connect(1, Source(0), 20);
  Take(1, Source(0), 7, 21);
  EXPECT_THAT(Continued(), ElementsAre("health/run-died"));
}

// Ranks 0 and 1 of run r, in step 5.
v1::RanksHung BothHung() {
  v1::RanksHung hung;
  hung.set_run("r");
  hung.set_role(v1::ROLE_TRAINER);
  hung.set_step(5);
  hung.add_ranks(0);
  hung.add_ranks(1);
  return hung;
}

TEST_F(RunEndsTest, AHangIsOverWhenAllThatHungGoOn) {
  Begin();
  const v1::RanksHung hung = BothHung();
  table_.NoteHung(hung);
  Take(1, Source(0), 4, 1);
  Take(2, Source(1), 5, 1);
  EXPECT_THAT(Continued(), IsEmpty());
  Take(1, Source(0), 5, 2);
  EXPECT_THAT(Continued(), ElementsAre("performance/hang"));
  table_.NoteHung(hung);
  Connect(3, Source(0, 1), 2);
  Take(3, Source(0, 1), 0, 3);
  EXPECT_THAT(Continued(), ElementsAre("performance/hang")) << "begun again";
}

TEST_F(RunEndsTest, AHangIsOverWhenWhoHungSendsGoodbye) {
  Begin();
  const v1::RanksHung hung = BothHung();
  table_.NoteHung(hung);
  Goodbye(1, Source(0), 1);
  EXPECT_THAT(Continued(), IsEmpty());
  Goodbye(2, Source(1), 2);
  EXPECT_THAT(Continued(), ElementsAre("performance/hang"));
  // If an exception ends it, the hang may be the cause.
  Begin();
  table_.NoteHung(hung);
  Goodbye(1, Source(0), 3);
  Goodbye(2, Source(1), 3, v1::Ending::HOW_EXCEPTION);
  EXPECT_THAT(Continued(), IsEmpty());
}

// Returns a report that its steps stopped in step 5, 61 s before 100 s.
v1::StepsStopped Stopped() {
  v1::StepsStopped stopped;
  stopped.set_run("r");
  stopped.set_role(v1::ROLE_TRAINER);
  stopped.set_step(5);
  stopped.set_still_ns(61'000'000'000);
  return stopped;
}

TEST_F(RunEndsTest, StepsThatStoppedGoOnAndTheHistoryStatesHowLongThatLasted) {
  constexpr int64_t kSecond = 1'000'000'000;
  Begin();
  table_.NoteStopped(Stopped(), 100 * kSecond);
  table_.NoteStopped(Stopped(), 100 * kSecond);  // the error, later
  Archive writes;
  table_.Persist(writes);
  const std::string bytes = writes.Take();
  for (const bool restarted : {false, true}) {
    if (restarted) {
      Archive reads(bytes);
      table_ = RunTable(seconds(10));
      table_.Persist(reads);
      ASSERT_TRUE(reads.ok()) << reads.error();
    }
    Take(1, Source(0), 4, 1);
    EXPECT_THAT(Continued(), IsEmpty()) << "still in step 5";
    v1::Batch batch = test::BatchOf(Source(0));
    test::AddProgress(&batch, 5).set_newest_step(6);
    table_.Account(1, batch, false, At(2), 1719 * kSecond);
    const std::vector<RunTable::Continued> taken = table_.TakeContinued();
    ASSERT_EQ(taken.size(), 1u);
    EXPECT_EQ(taken[0].rule, "health/hang-between-steps");
    EXPECT_EQ(taken[0].why, "step 6 has begun, 28 min after the last step");
    Take(1, Source(0), 6, 3);
    EXPECT_THAT(Continued(), IsEmpty()) << "once";
  }
}

TEST_F(RunEndsTest, StepsThatStoppedEndWithAGoodbyeThatIsWellOrANewAttempt) {
  Begin();
  table_.NoteStopped(Stopped(), 100);
  Goodbye(1, Source(0), 1, v1::Ending::HOW_EXCEPTION);
  EXPECT_THAT(Continued(), IsEmpty()) << "the hang may be why";
  Goodbye(2, Source(1), 2);
  EXPECT_THAT(Continued(), ElementsAre("health/hang-between-steps"));
  table_.NoteStopped(Stopped(), 100);
  Connect(3, Source(0, 1), 2);
  EXPECT_THAT(Continued(), IsEmpty());
  Take(3, Source(0, 1), 0, 3);
  EXPECT_THAT(Continued(), ElementsAre("health/hang-between-steps"));
}

// Rank 1 is gone; rank 0, which waited for it, ends without an error.
TEST_F(RunEndsTest, AHangIsOverWhenAllThatWaitedEndWell) {
  Begin();
  v1::RanksHung gone = BothHung();
  gone.mutable_ranks()->RemoveLast();
  gone.set_ranks(0, 1);
  gone.add_waiting(0);
  table_.NoteHung(gone);
  Archive writes;
  table_.Persist(writes);
  const std::string bytes = writes.Take();
  Goodbye(1, Source(0), 2);
  EXPECT_THAT(Continued(), ElementsAre("performance/hang"));
  // The same after a restart of the server; but not if an exception ends it.
  for (const bool well : {true, false}) {
    Archive reads(bytes);
    table_ = RunTable(seconds(10));
    table_.Persist(reads);
    ASSERT_TRUE(reads.ok()) << reads.error();
    Goodbye(1, Source(0), 2, well ? v1::Ending::HOW_UNSPECIFIED : v1::Ending::HOW_EXCEPTION);
    EXPECT_EQ(Continued().size(), well ? 1u : 0u);
  }
}

// ---- runs to forget --------------------------------------------------------------------------

// A connected run of one rank, with `values` values.
void Begin(RunTable* table, const std::string& name, uint64_t stream, int values, int64_t unix_ns) {
  const v1::Source source = test::SourceOf(name);
  table->Connected(stream, source, false, RunTable::Time(seconds(1)), unix_ns);
  v1::Batch batch = test::BatchOf(source);
  for (int i = 0; i < values; ++i) test::AddScalar(&batch, "x", i, 1.0);
  if (values > 0) table->Account(stream, batch, false, RunTable::Time(seconds(1)), unix_ns);
}

std::vector<std::string> NamesOf(const std::vector<RunTable::Left>& left) {
  std::vector<std::string> names;
  for (const RunTable::Left& run : left) names.push_back(run.run);
  return names;
}

TEST(RunsLeft, ThoseWithLittleEvidenceGoFirst) {
  RunTable table(seconds(600));
  const RunTable::Time now(seconds(2));
  int64_t age = 0;
  uint64_t stream = 0;
  for (const auto& [name, values] : std::vector<std::pair<std::string, int>>{
           {"training", 9}, {"small", 1}, {"hello", 0}, {"other", 1}, {"connected", 0}}) {
    Begin(&table, name, ++stream, values, ++age);
    if (name != "connected") table.Disconnected(stream, test::SourceOf(name), now);
  }
  EXPECT_THAT(NamesOf(table.Disconnected()), ElementsAre("hello", "small", "other", "training"));
  EXPECT_THAT(table.Over(3), IsEmpty());
  EXPECT_THAT(table.TakeGone(now), IsEmpty());
  table.SetEnded("small");
  EXPECT_THAT(NamesOf(table.Over(3)), ElementsAre("small"));
  EXPECT_THAT(NamesOf(table.Disconnected()), ElementsAre("hello", "other", "training"));
  table.Erase("hello");
  EXPECT_EQ(table.List().size(), 4u);
}

// A run whose grace ends early is reported like any other run whose ranks are gone.
TEST(RunsLeft, WhoseGraceEndsEarlyAreGoneByTheSameWay) {
  RunTable table(seconds(600));
  const RunTable::Time now(seconds(2)), later(seconds(3));
  Begin(&table, "left", 1, 3, 1);
  Begin(&table, "connected", 2, 3, 1);
  table.Disconnected(1, test::SourceOf("left"), now);
  EXPECT_THAT(table.TakeGone(later), IsEmpty());
  table.EndGrace("left", now);
  table.EndGrace("connected", now);
  EXPECT_EQ(table.TakeGone(later).size(), 1u);
  EXPECT_THAT(table.TakeEnded(), ElementsAre("left"));
}

// Of those that are over, the newest come last.
TEST(RunsLeft, WhatTrainingsLeftOutlastsWhatIsMadeUp) {
  RunTable table(seconds(600));
  uint64_t stream = 0;
  for (const auto& [name, values] : std::vector<std::pair<std::string, int>>{
           {"training", 9}, {"a", 1}, {"b", 2}, {"c", 1}, {"new", 0}, {"newest", 3}}) {
    ++stream;
    Begin(&table, name, stream, values, static_cast<int64_t>(stream));
    table.SetEnded(name);
  }
  EXPECT_THAT(table.Over(3), IsEmpty()) << "they are connected";
  for (uint64_t s = 1; s <= stream; ++s) {
    for (const v1::RunInfo& run : table.List())
      table.Disconnected(s, test::SourceOf(run.run()), RunTable::Time(seconds(2)));
  }
  EXPECT_THAT(NamesOf(table.Over(3)), ElementsAre("a", "b", "training", "c", "new", "newest"));
}

}  // namespace
}  // namespace plumbline::server
