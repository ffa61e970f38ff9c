// Tests training loops by their own spans: healthy loops give no finding, each stall is named with
// its cause, the rank that others wait for is named, and no waiting rank.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "analysis/timeline/timeline.h"
#include "tests/rules/performance/simulated_loops.h"

namespace plumbline::rules {
namespace {

using testing::Judge;
using testing::Judged;
using testing::LoopSpec;

std::set<uint32_t> RanksOf(const v1::Finding& finding, const char* key) {
  std::set<uint32_t> ranks;
  for (const auto& value : finding.details().fields().at(key).list_value().values())
    ranks.insert(static_cast<uint32_t>(value.number_value()));
  return ranks;
}

TEST(Loops, HealthyOnesRaiseNothing) {
  const bool all = std::getenv("PLUMB_LONG") != nullptr;
  int loops = 0;
  for (const int ranks : {2, 8, 64}) {
    for (int i = 0; i < (all ? (ranks == 64 ? 50 : 400) : (ranks == 64 ? 3 : 20)); ++i) {
      LoopSpec spec;
      spec.ranks = ranks;
      spec.steps = i % 2 == 0 ? 16 : 64;
      spec.checkpoint_every = i % 3 == 0 ? 5 : 0;
      spec.checkpoint_ms = 2;
      spec.seed = static_cast<uint64_t>(1000 * ranks + i);
      for (const v1::Finding& finding : Judge(spec).findings)
        ADD_FAILURE() << ranks << " ranks, seed " << spec.seed << ": " << finding.explanation();
      ++loops;
    }
  }
  RecordProperty("loops", loops);
}

TEST(Loops, NoRateOfFalseAlarmsIsStatedThatWasMeasuredOnTraces) {
  LoopSpec loader;
  loader.data_ms = 30;
  int combs = 0;
  for (const v1::Finding& finding : Judge(loader).findings) {
    if (finding.rule() != "performance/idle-comb") continue;
    EXPECT_EQ(finding.strength(), v1::STRENGTH_HEURISTIC);
    EXPECT_FALSE(finding.has_false_alarm());
    ++combs;
  }
  EXPECT_GT(combs, 0);
}

TEST(Loops, EachStallIsNamedWithItsCause) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    LoopSpec loader;
    loader.seed = seed;
    loader.data_ms = 30;
    auto causes = Judge(loader).causes;
    EXPECT_EQ(causes["performance/idle-comb"], std::set<std::string>{"data-loading"});
    EXPECT_EQ(causes["performance/data-stall"], std::set<std::string>{"data-loading"});
    EXPECT_EQ(causes.size(), 2u);

    LoopSpec saving;
    saving.seed = seed;
    saving.checkpoint_every = 4;
    causes = Judge(saving).causes;
    EXPECT_EQ(causes["performance/idle-comb"], std::set<std::string>{"checkpoint"});
    EXPECT_EQ(causes["performance/checkpoint-stall"], std::set<std::string>{"checkpoint"});
    EXPECT_EQ(causes.size(), 2u);

    LoopSpec collecting;
    collecting.seed = seed;
    collecting.collect_every = 5;
    causes = Judge(collecting).causes;
    EXPECT_EQ(causes["performance/idle-comb"], std::set<std::string>{"garbage-collection"});
    EXPECT_EQ(causes.size(), 1u);
  }
}

TEST(Loops, TheRankThatOthersWaitForIsNamedAndNoOther) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    for (const bool late : {false, true}) {
      LoopSpec spec;
      spec.seed = seed;
      const auto culprit = static_cast<int>(seed % 8);
      (late ? spec.late_rank : spec.slow_rank) = culprit;
      int stragglers = 0;
      for (const v1::Finding& finding : Judge(spec).findings) {
        if (finding.rule() != "performance/straggler") continue;
        ++stragglers;
        EXPECT_EQ(RanksOf(finding, "ranks"), std::set<uint32_t>{static_cast<uint32_t>(culprit)});
        EXPECT_EQ(RanksOf(finding, "waiting").size(), 7u);
        EXPECT_EQ(finding.details().fields().at("kind").string_value(), late ? "late" : "slow");
      }
      EXPECT_EQ(stragglers, 1) << seed << late;
    }
  }
}

// Tests that if no rank records its waiting time, all steps have equal length and no rank is
// compared.
TEST(Loops, WithoutCollectivesNoneIsComparedAndNonePasses) {
  LoopSpec spec;
  spec.slow_rank = 1;
  spec.collectives = false;
  const Judged judged = Judge(spec);
  EXPECT_TRUE(judged.findings.empty());
  EXPECT_EQ(judged.verdicts.at("performance/straggler"), std::set<std::string>{"no-collectives"});
}

TEST(Loops, InFrontOfAGpuAStallIsANote) {
  LoopSpec spec;
  spec.data_ms = 30;
  spec.layer = timeline::kLoopOfGpuLayer;
  const Judged judged = Judge(spec);
  ASSERT_FALSE(judged.findings.empty());
  for (const v1::Finding& finding : judged.findings) EXPECT_EQ(finding.level(), v1::LEVEL_NOTE);
}

// Tests that rules without evidence in a loop give no verdict.
TEST(Loops, RulesOfKernelsReportNoLoops) {
  const Judged judged = Judge({});
  EXPECT_FALSE(judged.verdicts.contains("performance/launch-bound"));
  EXPECT_FALSE(judged.verdicts.contains("performance/exposed-communication"));
  EXPECT_TRUE(judged.verdicts.at("performance/idle-comb").contains("pass"));
}

// Tests that data loading within an evaluation is part of it, and that nested spans of one class
// count once.
TEST(Loops, SpansWithinSpans) {
  using timeline::LoopSpan;
  constexpr int64_t kMs = 1'000'000;
  std::vector<timeline::LoopStep> steps;
  std::vector<LoopSpan> spans;
  for (int i = 0; i < 8; ++i) {
    const int64_t at = i * 100 * kMs;
    steps.push_back({i, at, at + 100 * kMs});
    spans.push_back({at + 10 * kMs, at + 40 * kMs, v1::Span::KIND_EVALUATION, "evaluation"});
    spans.push_back({at + 12 * kMs, at + 35 * kMs, v1::Span::KIND_DATA, "data"});
    spans.push_back({at + 50 * kMs, at + 60 * kMs, v1::Span::KIND_DATA, "data"});
    spans.push_back({at + 52 * kMs, at + 58 * kMs, v1::Span::KIND_DATA, "data"});
    spans.push_back({at + 70 * kMs, at + 80 * kMs, v1::Span::KIND_COLLECTIVE, "gradients"});
    spans.push_back({at + 75 * kMs, at + 78 * kMs, v1::Span::KIND_OTHER, "garbage collection"});
  }
  timeline::Columns columns = timeline::ColumnsOfLoop(steps, spans);
  const v1::Timeline t = timeline::Reduce(&columns);
  EXPECT_EQ(t.span_ns(), static_cast<uint64_t>(800 * kMs));
  EXPECT_EQ(t.busy_ns(), static_cast<uint64_t>(8 * 87 * kMs));
  EXPECT_EQ(t.exposed_ns(), static_cast<uint64_t>(8 * 7 * kMs));
  EXPECT_EQ(t.launch_wait_ns(), 0u);
  ASSERT_EQ(t.waits_size(), 2);
  EXPECT_EQ(t.steps_size(), 8);
  for (const v1::TimelineWait& wait : t.waits()) {
    const bool data = wait.cause() == v1::TimelineGap::CAUSE_DATA_LOADING;
    EXPECT_EQ(wait.union_ns(), static_cast<uint64_t>(8 * (data ? 10 : 3) * kMs));
    EXPECT_EQ(wait.idle_ns(), wait.union_ns());
  }
  EXPECT_TRUE(timeline::ColumnsOfLoop({}, spans).gpu.empty());
}

}  // namespace
}  // namespace plumbline::rules
