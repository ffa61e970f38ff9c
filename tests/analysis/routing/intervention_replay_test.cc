// Tests causality/moe-intervention on recordings against the known class of each router.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <iostream>
#include <map>

#include "tests/rules/support/routing_parts.h"
#include "tests/rules/support/synthetic_routing.h"
#include "tests/rules/support/verdicts.h"

namespace plumbline::analysis {
namespace {

using rules::testing::CleanKinds;
using rules::testing::Kind;
using rules::testing::LeakingKinds;
using rules::testing::Only;
using rules::testing::RoutingSpec;
using rules::testing::SyntheticRouting;
using rules::testing::VerdictsOf;
using rules::testing::VerdictsOn;

constexpr char kRule[] = "causality/moe-intervention";

v1::Verdict Judge(std::vector<v1::Batch> batches) {
  const rules::EngineConfig replay{.rules = {kRule},
                                   .settings = {std::string(kRule) + ".replay=on"}};
  return Only(VerdictsOn(std::move(batches), replay), kRule);
}

bool StatesFuture(const v1::Verdict& verdict) {
  return verdict.kind() == v1::Verdict::KIND_FINDING &&
         verdict.details().fields().at("row").string_value() == "future-leak";
}

RoutingSpec Small(const Kind& kind, uint64_t seed) {
  RoutingSpec spec = kind.Make(seed);
  spec.length = std::min(spec.length, 48);
  spec.sequences = std::min(spec.sequences, 4);
  spec.repeat = std::min(spec.repeat, 2);
  return spec;
}

TEST(MoeIntervention, NeverStatesThatACleanRouterLooksAhead) {
  std::map<std::string, int> outcomes;
  for (const Kind& kind : CleanKinds()) {
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      const SyntheticRouting routing(Small(kind, seed));
      const v1::Verdict verdict = Judge({routing.Batch()});
      const bool proved = verdict.finding().strength() == v1::STRENGTH_PROVED;
      EXPECT_TRUE(!proved || routing.FlipsByOtherSequence(60)) << kind.name << " seed " << seed;
      EXPECT_FALSE(StatesFuture(verdict)) << kind.name << " seed " << seed << "\n"
                                          << verdict.finding().explanation();
      ++outcomes[verdict.kind() == v1::Verdict::KIND_PASS      ? "pass"
                 : verdict.kind() == v1::Verdict::KIND_FINDING ? "batch-dependent"
                                                               : "inconclusive"];
    }
  }
  for (const auto& [outcome, count] : outcomes) std::cout << outcome << " " << count << "\n";
  EXPECT_GT(outcomes["pass"], 20);
  EXPECT_GT(outcomes["batch-dependent"], 20);
}

TEST(MoeIntervention, FindsWhatItCanReplay) {
  const std::map<std::string, int> least = {
      {"drop by logit", 8},     {"drop by softmax", 8}, {"drop by sigmoid share", 6},
      {"batch-prioritised", 5}, {"rank-major", 6},      {"expert choice", 6},
      {"mixture of depths", 6}};
  std::map<std::string, int> found, proved;
  for (const Kind& kind : LeakingKinds()) {
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      RoutingSpec spec = Small(kind, seed);
      spec.padding_share = 0;
      const SyntheticRouting routing(spec);
      const v1::Verdict verdict = Judge({routing.Batch()});
      if (!StatesFuture(verdict)) continue;
      ++found[kind.name];
      const bool is_proved = verdict.finding().strength() == v1::STRENGTH_PROVED;
      proved[kind.name] += is_proved;
      EXPECT_EQ(verdict.finding().level(), is_proved ? v1::LEVEL_ERROR : v1::LEVEL_WARNING);
      EXPECT_TRUE(routing.LeaksByIntervention(60) || routing.LeaksByIntervention(3000))
          << kind.name << " seed " << seed;
    }
  }
  for (const auto& [name, count] : found)
    std::cout << name << ": " << count << " of 10, " << proved[name] << " proved\n";
  for (const auto& [name, count] : least) EXPECT_GE(found[name], count) << name;
}

TEST(MoeIntervention, StaysSilentUnlessRequested) {
  RoutingSpec spec{.policy = RouterPolicy::kScore};
  EXPECT_TRUE(VerdictsOf(kRule, {SyntheticRouting(spec).Batch()}).empty());
}

// Tests rows of four ranks that use common experts.
TEST(MoeIntervention, PoolsThatSpanRanksAreReplayedWhole) {
  for (const RouterPolicy policy :
       {RouterPolicy::kScore, RouterPolicy::kScoreRankMajor, RouterPolicy::kFifo}) {
    for (const bool own_numbers : {false, true}) {
      RoutingSpec spec{.policy = policy, .sequences = 8, .length = 32, .seed = 7};
      const SyntheticRouting whole(spec);
      const v1::Verdict verdict =
          Judge(rules::testing::PartsOf(whole, {.own_numbers = own_numbers}));
      ASSERT_EQ(verdict.kind(), v1::Verdict::KIND_FINDING)
          << PolicyName(policy) << ": " << verdict.reason();
      EXPECT_EQ(StatesFuture(verdict), policy != RouterPolicy::kFifo);
      EXPECT_EQ(verdict.finding().strength(), Judge({whole.Batch()}).finding().strength());
      EXPECT_EQ(verdict.site().ranks_size(), 4);
      EXPECT_GT(verdict.details().fields().at("other_rank_share").number_value(), 0);
    }
  }
}

TEST(MoeIntervention, PoisonedScoresAreNoEvidence) {
  RoutingSpec spec{.policy = RouterPolicy::kScore};
  for (const float poison : {NAN, INFINITY, -INFINITY}) {
    v1::Batch batch = SyntheticRouting(spec).Batch();
    std::string& scores = *batch.mutable_evidence(0)
                               ->mutable_routing()
                               ->mutable_sample()
                               ->mutable_scores()
                               ->mutable_data();
    std::memcpy(scores.data() + 64, &poison, sizeof(poison));
    const v1::Verdict verdict = Judge({batch});
    if (poison < 0) {  // a masked expert: the row still chooses among the others
      EXPECT_TRUE(StatesFuture(verdict)) << verdict.reason();
      continue;
    }
    EXPECT_EQ(verdict.kind(), v1::Verdict::KIND_INCONCLUSIVE);
    EXPECT_EQ(verdict.reason().find("non-finite"), 0U) << verdict.reason();
  }
}

TEST(MoeIntervention, EqualRecordingsGiveEqualVerdicts) {
  RoutingSpec spec{.policy = RouterPolicy::kScore};
  const v1::Batch batch = SyntheticRouting(spec).Batch();
  EXPECT_EQ(Judge({batch}).SerializeAsString().size(), Judge({batch}).SerializeAsString().size());
  EXPECT_EQ(Judge({batch}).finding().DebugString(), Judge({batch}).finding().DebugString());
}

}  // namespace
}  // namespace plumbline::analysis
