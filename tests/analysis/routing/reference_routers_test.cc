// Tests the reference routers against a second implementation of each simple policy.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>

#include "analysis/routing/routers/routers.h"
#include "base/router/scores.h"
#include "tests/rules/support/synthetic_routing.h"

namespace plumbline::analysis {
namespace {

using rules::testing::RandomSpec;
using rules::testing::RoutingSpec;
using rules::testing::SyntheticRouting;

constexpr uint64_t kSeeds = 60;

// One routed batch with the counts for the second implementation.
class Routed {
 public:
  explicit Routed(const RoutingSpec& spec) : routing_(spec), b_(routing_.batch()) {
    own_ = Route(b_, RouterPolicy::kTokenChoice, routing_.parameters());
  }
  const SyntheticRouting& routing() const { return routing_; }
  int32_t tokens() const { return b_.tokens; }
  int32_t experts() const { return b_.experts; }
  int32_t k() const { return b_.top_k; }
  bool Idle(int32_t t) const {
    return b_.padding[static_cast<size_t>(t)] && !routing_.parameters().padding_competes;
  }
  int32_t Choice(int32_t t, int32_t j) const {
    return own_.indices[static_cast<size_t>(t * k() + j)];
  }
  bool Kept(int32_t t, int32_t j) const {
    return routing_.result().keep[static_cast<size_t>(t * k() + j)] != 0;
  }
  bool InMap(int32_t t, int32_t e) const {
    return routing_.result().map[static_cast<size_t>(t * experts() + e)] != 0;
  }
  double Logit(int32_t t, int32_t e) const {
    return b_.logits[static_cast<size_t>(t * experts() + e)];
  }
  double Softmax(int32_t t, int32_t e) const {
    double sum = 0;
    for (int32_t o = 0; o < experts(); ++o) sum += std::exp(Logit(t, o) - Logit(t, e));
    return 1 / sum;
  }
  bool SamePool(int32_t a, int32_t b) const {
    const auto& pool = routing_.result().pool;
    return pool[static_cast<size_t>(a)] == pool[static_cast<size_t>(b)];
  }

  // Checks that a choice is kept if and only if fewer than C others of its cell precede it.
  template <typename Before>
  void ExpectFirstC(Before before) const {
    const int64_t capacity = routing_.capacity();
    for (int32_t t = 0; t < tokens(); ++t) {
      for (int32_t j = 0; j < k() && !Idle(t); ++j) {
        int64_t ahead = 0;
        for (int32_t u = 0; u < tokens(); ++u) {
          for (int32_t i = 0; i < k() && !Idle(u) && SamePool(t, u); ++i)
            ahead += Choice(u, i) == Choice(t, j) && before(u, i, t, j) ? 1 : 0;
        }
        ASSERT_EQ(Kept(t, j), ahead < capacity) << "token " << t << " choice " << j;
      }
    }
  }

 private:
  SyntheticRouting routing_;
  const RouterBatch& b_;
  RouterResult own_;
};

RoutingSpec Small(RouterPolicy policy, uint64_t seed) {
  RoutingSpec spec = RandomSpec(policy, seed);
  spec.sequences = std::min(spec.sequences, 3);
  spec.length = std::min(spec.length, 31);
  return spec;
}

TEST(ReferenceRouters, NamesRoundTrip) {
  std::set<std::string> names;
  for (RouterPolicy policy : AllPolicies()) {
    RouterPolicy parsed{};
    ASSERT_TRUE(ParsePolicy(PolicyName(policy), &parsed)) << PolicyName(policy);
    EXPECT_EQ(parsed, policy);
    EXPECT_TRUE(names.insert(PolicyName(policy)).second) << PolicyName(policy);
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(RouterPolicy::kScoreRankMajor) + 1);
  RouterPolicy parsed{};
  EXPECT_FALSE(ParsePolicy("no-such-policy", &parsed));
}

TEST(ReferenceRouters, TopKIsTheMeasurementsChoice) {
  for (RouterPolicy policy :
       {RouterPolicy::kTokenChoice, RouterPolicy::kGroupLimited, RouterPolicy::kStoredBias}) {
    int64_t compared = 0;
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      const SyntheticRouting routing(RandomSpec(policy, seed));
      const RouterParameters& p = routing.parameters();
      const RouterRule rule{.experts = routing.batch().experts,
                            .top_k = routing.batch().top_k,
                            .dtype = routing.spec().dtype,
                            .function = p.function,
                            .has_bias = !p.bias.empty(),
                            .groups = p.groups,
                            .top_groups = p.top_groups,
                            .group_score = p.group_sum2 ? GroupScore::kSum2 : GroupScore::kMax};
      RouterScratch scratch;
      RouterChoice own;
      for (int32_t t = 0; t < routing.batch().tokens; ++t) {
        const auto E = static_cast<size_t>(routing.batch().experts);
        const auto k = static_cast<size_t>(routing.batch().top_k);
        ChooseExperts(rule, &routing.batch().logits[static_cast<size_t>(t) * E],
                      p.bias.empty() ? nullptr : p.bias.data(), &scratch, &own);
        if (own.tied || !own.finite) continue;
        std::set<int32_t> expected(own.expert, own.expert + own.count), actual;
        for (size_t j = 0; j < k; ++j)
          actual.insert(routing.result().indices[static_cast<size_t>(t) * k + j]);
        ASSERT_EQ(actual, expected) << PolicyName(policy) << " seed " << seed << " row " << t;
        ++compared;
      }
    }
    EXPECT_GT(compared, 1000) << PolicyName(policy);
  }
}

TEST(ReferenceRouters, QueuesServeTheFirstC) {
  for (RouterPolicy policy : {RouterPolicy::kFifo, RouterPolicy::kFifoChunks,
                              RouterPolicy::kFifoUnequalChunks, RouterPolicy::kFifoSequence}) {
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      Routed(Small(policy, seed)).ExpectFirstC([](int32_t u, int32_t, int32_t t, int32_t) {
        return u < t;
      });
    }
  }
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Routed(Small(RouterPolicy::kRankMajor, seed))
        .ExpectFirstC([](int32_t u, int32_t i, int32_t t, int32_t j) {
          return std::make_pair(i, u) < std::make_pair(j, t);
        });
    Routed(Small(RouterPolicy::kReverseFifo, seed))
        .ExpectFirstC([](int32_t u, int32_t, int32_t t, int32_t) { return u > t; });
    RoutingSpec last_first = Small(RouterPolicy::kTieOrder, seed);
    last_first.router.tie_rule = TieRule::kLastFirst;
    Routed(last_first).ExpectFirstC([](int32_t u, int32_t, int32_t t, int32_t) { return u > t; });
  }
}

TEST(ReferenceRouters, ScoresKeepTheBestC) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    RoutingSpec spec = Small(RouterPolicy::kScore, seed);
    spec.quantum = 0;
    spec.repeat = 1;
    spec.dtype = DType::kF64;
    spec.router.key = seed % 2 ? ScoreKey::kLogits : ScoreKey::kSoftmax;
    if (spec.experts == 1) spec.router.key = ScoreKey::kLogits;
    const Routed routed(spec);
    routed.ExpectFirstC([&](int32_t u, int32_t i, int32_t t, int32_t j) {
      const int32_t e = routed.Choice(t, j);
      if (routed.Choice(u, i) != e || u == t) return false;
      return spec.router.key == ScoreKey::kLogits ? routed.Logit(u, e) > routed.Logit(t, e)
                                                  : routed.Softmax(u, e) > routed.Softmax(t, e);
    });
  }
}

TEST(ReferenceRouters, ExpertsTakeTheBestC) {
  for (RouterPolicy policy : {RouterPolicy::kExpertChoice, RouterPolicy::kSequenceTopK,
                              RouterPolicy::kSamePositionMixing}) {
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      RoutingSpec spec = Small(policy, seed);
      spec.quantum = 0;
      spec.repeat = 1;
      spec.dtype = DType::kF64;
      spec.router.key = ScoreKey::kLogits;
      const Routed routed(spec);
      for (int32_t t = 0; t < routed.tokens(); ++t) {
        for (int32_t e = 0; e < routed.experts(); ++e) {
          int64_t ahead = 0;
          for (int32_t u = 0; u < routed.tokens(); ++u) {
            ahead +=
                !routed.Idle(u) && routed.SamePool(t, u) && routed.Logit(u, e) > routed.Logit(t, e)
                    ? 1
                    : 0;
          }
          ASSERT_EQ(routed.InMap(t, e), !routed.Idle(t) && ahead < routed.routing().capacity());
        }
      }
    }
  }
}

TEST(ReferenceRouters, RunningBudgetsHoldAtEveryRow) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    RoutingSpec spec = Small(RouterPolicy::kPrefixBudget, seed);
    spec.pool = rules::testing::PoolUnit::kMicrobatch;
    const Routed routed(spec);
    std::vector<int64_t> held(static_cast<size_t>(routed.experts()), 0);
    for (int32_t t = 0; t < routed.tokens(); ++t) {
      const double share = spec.capacity_factor * routed.k() * (t + 1) / routed.experts();
      for (int32_t j = 0; j < routed.k() && !routed.Idle(t); ++j) {
        int64_t& load = held[static_cast<size_t>(routed.Choice(t, j))];
        // Admitted if and only if the load before it is below the rounded share.
        ASSERT_EQ(routed.Kept(t, j), static_cast<double>(load) + 1e-9 < share);
        load += routed.Kept(t, j);
      }
    }
  }
}

TEST(ReferenceRouters, OverflowFindsRoomInTimeOrder) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    RoutingSpec spec = Small(RouterPolicy::kGreedyOverflow, seed);
    spec.pool = rules::testing::PoolUnit::kMicrobatch;
    spec.quantum = 0;
    const Routed routed(spec);
    std::vector<int64_t> held(static_cast<size_t>(routed.experts()), 0);
    for (int32_t t = 0; t < routed.tokens(); ++t) {
      // No available expert may be better than a chosen expert, and no available expert remains
      // unused.
      double worst = std::numeric_limits<double>::infinity(), missed = -worst;
      int taken = 0;
      for (int32_t e = 0; e < routed.experts() && !routed.Idle(t); ++e) {
        if (routed.InMap(t, e)) {
          ++taken;
          worst = std::min(worst, routed.Logit(t, e));
        } else if (held[static_cast<size_t>(e)] < routed.routing().capacity()) {
          missed = std::max(missed, routed.Logit(t, e));
        }
      }
      if (taken == routed.k()) {
        ASSERT_GE(worst, missed);
      } else {
        ASSERT_EQ(missed, -std::numeric_limits<double>::infinity());
      }
      for (int32_t e = 0; e < routed.experts(); ++e)
        held[static_cast<size_t>(e)] += routed.InMap(t, e);
    }
  }
}

// Tests the best sum over all balanced assignments of a few tokens to two experts, by exhaustive
// search.
TEST(ReferenceRouters, AuctionReachesTheBestBalancedSum) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    RoutingSpec spec;
    spec.policy = RouterPolicy::kAuction;
    spec.seed = seed;
    spec.sequences = 1;
    spec.length = 8 + static_cast<int>(seed % 5);
    spec.experts = 2;
    spec.top_k = 1;
    const Routed routed(spec);
    const int n = routed.tokens(), limit = (n + 1) / 2;
    double best = -HUGE_VAL, sum = 0;
    for (uint32_t set = 0; set < (1u << n); ++set) {
      double value = 0;
      for (int t = 0; t < n; ++t) value += routed.Logit(t, (set >> t) & 1u ? 1 : 0);
      const int ones = std::popcount(set);
      if (ones <= limit && n - ones <= limit) best = std::max(best, value);
    }
    std::vector<int> load(2, 0);
    for (int32_t t = 0; t < n; ++t) {
      for (int32_t e = 0; e < 2; ++e) {
        if (!routed.InMap(t, e)) continue;
        ++load[static_cast<size_t>(e)];
        sum += routed.Logit(t, e);
      }
    }
    EXPECT_LE(std::max(load[0], load[1]), limit);
    EXPECT_EQ(load[0] + load[1], n);
    EXPECT_GE(sum, best - n * 1e-3 - 1e-9);  // within n epsilon: Bertsekas' bound
  }
}

TEST(ReferenceRouters, BalancingBalances) {
  for (RouterPolicy policy : {RouterPolicy::kSinkhorn, RouterPolicy::kFittedBias}) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      RoutingSpec spec;
      spec.seed = seed;
      spec.shape = rules::testing::ScoreShape::kSkewed;
      spec.length = 128;
      spec.top_k = 1;
      spec.router.function = ScoreFunction::kSoftmax;
      spec.router.iterations = 60;
      const auto largest = [&](RouterPolicy of) {
        spec.policy = of;
        const SyntheticRouting routing(spec);
        std::vector<int> load(8, 0);
        for (int32_t e : routing.result().indices) ++load[static_cast<size_t>(e)];
        return *std::max_element(load.begin(), load.end());
      };
      EXPECT_LT(largest(policy), 0.8 * largest(RouterPolicy::kTokenChoice)) << PolicyName(policy);
    }
  }
}

TEST(ReferenceRouters, ScoresThatAreNotFiniteAreRoutedSomewhere) {
  for (RouterPolicy policy : AllPolicies()) {
    RoutingSpec spec = RandomSpec(policy, 3);
    spec.sequences = 2;
    spec.length = 31;
    const SyntheticRouting routing(spec);
    RouterBatch batch = routing.batch();
    const double poison[] = {std::nan(""), HUGE_VAL, -HUGE_VAL};
    for (size_t i = 0; i < batch.logits.size(); i += 5) batch.logits[i] = poison[i % 3];
    const auto E = static_cast<size_t>(batch.experts);
    for (size_t e = 0; e < E; ++e) batch.logits[e] = std::nan("");
    const RouterResult result = Route(batch, policy, routing.parameters());
    for (int32_t e : result.indices) {
      ASSERT_GE(e, 0) << PolicyName(policy);
      ASSERT_LT(e, batch.experts) << PolicyName(policy);
    }
  }
}

}  // namespace
}  // namespace plumbline::analysis
