// Passes state what was looked at, and ranks that sent nothing are a finding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "rules/engine/close_events.h"
#include "rules/engine/engine.h"
#include "rules/engine/report.h"
#include "tests/support/batches.h"

namespace plumbline::rules {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::Verdict PassAt(int64_t first, int64_t last, const std::string& rule = "precision/non-finite") {
  v1::Verdict verdict = Pass("");
  verdict.set_rule(rule);
  verdict.mutable_site()->set_run("run");
  SetPlace(verdict, "w", "weight", first, last, std::vector<uint32_t>{0});
  return verdict;
}

RunSummary RunOf(int64_t first, int64_t last) {
  RunSummary run;
  run.run = "run";
  run.step_first = first;
  run.step_last = last;
  run.ranks = {0};
  return run;
}

// Returns a report with looks in these steps, of a run with this many steps, and what became of it.
struct Looked {
  Report report;
  std::vector<v1::Verdict> overdue;

  Looked(const std::vector<int64_t>& looks, int64_t steps) {
    for (const int64_t step : looks) report.Add(PassAt(step, step));
    overdue = report.NotLookedAtSince(RunOf(0, steps - 1));
    for (const v1::Verdict& verdict : overdue) report.Add(verdict);
  }
  const v1::Verdict& line() const { return *report.verdicts().at(0); }
};

TEST(Looks, APassStatesThem) {
  const Looked looked({0, 30, 55}, 60);
  ASSERT_TRUE(looked.overdue.empty());
  EXPECT_EQ(looked.line().kind(), v1::Verdict::KIND_PASS);
  EXPECT_EQ(looked.line().looks(), 3u);
  EXPECT_EQ(looked.line().run_steps(), 60u);
}

TEST(Looks, APassOfTheFirstStepsAloneIsInconclusive) {
  const Looked looked({0, 4}, 60);
  ASSERT_EQ(looked.report.verdicts().size(), 1u) << "it replaces the pass";
  EXPECT_EQ(looked.line().kind(), v1::Verdict::KIND_INCONCLUSIVE);
  EXPECT_EQ(looked.line().reason(),
            "not-looked-at-since: 2 looks in 60 steps passed; the last look was in step 4, the run "
            "ended in step 59");
  EXPECT_EQ(looked.line().site().step_last(), 4);
}

TEST(Looks, TheLastTenthDecides) {
  const auto until = [](int64_t last) {
    std::vector<int64_t> looks(static_cast<size_t>(last) + 1);
    std::iota(looks.begin(), looks.end(), 0);
    return looks;
  };
  for (const int64_t steps : {20, 60, 61, 69, 70, 1000}) {
    const int64_t tenth = steps / 10;
    EXPECT_TRUE(Looked(until(steps - tenth), steps).overdue.empty()) << steps;
    EXPECT_FALSE(Looked(until(steps - tenth - 1), steps).overdue.empty()) << steps;
  }
  EXPECT_TRUE(Looked({0}, 9).overdue.empty()) << "a run without a tenth";
  EXPECT_FALSE(Looked({0}, 10).overdue.empty());
}

TEST(Looks, ASeriesOfAHundredPointsHasItsVerdict) {
  for (const auto& [points, overdue] : {std::pair(99, 1u), std::pair(100, 0u)}) {
    for (const char* rule : {"health/loss-spike", "health/gradient-spike"}) {
      Report report;
      for (int64_t step = 0; step < points; ++step) report.Add(PassAt(step, step, rule));
      EXPECT_EQ(report.NotLookedAtSince(RunOf(0, 999)).size(), overdue) << rule << points;
      Report range;
      range.Add(PassAt(0, points - 1, rule));
      EXPECT_EQ(range.NotLookedAtSince(RunOf(0, 999)).size(), overdue) << rule << points;
    }
  }
}

TEST(Looks, NoLookIsDueWhereLooksAreFartherApart) {
  EXPECT_TRUE(Looked({0, 25, 50}, 60).overdue.empty());
  EXPECT_TRUE(Looked({0, 1000, 2000}, 2900).overdue.empty());
  EXPECT_FALSE(Looked({0, 1000, 2000}, 3002).overdue.empty());
  EXPECT_TRUE(Looked({0, 1, 2, 4, 8, 16, 32}, 60).overdue.empty()) << "the next one is due at 64";
  EXPECT_FALSE(Looked({0, 1, 2, 4, 8, 16, 32}, 66).overdue.empty());
  EXPECT_FALSE(Looked({0, 100, 200, 300, 400, 500}, 1000).overdue.empty());
}

// Returns the number of overdue verdicts of a run of 1,000 steps: two tensors of which one was last
// looked at in step 128, the other one in `other`. The newest measurement came in `last_look`.
size_t OverdueOf(int64_t other, int64_t last_look, int64_t next_look, const char* op = "weight") {
  Report report;
  for (const int64_t step : {32, 40, 56, 90, 128}) {
    v1::Verdict one = PassAt(step, step);
    one.mutable_site()->set_op(op);
    report.Add(one);
  }
  v1::Verdict two = PassAt(other, other);
  two.mutable_site()->set_layer("other");
  report.Add(two);
  RunSummary run = RunOf(0, 999);
  run.sites[{"w", "series"}].kind = "scalar";
  run.last_look = last_look;
  run.next_look = next_look;
  return report.NotLookedAtSince(run).size();
}

// A budget of time thins measurements out. If the next one is due after the end, none is missing.
TEST(Looks, NoneIsMissingIfTheNextOneIsDueAfterTheRun) {
  EXPECT_EQ(OverdueOf(128, 128, -1), 2u) << "the schedule is not known";
  EXPECT_EQ(OverdueOf(128, 128, 2048), 0u);
  EXPECT_EQ(OverdueOf(128, 128, 1000), 0u);
  EXPECT_EQ(OverdueOf(128, 128, 999), 2u) << "it was due in the last step, and did not come";
  EXPECT_EQ(OverdueOf(128, 128, 512), 2u) << "it was due, and did not come";
  EXPECT_EQ(OverdueOf(180, 180, 2048), 0u) << "parameters take turns";
  EXPECT_EQ(OverdueOf(900, 900, 2048), 1u) << "the other tensor was looked at much later";
  EXPECT_EQ(OverdueOf(128, 128, 2048, "series"), 1u) << "values of series come with each step";
}

TEST(Looks, RangesCountNoLooksAndMayBeContinuedUpToTwiceTheirSteps) {
  for (const auto& [last, overdue] : {std::pair(50, 0u), std::pair(30, 0u), std::pair(29, 1u)}) {
    Report report;
    report.Add(PassAt(0, last));
    const std::vector<v1::Verdict> found = report.NotLookedAtSince(RunOf(0, 60));
    ASSERT_EQ(found.size(), overdue) << last;
    if (overdue > 0) {
      EXPECT_THAT(found[0].reason(), HasSubstr("steps 0 to 29 passed"));
    }
  }
}

TEST(Looks, OtherVerdictsAndRunsStay) {
  Report report;
  v1::Verdict other = PassAt(0, 0);
  other.mutable_site()->set_run("other");
  report.Add(other);
  report.Add(PassAt(0, 0, "meta/probe-coverage"));
  report.Add(PassAt(0, 0, kRunDiedRule));
  v1::Verdict open = PassAt(0, 0);
  open.set_kind(v1::Verdict::KIND_INCONCLUSIVE);
  open.set_reason("few-steps: one step");
  report.Add(open);
  EXPECT_TRUE(report.NotLookedAtSince(RunOf(0, 59)).empty());
}

TEST(Looks, ALaterPassOfTheSiteRestoresIt) {
  Looked looked({0, 4}, 60);
  looked.report.Add(PassAt(70, 70));
  ASSERT_EQ(looked.report.verdicts().size(), 1u);
  EXPECT_EQ(looked.line().kind(), v1::Verdict::KIND_PASS);
  EXPECT_EQ(looked.line().looks(), 3u);
  EXPECT_EQ(looked.line().site().step_first(), 0);
  EXPECT_EQ(looked.line().site().step_last(), 70);
}

TEST(Looks, LostTimeIsSummedOverTheVerdictsOfAFinding) {
  Report report;
  for (const double seconds : {2.5, 0.0, 4.0}) {
    v1::Verdict verdict = PassAt(static_cast<int64_t>(seconds), static_cast<int64_t>(seconds));
    verdict.set_kind(v1::Verdict::KIND_FINDING);
    verdict.mutable_finding()->set_fingerprint("f");
    verdict.mutable_finding()->set_level(v1::LEVEL_WARNING);
    *verdict.mutable_finding()->mutable_site() = verdict.site();
    verdict.mutable_finding()->set_lost_rank_seconds(seconds);
    report.Add(verdict);
  }
  ASSERT_EQ(report.findings().size(), 1u);
  EXPECT_EQ(report.findings()[0]->lost_rank_seconds(), 6.5);
}

// A job of processes of which only some report.
class Job : public ::testing::Test {
 protected:
  static v1::Batch Batch(uint32_t rank, uint32_t world, int64_t pid, bool weight_last) {
    v1::Source source = test::SourceOf("run", rank, world);
    source.set_pid(pid);
    v1::Batch batch = test::BatchOf(source);
    for (int64_t step = 0; step < 60; ++step) {
      test::AddScalar(&batch, "loss", step, 3);
      if (step != 4 && step != 0 && !(weight_last && step > 54)) continue;
      v1::Evidence& evidence = *batch.add_evidence();
      evidence.mutable_site()->set_layer("w");
      evidence.mutable_site()->set_op("weight");
      evidence.set_step(step);
      evidence.mutable_tensor()->set_role("weight");
      evidence.mutable_tensor()->mutable_summary()->set_count(64);
      evidence.mutable_tensor()->mutable_summary()->set_amax(3);
    }
    v1::Progress& progress = test::AddProgress(&batch, 59);
    progress.set_finished(true);
    return batch;
  }
  // Returns the report of one rank whose weight was last looked at in step 4 of 60.
  static Report WithNextLook(int64_t next_look) {
    Report report;
    auto engine =
        Engine::Create({}, [&report](const v1::Verdict& verdict) { report.Add(verdict); });
    (*engine)->SetOnWhole(
        [&report](const RunSummary& run) { return report.NotLookedAtSince(run); });
    v1::Batch batch = Batch(0, 1, 7, false);
    batch.mutable_progress(0)->set_next_look(next_look);
    EXPECT_TRUE((*engine)->Add(batch).ok());
    (*engine)->Finish();
    return report;
  }
  // Returns the report of a run of these ranks.
  static Report Judge(const std::vector<uint32_t>& ranks, uint32_t world, int64_t pid = 7,
                      bool weight_last = true) {
    Report report;
    auto engine =
        Engine::Create({}, [&report](const v1::Verdict& verdict) { report.Add(verdict); });
    EXPECT_TRUE(engine.ok()) << engine.status();
    (*engine)->SetOnWhole(
        [&report](const RunSummary& run) { return report.NotLookedAtSince(run); });
    for (const uint32_t rank : ranks)
      EXPECT_TRUE((*engine)->Add(Batch(rank, world, pid == 0 ? 0 : pid + rank, weight_last)).ok());
    (*engine)->Finish();
    return report;
  }
  static const v1::Finding* AbsentIn(const Report& report) {
    for (const v1::Finding* finding : report.findings()) {
      if (finding->cause().id() == "ranks-absent") return finding;
    }
    return nullptr;
  }
  static std::string ReasonOf(const Report& report, const std::string& rule) {
    for (const v1::Verdict* verdict : report.verdicts()) {
      if (verdict->rule() == rule && verdict->kind() != v1::Verdict::KIND_PASS)
        return verdict->reason();
      if (verdict->rule() == rule) return "";
    }
    return "none";
  }
};

TEST_F(Job, ATensorThatIsNoLongerLookedAtIsInconclusive) {
  EXPECT_THAT(ReasonOf(Judge({0}, 1, 7, false), "precision/non-finite"),
              HasSubstr("not-looked-at-since: 2 looks in 60 steps"));
  EXPECT_EQ(ReasonOf(Judge({0}, 1), "precision/non-finite"), "");
  // A file of another tool is no process: its series may count steps differently.
  EXPECT_EQ(ReasonOf(Judge({0}, 1, 0, false), "precision/non-finite"), "");
}

TEST_F(Job, AMeasurementThatTheProcessPlansAfterTheEndIsNotMissing) {
  EXPECT_EQ(ReasonOf(WithNextLook(64), "precision/non-finite"), "");
  EXPECT_THAT(ReasonOf(WithNextLook(32), "precision/non-finite"), HasSubstr("not-looked-at-since"));
}

TEST_F(Job, AFindingNamesTheTrainersLine) {
  std::string written;  // a checkpoint keeps the lines
  for (const bool restored : {false, true}) {
    Report report;
    auto engine =
        Engine::Create({}, [&report](const v1::Verdict& verdict) { report.Add(verdict); });
    v1::Batch batch = Batch(0, 1, 7, true);
    v1::SiteDeclaration& declared = *batch.add_declarations();
    declared.mutable_site()->set_op("loss");
    declared.set_kind("scalar");
    declared.set_file(std::string(3000, 'x') + "/train<b>.py");
    declared.set_line(57);
    batch.mutable_progress(0)->set_finished(false);
    if (restored) {
      ASSERT_TRUE((*engine)->Restore(written).ok());
    } else {
      ASSERT_TRUE((*engine)->Add(batch).ok());
      written = (*engine)->Checkpoint();
    }
    v1::Batch bad = test::BatchOf(batch.sources(0));
    test::AddScalar(&bad, "loss", 60, std::nan(""));
    test::AddProgress(&bad, 60).set_finished(true);
    // A later declaration of the site does not replace the first one.
    *bad.add_declarations() = declared;
    bad.mutable_declarations(0)->set_line(99);
    ASSERT_TRUE((*engine)->Add(bad).ok());
    (*engine)->Finish();
    const v1::Finding* found = nullptr;
    for (const v1::Finding* finding : report.findings()) {
      if (finding->rule() == "health/loss-non-finite") found = finding;
    }
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->site().line(), 57u) << restored;
    EXPECT_EQ(found->site().file(), std::string(244, 'x') + "/train<b>.py");
  }
}

TEST_F(Job, RanksThatSentNothingAreAWarningWithTheirRanges) {
  const Report report = Judge({0, 1, 4}, 8);
  const v1::Finding* const finding = AbsentIn(report);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->rule(), "meta/probe-coverage");
  EXPECT_EQ(finding->level(), v1::LEVEL_WARNING);
  EXPECT_THAT(finding->explanation(), HasSubstr("5 of 8 ranks sent nothing: ranks 2-3, 5-7."));
  EXPECT_THAT(finding->site().ranks(), ElementsAre(2, 3, 5, 6, 7));
}

// 512 of 4,096: the place has all absent ranks, or none of them.
TEST_F(Job, ThousandsOfAbsentRanksAreAllInThePlace) {
  std::vector<uint32_t> first(512);
  std::iota(first.begin(), first.end(), 0);
  const Report report = Judge(first, 4096);
  const v1::Finding* const finding = AbsentIn(report);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->title(), "3584 of 4096 ranks did not report");
  ASSERT_EQ(finding->site().ranks_size(), 3584);
  EXPECT_EQ(finding->site().ranks(3583), 4095u);
  const Report large = Judge({0, 1}, 100'000);
  ASSERT_NE(AbsentIn(large), nullptr);
  EXPECT_EQ(AbsentIn(large)->details().fields().at("place").string_value(), "99998 ranks")
      << "a part would read as all of them";
  EXPECT_FALSE(finding->details().fields().contains("place"));
}

TEST_F(Job, AllRanksOrAFileOfOneRankAreNoFinding) {
  EXPECT_EQ(AbsentIn(Judge({0, 1, 2}, 3)), nullptr);
  EXPECT_EQ(AbsentIn(Judge({0}, 0)), nullptr) << "the size of the world is not known";
  EXPECT_EQ(AbsentIn(Judge({0, 1}, 4, 0)), nullptr) << "files that were copied from some ranks";
}

TEST_F(Job, ManyRangesAreCounted) {
  std::vector<uint32_t> even(2048);
  for (uint32_t i = 0; i < even.size(); ++i) even[i] = 2 * i;
  const Report report = Judge(even, 4096);
  const v1::Finding* const finding = AbsentIn(report);
  ASSERT_NE(finding, nullptr);
  EXPECT_THAT(finding->explanation(), HasSubstr("2048 of 4096 ranks sent nothing: ranks 1, 3, 5"));
  EXPECT_THAT(finding->explanation(), HasSubstr("127 and 1984 more."));
  EXPECT_LT(finding->explanation().size(), 600u);
  EXPECT_EQ(finding->details().fields().at("place").string_value(), "2048 ranks");
}

// plumbd reports them once it no longer waits for them, not only at the end of the run.
TEST_F(Job, AServerReportsThemWhenItStopsWaiting) {
  Report report;
  EngineConfig config;
  config.hosted = true;
  auto engine =
      Engine::Create(config, [&report](const v1::Verdict& verdict) { report.Add(verdict); });
  ASSERT_TRUE(engine.ok());
  v1::Batch batch = Batch(0, 4096, 7, true);
  batch.mutable_progress(0)->set_finished(false);
  ASSERT_TRUE((*engine)->Add(batch).ok());
  EXPECT_EQ(AbsentIn(report), nullptr);
  v1::JudgeEvent event;
  event.mutable_ranks_gone()->set_cause(v1::RanksGone::CAUSE_NEVER_CAME);
  *event.mutable_ranks_gone()->add_sources() = batch.sources(0);
  ApplyCloses(event, "", engine->get());
  ASSERT_NE(AbsentIn(report), nullptr);
  EXPECT_THAT(AbsentIn(report)->explanation(),
              HasSubstr("4095 of 4096 ranks sent nothing: ranks 1-4095."));
}

}  // namespace
}  // namespace plumbline::rules
