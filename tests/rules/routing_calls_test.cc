// Tests calls of one layer with too little evidence each: together they show drop by score, and
// innocent routers give no finding. Also tests a declared queue that is not a queue.
#include <gtest/gtest.h>

#include "tests/rules/support/synthetic_routing.h"
#include "tests/rules/support/verdicts.h"

namespace plumbline::rules {
namespace {

using testing::RoutingSpec;
using testing::SyntheticRouting;
using testing::Verdicts;
using testing::VerdictsOn;

constexpr char kLeak[] = "causality/moe-future-leak";

// Returns small calls of one layer, each in its own step with other tokens. The capacity is not
// recorded.
std::vector<v1::Batch> Calls(RoutingSpec spec, int calls, uint64_t seed) {
  std::vector<v1::Batch> batches;
  spec.declare_capacity = false;
  for (int i = 0; i < calls; ++i) {
    spec.seed = 100 * seed + static_cast<uint64_t>(i);
    batches.push_back(SyntheticRouting(spec).Batch(0, 1, 16 * i));
  }
  return batches;
}

RoutingSpec Small(RouterPolicy policy) {
  RoutingSpec spec;
  spec.policy = policy;
  spec.sequences = 2;
  spec.length = 48;
  spec.experts = 4;
  spec.top_k = 1;
  spec.capacity_factor = 1.25;
  return spec;
}

int Found(const std::vector<v1::Batch>& batches) {
  int found = 0;
  for (const v1::Verdict& v : VerdictsOn(batches, {.rules = {kLeak}})) {
    if (v.kind() != v1::Verdict::KIND_FINDING) continue;
    ++found;
    EXPECT_NE(v.finding().strength(), v1::STRENGTH_PROVED);
    EXPECT_EQ(v.finding().level(), v1::LEVEL_WARNING);
  }
  return found;
}

TEST(RoutingCalls, ADropByScoreShowsInSeveralCalls) {
  constexpr uint64_t kRuns = 60;
  int alone = 0, together = 0;
  for (uint64_t seed = 1; seed <= kRuns; ++seed) {
    const auto calls = Calls(Small(RouterPolicy::kScore), 8, seed);
    alone += Found({calls[0]}) > 0;
    together += Found(calls) > 0;
  }
  EXPECT_LT(alone, 20);
  EXPECT_GE(together, 54);
}

TEST(RoutingCalls, InnocentCallsAreNotAccusedTogether) {
  constexpr uint64_t kRuns = 60;
  for (const RouterPolicy policy :
       {RouterPolicy::kFifo, RouterPolicy::kFifoChunks, RouterPolicy::kTokenChoice,
        RouterPolicy::kStoredThreshold, RouterPolicy::kOwnThreshold, RouterPolicy::kRandomDrop,
        RouterPolicy::kStoredBias}) {
    int found = 0;
    for (uint64_t seed = 1; seed <= kRuns; ++seed) found += Found(Calls(Small(policy), 8, seed));
    EXPECT_EQ(found, 0) << static_cast<int>(policy);
  }
}

// Repeated tokens in every step have the same numbers, so they count as one call.
TEST(RoutingCalls, ACallThatComesAgainCountsOnce) {
  int found = 0, single = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    std::vector<v1::Batch> again;
    RoutingSpec spec = Small(RouterPolicy::kScore);
    spec.declare_capacity = false;
    spec.seed = seed;
    for (int i = 0; i < 8; ++i) again.push_back(SyntheticRouting(spec).Batch(0, 1, 16 * i));
    single += Found({again[0]}) > 0;
    found += Found(again) > 0;
  }
  EXPECT_EQ(found, single);
}

std::vector<v1::Batch> Declared(RouterPolicy policy, uint64_t seed) {
  RoutingSpec spec;
  spec.policy = policy;
  spec.sequences = 2;
  spec.length = 192;
  spec.experts = 4;
  spec.top_k = 1;
  spec.seed = seed;
  v1::Batch batch = SyntheticRouting(spec).Batch();
  for (v1::Evidence& e : *batch.mutable_evidence())
    e.mutable_routing()->mutable_config()->set_policy("fifo-capacity");
  return {batch};
}

TEST(RoutingCalls, ADeclaredQueueThatIsNoneIsAFinding) {
  int drawn = 0, tied = 0, queued = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    drawn += Found(Declared(RouterPolicy::kRandomSelection, seed));
    tied += Found(Declared(RouterPolicy::kTieOrder, seed));
    for (const RouterPolicy policy :
         {RouterPolicy::kFifo, RouterPolicy::kOwnThresholdFifo, RouterPolicy::kStoredThresholdFifo,
          RouterPolicy::kStoredTableFifo})
      queued += Found(Declared(policy, seed));
  }
  EXPECT_GE(drawn, 30);
  EXPECT_GE(tied, 36);
  EXPECT_EQ(queued, 0);
}

}  // namespace
}  // namespace plumbline::rules
