// Tests the verdict against the ground truth: the same router run again with another suffix.
#include <gtest/gtest.h>

#include <iostream>
#include <map>

#include "tests/rules/support/synthetic_routing.h"
#include "tests/rules/support/verdicts.h"

namespace plumbline::rules {
namespace {

using testing::Only;
using testing::Outcome;
using testing::PoolUnit;
using testing::RandomSpec;
using testing::RoutingSpec;
using testing::SyntheticRouting;
using testing::VerdictsOf;

v1::Verdict Judge(const SyntheticRouting& routing,
                  const std::string& rule = "causality/moe-future-leak") {
  return Only(VerdictsOf(rule, {routing.Batch()}), rule);
}

// Returns the verdict on `calls` micro-batches of one step. In a single pool, a stored number per
// expert has the same effect as a policy.
v1::Verdict JudgeOneOf(int calls, RoutingSpec spec,
                       const std::string& rule = "causality/moe-future-leak") {
  v1::Batch batch = SyntheticRouting(spec).Batch();
  for (int call = 1; call < calls; ++call) {
    spec.seed += 100'000;
    *batch.add_evidence() = SyntheticRouting(spec).Evidence();
    batch.mutable_evidence(call)->set_call(static_cast<uint32_t>(call));
  }
  const std::vector<v1::Verdict> verdicts = VerdictsOf(rule, {batch});
  EXPECT_EQ(verdicts.size(), static_cast<size_t>(calls));
  return verdicts.empty() ? v1::Verdict() : verdicts[0];
}

constexpr RouterPolicy kAll[] = {RouterPolicy::kTokenChoice,  RouterPolicy::kFifo,
                                 RouterPolicy::kFifoChunks,   RouterPolicy::kScore,
                                 RouterPolicy::kExpertChoice, RouterPolicy::kRankMajor,
                                 RouterPolicy::kOwnThreshold};

TEST(RoutingTruth, VerdictsAgreeWithInterventionOnRandomRouters) {
  constexpr uint64_t kSeeds = 700;
  std::map<std::string, std::map<std::string, int>> confusion;
  for (RouterPolicy policy : kAll) {
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      const SyntheticRouting routing(RandomSpec(policy, seed));
      const v1::Verdict verdict = Judge(routing);
      const std::string outcome = Outcome(verdict);
      ++confusion[PolicyName(policy)][outcome];
      // If there is no recorded capacity and no drop, the verdict states its assumption.
      const bool assumed =
          verdict.assumptions_size() > 0 && verdict.assumptions(0).find("no capacity") == 0;
      if (outcome == "pass" && !assumed) {
        EXPECT_FALSE(routing.LeaksByIntervention(6))
            << PolicyName(policy) << " seed " << seed << " " << verdict.DebugString();
      }
      if (outcome == "PROVED" || outcome == "heuristic") {
        EXPECT_TRUE(PolicyLeaks(policy)) << PolicyName(policy) << " seed " << seed << "\n"
                                         << verdict.DebugString();
      }
      if (outcome == "PROVED") {
        EXPECT_TRUE(routing.LeaksByIntervention(200)) << PolicyName(policy) << " seed " << seed;
      }
    }
  }
  for (const auto& [policy, outcomes] : confusion) {
    std::cout << policy << ":";
    for (const auto& [outcome, count] : outcomes) std::cout << " " << outcome << "=" << count;
    std::cout << "\n";
  }
  EXPECT_GT(confusion["token-choice"]["pass"], 0);
  EXPECT_GT(confusion["fifo-capacity"]["pass"], 0);
  EXPECT_GT(confusion["score-capacity"]["PROVED"], 0);
  EXPECT_GT(confusion["expert-choice"]["PROVED"], 0);
}

// Tests that a leak is found if pool and capacity are recorded and there are enough refusals.
TEST(RoutingTruth, LeakingPoliciesAreProvedWhenPoolAndCapacityAreRecorded) {
  for (RouterPolicy policy : {RouterPolicy::kScore, RouterPolicy::kExpertChoice}) {
    int proved = 0, found = 0, total = 0;
    for (uint64_t seed = 1; seed <= 400; ++seed) {
      RoutingSpec spec = RandomSpec(policy, seed);
      spec.record_pool_id = spec.declare_capacity = true;
      spec.padding_share = 0;
      spec.quantum = 0;
      spec.dtype = DType::kF32;
      spec.sequences = std::max(spec.sequences, 2);
      spec.length = std::max(spec.length, 31);
      spec.experts = std::max(spec.experts, 8);
      spec.top_k = std::min(spec.top_k, 2);
      spec.capacity_factor = std::min(spec.capacity_factor, 1.25);
      if (spec.pool != PoolUnit::kMicrobatch) spec.length = 129;
      const SyntheticRouting routing(spec);
      if (policy == RouterPolicy::kScore && routing.dropped() < 20) continue;
      ++total;
      const v1::Verdict verdict = JudgeOneOf(4, spec);
      found += verdict.kind() == v1::Verdict::KIND_FINDING;
      if (Outcome(verdict) == "PROVED") {
        ++proved;
        EXPECT_EQ(verdict.finding().cause().id(),
                  policy == RouterPolicy::kScore ? "drop-by-score" : "expert-choice");
        EXPECT_EQ(verdict.finding().level(), v1::LEVEL_ERROR);
      } else if (verdict.kind() != v1::Verdict::KIND_FINDING) {
        std::cout << PolicyName(policy) << " seed " << seed << " missed: " << verdict.reason()
                  << "\n";
      }
    }
    std::cout << PolicyName(policy) << ": " << proved << " of " << total << " proved\n";
    // Small calls have fewer than 20 bits and are found as a hint.
    EXPECT_GE(found, 0.99 * total);
    // The same applies if a stored number per expert gives the same result in all four (decision
    // 0053).
    EXPECT_GE(proved, 0.7 * total);
    EXPECT_GT(total, 100);
  }
}

TEST(RoutingTruth, BatchDependenceIsSeenWhereNoInversionIs) {
  RoutingSpec spec;
  spec.policy = RouterPolicy::kFifo;
  spec.sequences = 8;
  const SyntheticRouting routing(spec);
  const v1::Verdict leak = Judge(routing);
  EXPECT_EQ(leak.kind(), v1::Verdict::KIND_PASS) << leak.reason();
  const v1::Verdict batch = JudgeOneOf(2, spec, "causality/moe-batch-dependence");
  ASSERT_EQ(batch.kind(), v1::Verdict::KIND_FINDING) << batch.reason();
  EXPECT_EQ(batch.finding().strength(), v1::STRENGTH_PROVED);
  EXPECT_EQ(batch.finding().level(), v1::LEVEL_WARNING);
}

}  // namespace
}  // namespace plumbline::rules
