// The members of a judge, each alone: the memory budget, the schedule of checkpoints, the gate of
// decisions, reports, runs that are over, and the threads.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "server/judge/checkpoint_schedule.h"
#include "server/judge/decision_gate.h"
#include "server/judge/judge_threads.h"
#include "server/judge/memory_budget.h"
#include "server/judge/over_runs.h"
#include "server/judge/run_reports.h"

namespace plumbline::test {
namespace {

using namespace server;
using std::chrono::milliseconds;
using std::chrono::seconds;

// A budget over runs whose bytes the test sets.
struct Runs {
  std::map<std::string, uint64_t> bytes;
  MemoryBudget Budget(uint64_t limit) {
    return MemoryBudget({[this] {
                           uint64_t sum = 0;
                           for (const auto& [run, held] : bytes) sum += held;
                           return sum;
                         },
                         [this](const std::string& run) { return bytes[run]; },
                         [this] {
                           std::vector<std::string> names;
                           for (const auto& [run, held] : bytes) names.push_back(run);
                           return names;
                         }},
                        limit);
  }
};

TEST(MemoryBudget, QueriesTheLargestRunForWhatIsOverAndASixteenth) {
  Runs runs{{{"a", 900}, {"b", 300}}};
  MemoryBudget budget = runs.Budget(1000);
  const auto request = budget.Next(nullptr);
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->run, "a");
  EXPECT_EQ(request->bytes, 200u + 1000 / 16);
  budget.Promise(*request);
  EXPECT_FALSE(budget.Next(nullptr).has_value());  // promised bytes count as freed
  EXPECT_EQ(budget.TakePromise("a"), 900u - 262);
  EXPECT_EQ(budget.TakePromise("a"), std::nullopt);
  EXPECT_EQ(budget.TakePromise("b"), std::nullopt);
}

TEST(MemoryBudget, RequestsNothingAtItsLimitOrWithoutOne) {
  Runs runs{{{"a", 1000}}};
  EXPECT_FALSE(runs.Budget(1000).Next(nullptr).has_value());
  EXPECT_FALSE(runs.Budget(0).Next(nullptr).has_value());
  EXPECT_FALSE(runs.Budget(0).FarOver());
  EXPECT_FALSE(runs.Budget(800).FarOver());
  EXPECT_TRUE(runs.Budget(799).FarOver());
}

TEST(MemoryBudget, APromiseIsVoidOnceTheRunsFit) {
  Runs runs{{{"a", 900}, {"b", 300}}};
  MemoryBudget budget = runs.Budget(1000);
  budget.Promise(*budget.Next(nullptr));
  runs.bytes["b"] = 100;
  EXPECT_EQ(budget.TakePromise("a"), std::nullopt);
  EXPECT_FALSE(budget.promised());
}

TEST(MemoryBudget, AnOwnerWithManySmallRunsGivesBeforeAnothersLargeOne) {
  Runs runs{{{"many-1", 400}, {"many-2", 400}, {"large", 500}}};
  const MemoryBudget::OwnerOf owner_of = [](const std::string& run) {
    return RunOwner{run.substr(0, 4), 1};
  };
  EXPECT_EQ(runs.Budget(1000).Next(owner_of)->run, "many-1");
  const MemoryBudget::OwnerOf with_share = [](const std::string& run) {
    return RunOwner{run.substr(0, 4), run[0] == 'm' ? 2.0 : 1.0};
  };
  EXPECT_EQ(runs.Budget(1000).Next(with_share)->run, "large");
}

TEST(MemoryBudget, ARunThatFreedNothingGetsNoRequestUntilItGrows) {
  Runs runs{{{"a", 2000}, {"b", 100}}};
  MemoryBudget budget = runs.Budget(1000);
  budget.Promise(*budget.Next(nullptr));
  ASSERT_TRUE(budget.TakePromise("a").has_value());
  budget.Shrunk("a", 2000);  // still 2000
  EXPECT_EQ(budget.made_room(), 1u);
  EXPECT_EQ(budget.Next(nullptr)->run, "b");
  runs.bytes["a"] = 2000 + 1000 / 16 + 1;
  EXPECT_EQ(budget.Next(nullptr)->run, "a");
}

TEST(CheckpointSchedule, IsDueByBytesByTimeOrOnRequest) {
  const CheckpointSchedule::Time start{seconds(100)};
  CheckpointSchedule schedule(1000, seconds(60));
  schedule.Start(start);
  schedule.Judged(999);
  EXPECT_FALSE(schedule.Due(start + seconds(59)));
  EXPECT_TRUE(schedule.Due(start + seconds(60)));
  schedule.Done(start + seconds(60), start + seconds(60));
  EXPECT_FALSE(schedule.Due(start + seconds(60)));
  schedule.Judged(1);
  EXPECT_TRUE(schedule.Due(start + seconds(60)));
  EXPECT_FALSE(schedule.Taken({1, 1}));
  schedule.Done(start + seconds(60), start + seconds(60));
  EXPECT_TRUE(schedule.Request());
  EXPECT_FALSE(schedule.Request());
  EXPECT_TRUE(schedule.Due(start + seconds(61)));
  EXPECT_TRUE(schedule.Taken({1, 1}));
}

TEST(CheckpointSchedule, RestsNineTimesAsLongAsItBlockedJudging) {
  const CheckpointSchedule::Time start{seconds(100)};
  CheckpointSchedule schedule(1000, seconds(1));
  schedule.Done(start, start + seconds(3));
  EXPECT_FALSE(schedule.Due(start + seconds(29)));
  EXPECT_TRUE(schedule.Due(start + seconds(30)));
}

TEST(CheckpointSchedule, LosesPatienceFiveSecondsAfterItIsDue) {
  const CheckpointSchedule::Time start{seconds(100)};
  CheckpointSchedule schedule(1000, seconds(60));
  schedule.Start(start);
  EXPECT_FALSE(schedule.impatient(start + seconds(600)));
  ASSERT_TRUE(schedule.Due(start + seconds(60)));
  ASSERT_TRUE(schedule.Due(start + seconds(64)));
  EXPECT_FALSE(schedule.impatient(start + milliseconds(64'999)));
  EXPECT_TRUE(schedule.impatient(start + seconds(65)));
}

TEST(CheckpointSchedule, HasNewsIfAnythingWasJudgedOrItWasRequested) {
  CheckpointSchedule schedule(1000, seconds(60));
  (void)schedule.Taken({5, 7});
  EXPECT_FALSE(schedule.HasNews({5, 7}));
  EXPECT_TRUE(schedule.HasNews({6, 7}));
  EXPECT_TRUE(schedule.HasNews({5, 8}));
  (void)schedule.Request();
  EXPECT_TRUE(schedule.HasNews({5, 7}));
}

TEST(DecisionGate, AdmitsNothingAfterItIsClosed) {
  DecisionGate gate;
  EXPECT_TRUE(gate.Enter());
  gate.Decided();
  gate.Close(seconds(0));
  EXPECT_FALSE(gate.open());
  EXPECT_FALSE(gate.Enter());
  gate.EnterAnyway();  // a decision that was made earlier
  gate.Decided();
}

TEST(OverRuns, NamesKeepTheirPlacesWhileManyRunsAreOver) {
  OverRuns runs;
  EXPECT_FALSE(runs.KeepPlace("a"));
  EXPECT_TRUE(runs.SetMany(true).empty());
  EXPECT_TRUE(runs.KeepPlace("b"));
  EXPECT_TRUE(runs.SetMany(true).empty());
  EXPECT_EQ(runs.SetMany(false), std::vector<std::string>{"b"});
  EXPECT_TRUE(runs.SetMany(false).empty());
}

TEST(OverRuns, IncidentsOfAForgottenRunStayForTheReceiversOfAlerts) {
  const OverRuns::Time start{seconds(100)};
  OverRuns runs;
  runs.Forgotten("a", start);
  runs.Forgotten("b", start + seconds(1));
  EXPECT_TRUE(runs.TakeForgotten(start + milliseconds(9'999)).empty());
  EXPECT_EQ(runs.TakeForgotten(start + seconds(10)), std::vector<std::string>{"a"});
  EXPECT_EQ(runs.TakeForgotten(start + seconds(11)), std::vector<std::string>{"b"});
}

v1::Verdict VerdictOf(const std::string& run, const char* rule, v1::Verdict::Kind kind,
                      int64_t step) {
  v1::Verdict verdict;
  verdict.set_rule(rule);
  verdict.set_kind(kind);
  verdict.mutable_site()->set_run(run);
  verdict.mutable_site()->set_step_first(step);
  verdict.mutable_site()->set_step_last(step);
  return verdict;
}

TEST(RunReports, CountsVerdictsOnTheComputationByRun) {
  RunReports reports;
  reports.Add(VerdictOf("a", "health/nonfinite", v1::Verdict::KIND_PASS, 1));
  reports.Add(VerdictOf("a", "health/nonfinite", v1::Verdict::KIND_INCONCLUSIVE, 2));
  reports.Add(VerdictOf("a", "meta/data-loss", v1::Verdict::KIND_PASS, 2));
  reports.Add(VerdictOf("a", "health/run-died", v1::Verdict::KIND_PASS, 2));
  reports.Add(VerdictOf("b", "health/nonfinite", v1::Verdict::KIND_PASS, 1));
  EXPECT_EQ(reports.Counts()["a"].judged, 1u);
  EXPECT_EQ(reports.Counts()["a"].inconclusive, 1u);
  v1::ListVerdictsResponse all, one;
  reports.List("", &all);
  reports.List("b", &one);
  EXPECT_EQ(all.judged(), 2u);
  EXPECT_EQ(one.judged(), 1u);
  reports.Forget("a");
  EXPECT_EQ(reports.Counts().count("a"), 0u);
}

TEST(RunReports, AreWrittenAndReadAgain) {
  RunReports reports;
  reports.Add(VerdictOf("a", "health/nonfinite", v1::Verdict::KIND_INCONCLUSIVE, 2));
  Archive out;
  reports.Persist(out);
  const std::string bytes = out.Take();
  Archive in(bytes);
  RunReports read;
  read.Persist(in);
  ASSERT_TRUE(in.ok());
  EXPECT_EQ(read.Counts()["a"].inconclusive, 1u);
  v1::ListVerdictsResponse list;
  read.List("a", &list);
  EXPECT_EQ(list.verdicts_size(), 1);
}

TEST(JudgeThreads, EachHasAWorkerAndEndsByItself) {
  JudgeThreads threads, others;
  std::atomic<int> own{0}, foreign{0};
  for (int i = 0; i < 4; ++i) {
    threads.Start([&] {
      own += threads.Mine() != nullptr ? 1 : 0;
      foreign += others.Mine() != nullptr ? 1 : 0;
    });
  }
  threads.WaitForEnd();
  EXPECT_EQ(own, 4);
  EXPECT_EQ(foreign, 0);
  EXPECT_EQ(threads.Mine(), nullptr);
  EXPECT_EQ(threads.LongestWork().count(), 0);
}

// A piece of work waits for the work of another thread. It ends, because that thread takes over.
TEST(JudgeThreads, AnotherThreadTakesOverFromASlowOne) {
  JudgeThreads threads;
  std::atomic<bool> other_worked{false}, kept_turn{true}, busy{false};
  threads.Start([&] {
    threads.turn().Lock();
    threads.StartTakeover([&] {
      busy = threads.LongestWork().count() > 0;  // of the slow one
      other_worked = true;
      other_worked.notify_all();
      threads.turn().Unlock();
    });
    threads.BeginWork(true, false);
    threads.WithTakeover([&] { other_worked.wait(false); });
    kept_turn = threads.EndWork();
    threads.turn().Stop();
    threads.turn().Unlock();
  });
  threads.WaitForEnd();
  EXPECT_TRUE(busy);
  EXPECT_FALSE(kept_turn);
}

}  // namespace
}  // namespace plumbline::test
