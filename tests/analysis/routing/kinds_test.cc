// Tests the declared class of each policy against the true class by intervention: the same draws
// and stored statistics with another suffix or another sequence.
#include <gtest/gtest.h>

#include <iostream>
#include <set>

#include "tests/rules/support/synthetic_routing.h"

namespace plumbline::analysis {
namespace {

using rules::testing::CleanKinds;
using rules::testing::Kind;
using rules::testing::LeakingKinds;
using rules::testing::RandomSpec;
using rules::testing::RoutingSpec;
using rules::testing::SyntheticRouting;

// Returns true if an expert refused, or if the experts or the whole batch decide.
bool Saturated(const SyntheticRouting& routing) {
  return routing.result().keep.empty() || routing.dropped() > 0 ||
         routing.spec().policy == RouterPolicy::kSinkhorn ||
         routing.spec().policy == RouterPolicy::kAuction ||
         routing.spec().policy == RouterPolicy::kFittedBias ||
         routing.spec().policy == RouterPolicy::kOverflowReroute;
}

TEST(RoutingKinds, CleanOnesNeverFlipAnEarlierToken) {
  std::vector<Kind> kinds = CleanKinds();
  EXPECT_GE(kinds.size(), 40U);
  for (const Kind& kind : rules::testing::PosedKinds()) kinds.push_back(kind);
  std::set<std::string> names;
  for (const Kind& kind : kinds) {
    EXPECT_TRUE(names.insert(kind.name).second) << kind.name;
    EXPECT_FALSE(kind.leaks) << kind.name;
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      const SyntheticRouting routing(kind.Make(seed));
      EXPECT_FALSE(routing.LeaksByIntervention(9)) << kind.name << " seed " << seed;
      EXPECT_FALSE(routing.Nondeterministic()) << kind.name;
      EXPECT_GT(routing.Evidence().routing().sample().scores().data().size(), 0U);
    }
  }
}

TEST(RoutingKinds, LeakingOnesFlipWhenExpertsAreFull) {
  for (const Kind& kind : LeakingKinds()) {
    EXPECT_TRUE(kind.leaks) << kind.name;
    int saturated = 0, flipped = 0;
    for (uint64_t seed = 1; seed <= 12; ++seed) {
      const SyntheticRouting routing(kind.Make(seed));
      if (!Saturated(routing)) continue;
      ++saturated;
      flipped += routing.LeaksByIntervention(30);
      EXPECT_EQ(routing.Nondeterministic(), routing.spec().policy == RouterPolicy::kAtomicsRace);
    }
    EXPECT_GE(saturated, 6) << kind.name;
    EXPECT_GE(flipped, 0.8 * saturated) << kind.name << ": " << flipped << " of " << saturated;
  }
}

TEST(RoutingKinds, ClassesAgreeWithInterventionOnRandomSpecs) {
  for (RouterPolicy policy : AllPolicies()) {
    int by_other = 0, by_future = 0;
    for (uint64_t seed = 1; seed <= 60; ++seed) {
      const SyntheticRouting routing(RandomSpec(policy, seed));
      const bool future = routing.LeaksByIntervention(6);
      const bool other = routing.FlipsByOtherSequence(6);
      by_future += future;
      by_other += other;
      EXPECT_FALSE(future && !PolicyLeaks(policy)) << PolicyName(policy) << " seed " << seed;
      EXPECT_FALSE(other && PolicyClass(policy) == RouterClass::kClean)
          << PolicyName(policy) << " seed " << seed;
    }
    EXPECT_TRUE(by_future > 5 || !PolicyLeaks(policy)) << PolicyName(policy);
    EXPECT_TRUE(by_other > 5 || PolicyClass(policy) != RouterClass::kBatchDependent)
        << PolicyName(policy);
  }
}

}  // namespace
}  // namespace plumbline::analysis
