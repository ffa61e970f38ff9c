// The mixture health rules on simulated runs: false alarm rates on healthy runs, detection rates of
// planted faults, and broken or non-finite summaries.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "tests/rules/support/mixture_run.h"
#include "tests/rules/support/verdicts.h"

namespace plumbline::rules {
namespace {

using testing::Findings;
using testing::MixtureRun;
using testing::MixtureRunSpec;
using testing::Of;
using testing::Only;
using ::testing::StartsWith;
using testing::Verdicts;
using testing::VerdictsOn;

constexpr char kImbalance[] = "health/expert-imbalance";
constexpr char kDead[] = "health/dead-expert";
constexpr char kDrops[] = "health/drop-rate";
constexpr char kCollapse[] = "health/router-collapse";

Verdicts Judge(std::vector<v1::Batch> batches) {
  return VerdictsOn(std::move(batches), {.rules = {"health/*"}});
}
Verdicts Judge(const MixtureRunSpec& spec) { return Judge({MixtureRun(spec)}); }

std::string Reason(const Verdicts& verdicts, const std::string& rule) {
  const v1::Verdict v = Only(verdicts, rule);
  return v.kind() == v1::Verdict::KIND_INCONCLUSIVE ? v.reason() : v.ShortDebugString();
}

double Detail(const v1::Verdict& v, const std::string& key) {
  const auto found = v.details().fields().find(key);
  return found == v.details().fields().end() ? NAN : found->second.number_value();
}

// Tests the rates published on the rule pages. If they change, update the pages.
TEST(MixtureHealth, HealthyRunsAreLeftAlone) {
  constexpr int kRuns = 1000;
  std::map<std::string, int> alarms;
  for (int run = 0; run < kRuns; ++run) {
    MixtureRunSpec spec{.experts = run % 2 == 0 ? 8 : 64, .choices = 256, .steps = 300};
    spec.seed = 5000 + static_cast<uint64_t>(run);
    if (run % 3 == 1) spec.topics = 0.7;
    if (run % 3 == 2) {
      spec.unlike = 0.1;
      spec.drift = 0.2;
      spec.entropy_first = spec.entropy_last = 0.05;  // certain and balanced
    }
    const Verdicts verdicts = Judge(spec);
    for (const char* rule : {kImbalance, kDead, kDrops, kCollapse})
      alarms[rule] += Findings(verdicts, rule) > 0 ? 1 : 0;
  }
  EXPECT_EQ(alarms[kImbalance], 0);
  EXPECT_EQ(alarms[kDead], 0);
  EXPECT_EQ(alarms[kDrops], 0);
  EXPECT_LE(alarms[kCollapse], 1);  // a third of the runs have certain routers
}

TEST(MixtureHealth, EvenRefusalsAreNotStarvation) {
  constexpr int kRuns = 1000;
  int alarms = 0;
  for (int run = 0; run < kRuns; ++run) {
    MixtureRunSpec spec{.choices = 256, .steps = 300};
    spec.refuse = run % 2 == 0 ? 0.08 : 0.30;
    spec.wander = 0.05;
    spec.wander_correlation = run % 4 < 2 ? 0 : 0.8;
    spec.ragged = run % 3 == 0;
    spec.seed = 9000 + static_cast<uint64_t>(run);
    alarms += Findings(Judge(spec), kDrops, "starvation") > 0 ? 1 : 0;
  }
  EXPECT_EQ(alarms, 0);
}

// The number of runs in which each fault was found.
struct Planted {
  int imbalance = 0, dead = 0, slope = 0, collapse = 0;

  void Count(MixtureRunSpec spec) {
    // A weight whose share is 2.5 / E after normalisation.
    spec.popularity = {{3, 2.5 * (spec.experts - 1) / (spec.experts - 2.5)}};
    imbalance += Findings(Judge(spec), kImbalance);
    spec.popularity = {{3, 0.03}, {5, 0.0}};
    dead += Findings(Judge(spec), kDead);
    spec.popularity.clear();
    spec.refuse = 0.06;
    spec.rise = 0.10;
    slope += Findings(Judge(spec), kDrops, "starvation");
    spec.refuse = spec.rise = 0;
    spec.grow = 6;
    spec.entropy_first = 0.12;
    spec.entropy_last = 0.02;
    collapse += Findings(Judge(spec), kCollapse);
  }
};

TEST(MixtureHealth, PlantedFaultsAreFound) {
  constexpr int kRuns = 100;
  Planted found;
  for (int run = 0; run < kRuns; ++run) {
    found.Count({.experts = run % 2 == 0 ? 8 : 64,
                 .choices = 256,
                 .steps = 110,
                 .seed = static_cast<uint64_t>(run) + 1});
  }
  EXPECT_EQ(found.imbalance, kRuns);
  EXPECT_EQ(found.dead, kRuns);
  EXPECT_EQ(found.slope, kRuns);
  EXPECT_EQ(found.collapse, kRuns);
}

TEST(MixtureHealth, OneFindingStatesWhichStepsItSpeaksOf) {
  MixtureRunSpec spec{.steps = 300};
  spec.popularity = {{5, 6.0}};
  const v1::Verdict v = Only(Judge(spec), kImbalance);
  ASSERT_EQ(v.kind(), v1::Verdict::KIND_FINDING);
  EXPECT_EQ(v.finding().site().step_first(), 0);
  EXPECT_EQ(v.finding().site().step_last(), 99);
  EXPECT_EQ(v.finding().site().layer(), "layers.0");
  EXPECT_EQ(v.finding().strength(), v1::STRENGTH_STATISTICAL);
  EXPECT_EQ(v.finding().false_alarm().kind(), "measured");
  EXPECT_EQ(v.finding().witness().fields().at("expert").number_value(), 5);
}

TEST(MixtureHealth, CapacityDoesNotHideAnImbalance) {
  MixtureRunSpec spec{};
  spec.popularity = {{5, 6.0}};
  spec.capacity_factor = 1.0;  // kept loads are nearly equal
  const Verdicts verdicts = Judge(spec);
  EXPECT_EQ(Findings(verdicts, kImbalance), 1);
  EXPECT_EQ(Findings(verdicts, kDrops, "capacity-too-small"), 1);
  EXPECT_EQ(Only(verdicts, kDead).kind(), v1::Verdict::KIND_PASS);
}

TEST(MixtureHealth, APopularExpertForFiftyStepsIsNotAHundred) {
  MixtureRunSpec spec{.steps = 50};
  spec.popularity = {{5, 4.0}};
  MixtureRunSpec rest{.steps = 250, .first_step = 50, .seed = 2};
  EXPECT_EQ(Findings(Judge({MixtureRun(spec), MixtureRun(rest)}), kImbalance), 0);
}

TEST(MixtureHealth, FewStepsAreInconclusive) {
  MixtureRunSpec spec{.steps = 99};
  spec.popularity = {{5, 0.0}};
  spec.refuse = 0.5;
  const Verdicts verdicts = Judge(spec);
  for (const char* rule : {kImbalance, kDead, kDrops, kCollapse})
    EXPECT_THAT(Reason(verdicts, rule), StartsWith("few-steps: 99 steps"));
}

// Returns a short run with the default recording cadence: dense at the start, then every n-th step.
MixtureRunSpec Sampled(int run) {
  MixtureRunSpec spec{.experts = run % 2 == 0 ? 8 : 64, .choices = 256, .steps = 300};
  spec.opening = 8 + run % 9;
  spec.every = 1 << (1 + run % 3);
  spec.seed = 70000 + static_cast<uint64_t>(run);
  return spec;
}

TEST(MixtureHealth, HealthySampledRunsAreLeftAlone) {
  constexpr int kRuns = 1000;
  std::map<std::string, int> alarms;
  for (int run = 0; run < kRuns; ++run) {
    MixtureRunSpec spec = Sampled(run);
    if (run % 4 == 1) spec.topics = 0.7;
    if (run % 4 == 2) {
      spec.unlike = 0.1;
      spec.drift = 0.2;
      spec.entropy_first = spec.entropy_last = 0.05;
    }
    if (run % 4 == 3) {
      spec.refuse = 0.08;
      spec.wander = 0.05;
      spec.wander_correlation = 0.8;
    }
    const Verdicts verdicts = Judge(spec);
    for (const char* rule : {kImbalance, kDead, kCollapse})
      alarms[rule] += Findings(verdicts, rule) > 0 ? 1 : 0;
    alarms[kDrops] += Findings(verdicts, kDrops, "starvation") > 0 ? 1 : 0;
  }
  EXPECT_EQ(alarms[kImbalance], 0);
  EXPECT_EQ(alarms[kDead], 0);
  EXPECT_EQ(alarms[kDrops], 0);
  EXPECT_LE(alarms[kCollapse], 1);  // a quarter of the runs have certain routers
}

TEST(MixtureHealth, PlantedFaultsAreFoundInSampledRuns) {
  constexpr int kRuns = 100;
  Planted found;
  for (int run = 0; run < kRuns; ++run) found.Count(Sampled(run));
  EXPECT_GE(found.imbalance, 90);  // 2.5 times the mean; with few choices, chance alone gives 1.2
  EXPECT_EQ(found.dead, kRuns);
  EXPECT_EQ(found.slope, kRuns);
  EXPECT_EQ(found.collapse, kRuns);
}

// Tests four or five observations of a short run. If each of them shows the fault, it is not
// chance.
TEST(MixtureHealth, AFewLooksFindWhatHoldsInEachOfThem) {
  constexpr int kRuns = 500;
  int healthy = 0, dead = 0, imbalance = 0;
  for (int run = 0; run < kRuns; ++run) {
    MixtureRunSpec spec{.experts = 4 << (run % 3), .choices = 256, .steps = 130};
    spec.every = run % 2 == 0 ? 32 : 40;
    spec.seed = 40000 + static_cast<uint64_t>(run);
    if (run % 4 == 1) spec.topics = 0.7;
    if (run % 4 == 2) {
      spec.unlike = 0.1;
      spec.drift = 0.2;
    }
    const Verdicts verdicts = Judge(spec);
    healthy += Findings(verdicts, kDead) + Findings(verdicts, kImbalance);
    spec.popularity = {{1, 0.0}};
    dead += Findings(Judge(spec), kDead) > 0;
    spec.popularity = {{1, 6.0 * spec.experts}};  // most of the choices
    imbalance += Findings(Judge(spec), kImbalance) > 0;
  }
  EXPECT_EQ(healthy, 0);
  EXPECT_EQ(dead, kRuns);
  EXPECT_EQ(imbalance, kRuns);
}

TEST(MixtureHealth, ThreeLooksAreTooFew) {
  MixtureRunSpec spec{.steps = 130, .every = 64};
  spec.popularity = {{1, 0.0}};
  EXPECT_THAT(Reason(Judge(spec), kDead), StartsWith("few-steps: 3 steps were recorded"));
}

// Tests twenty recorded steps of a hundred, most of them at the start.
TEST(MixtureHealth, AnOpeningDoesNotSpeakForTheRest) {
  MixtureRunSpec spec{.steps = 64};
  spec.opening = 32;
  spec.every = 16;
  spec.popularity = {{5, 8.0}};
  MixtureRunSpec rest{.steps = 64, .first_step = 64, .every = 16, .seed = 2};
  const Verdicts verdicts = Judge({MixtureRun(spec), MixtureRun(rest)});
  EXPECT_THAT(Reason(verdicts, kImbalance),
              StartsWith("few-steps: 38 steps were recorded, over a span of"));
}

// Tests a layer with some complete calls and loads between them: one window, and no complaint about
// missing rows.
TEST(MixtureHealth, LoadsStandNextToWholeCalls) {
  const auto reported = [](MixtureRunSpec whole) {
    MixtureRunSpec between = whole;
    whole.every = 128;
    between.every = 8;
    between.seed = whole.seed + 1;
    v1::Batch batch = MixtureRun(whole);
    const v1::Batch loads = MixtureRun(between);
    for (v1::Evidence e : loads.evidence()) {
      if (e.step() % 128 == 0) continue;
      e.mutable_site()->set_op("loads");
      *batch.add_evidence() = std::move(e);
    }
    return VerdictsOn({batch}, {.rules = {"health/*", "causality/*"}});
  };
  const Verdicts healthy = reported({.steps = 300});
  for (const char* rule : {kImbalance, kDead, kDrops, kCollapse})
    EXPECT_EQ(Only(healthy, rule).kind(), v1::Verdict::KIND_PASS) << rule;
  for (const v1::Verdict& v : healthy) EXPECT_NE(v.site().op(), "loads") << v.ShortDebugString();
  MixtureRunSpec dead{.steps = 300};
  dead.popularity = {{5, 0.0}};
  EXPECT_EQ(Findings(reported(dead), kDead), 1);
  MixtureRunSpec uneven{.steps = 300};
  uneven.popularity = {{5, 6.0}};
  EXPECT_EQ(Findings(reported(uneven), kImbalance), 1);
}

TEST(MixtureHealth, TooFewChoicesProveNoDeath) {
  MixtureRunSpec spec{.experts = 256, .choices = 8, .steps = 120};  // 3 per expert in 100 steps
  const Verdicts verdicts = Judge(spec);
  EXPECT_THAT(Reason(verdicts, kDead), StartsWith("few-choices"));
  EXPECT_EQ(Only(verdicts, kImbalance).kind(), v1::Verdict::KIND_PASS);
}

TEST(MixtureHealth, PaddingAccusesNoneAndHidesNothing) {
  MixtureRunSpec spec{};
  spec.padding_share = 0.4;
  spec.padding_expert = 5;
  Verdicts verdicts = Judge(spec);
  EXPECT_THAT(Reason(verdicts, kImbalance), StartsWith("padding: the load of expert 5"));
  EXPECT_EQ(Only(verdicts, kDrops).kind(), v1::Verdict::KIND_PASS);
  // The dead expert receives only padding.
  spec.popularity = {{5, 0.0}};
  EXPECT_THAT(Reason(Judge(spec), kDead), StartsWith("padding"));
  // Padding at other experts does not hide a dead expert.
  spec.padding_expert = 2;
  EXPECT_EQ(Findings(Judge(spec), kDead), 1);
}

TEST(MixtureHealth, NansAreCountedApartAndBlindNothing) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  MixtureRunSpec spec{.steps = 160, .grow = 6, .entropy_first = 0.12, .entropy_last = 0.02};
  spec.nan_every = 3;
  Verdicts verdicts = Judge(spec);
  EXPECT_EQ(Findings(verdicts, kCollapse), 1);
  EXPECT_GE(Detail(*Of(verdicts, kCollapse), "steps_unusable"), 33);
  spec.nan_every = 1;
  verdicts = Judge(spec);
  EXPECT_THAT(Reason(verdicts, kCollapse), StartsWith("no-steps"));
  EXPECT_EQ(Findings(verdicts, kImbalance), 1);
  // One infinite or NaN entropy among the ranks of a step.
  spec = {.ranks = 2};
  v1::Batch batch = MixtureRun(spec);
  for (int i = 0; i < batch.evidence_size(); i += 2) {
    auto* s = batch.mutable_evidence(i)->mutable_routing()->mutable_summary();
    s->set_entropy_mean(i % 4 == 0 ? nan : std::numeric_limits<double>::infinity());
  }
  verdicts = Judge({batch});
  EXPECT_NEAR(Detail(Only(verdicts, kCollapse), "entropy"), 0.8, 1e-12);
}

TEST(MixtureHealth, CountsThatDoNotAddUpAreNotUsed) {
  const auto spoil = [](const std::function<void(v1::RoutingSummary&)>& change) {
    v1::Batch batch = MixtureRun({.steps = 20, .refuse = 0.2});
    for (v1::Evidence& e : *batch.mutable_evidence())
      change(*e.mutable_routing()->mutable_summary());
    return Reason(Judge({batch}), kImbalance);
  };
  EXPECT_THAT(spoil([](v1::RoutingSummary& s) { s.set_load(0, s.load(0) + 1); }),
              StartsWith("no-steps"));
  EXPECT_THAT(spoil([](v1::RoutingSummary& s) { s.set_dropped(s.dropped() + 1); }),
              StartsWith("no-steps"));
  EXPECT_THAT(spoil([](v1::RoutingSummary& s) { s.mutable_refused()->RemoveLast(); }),
              StartsWith("no-steps"));
  EXPECT_THAT(spoil([](v1::RoutingSummary& s) { s.clear_load(); }), StartsWith("no-steps"));
  EXPECT_THAT(spoil([](v1::RoutingSummary& s) {
                s.set_choices(~uint64_t{0});
                s.set_dropped(~uint64_t{0});
              }),
              StartsWith("no-steps"));
  v1::Batch none = MixtureRun({.steps = 120});
  for (v1::Evidence& e : *none.mutable_evidence()) e.mutable_routing()->clear_summary();
  EXPECT_THAT(Reason(Judge({none}), kDead), StartsWith("no-steps"));
}

TEST(MixtureHealth, DropsWithoutPositionsAreHalfJudged) {
  MixtureRunSpec spec{};
  spec.refuse = 0.05;
  spec.positions = false;
  EXPECT_THAT(Reason(Judge(spec), kDrops), StartsWith("no-positions"));
  spec.positions = true;
  spec.offered = false;  // an older recording
  EXPECT_THAT(Reason(Judge(spec), kDrops), StartsWith("no-positions"));
  spec.refuse = 0.2;
  EXPECT_EQ(Findings(Judge(spec), kDrops, "capacity-too-small"), 1);
}

TEST(MixtureHealth, RanksWithTheSameTokensCountOnce) {
  MixtureRunSpec spec{.ranks = 4};
  spec.replicated = true;
  const v1::Verdict v = Only(Judge(spec), kImbalance);
  EXPECT_EQ(Detail(v, "choices"), 512 * 100);
  EXPECT_EQ(Detail(v, "repeated_calls"), 3 * 120);
  spec.replicated = false;
  EXPECT_EQ(Detail(Only(Judge(spec), kImbalance), "choices"), 4 * 512 * 100);
}

TEST(MixtureHealth, ARestartSupersedesTheStepsItRepeats) {
  MixtureRunSpec first{.steps = 100};
  first.popularity = {{5, 6.0}};
  // Dead from the start: 90 bad steps, 60 of which the restart repeats.
  first.steps = 90;
  MixtureRunSpec second{.steps = 80, .attempt = 1, .first_step = 30, .seed = 2};
  second.popularity = first.popularity;
  const v1::Verdict v = Only(Judge({MixtureRun(first), MixtureRun(second)}), kImbalance);
  ASSERT_EQ(v.kind(), v1::Verdict::KIND_FINDING);
  EXPECT_EQ(v.site().step_first(), 0);
  EXPECT_EQ(v.site().step_last(), 99);
}

TEST(MixtureHealth, EvaluationIsJudgedApart) {
  MixtureRunSpec bad{.steps = 100, .mode = "eval"};
  bad.popularity = {{5, 6.0}};
  v1::Batch batch = MixtureRun(bad);
  const v1::Batch train = MixtureRun({.steps = 100, .seed = 3});
  for (v1::Evidence e : train.evidence()) {
    e.set_call(1);
    *batch.add_evidence() = e;
  }
  const Verdicts verdicts = Judge({batch});
  ASSERT_EQ(std::count_if(verdicts.begin(), verdicts.end(),
                          [](const v1::Verdict& v) { return v.rule() == kImbalance; }),
            2);
  EXPECT_EQ(Findings(verdicts, kImbalance), 1);
}

}  // namespace
}  // namespace plumbline::rules
