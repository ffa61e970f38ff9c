// Compares the selection and tie rule with a direct implementation of its definition.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "base/router/quick_choice.h"
#include "base/router/scores.h"
#include "tests/base/router_reference.h"

namespace plumbline {
namespace {

class Router {
 public:
  RouterChoice Choose(const RouterRule& rule, const std::vector<double>& x,
                      const std::vector<double>& bias = {}) {
    RouterChoice out;
    ChooseExperts(rule, x.data(), bias.empty() ? nullptr : bias.data(), scratch_.get(), &out);
    return out;
  }

 private:
  std::unique_ptr<RouterScratch> scratch_ = std::make_unique<RouterScratch>();
};

RouterRule RandomRule(std::mt19937& random) {
  RouterRule r;
  const int sizes[] = {1, 2, 3, 7, 8, 16, 60, 64, 128, 160};
  r.experts = sizes[random() % 10];
  const DType types[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kF64};
  r.dtype = types[random() % 4];
  r.function = static_cast<ScoreFunction>(random() % 3);
  r.has_bias = random() % 2 == 0;
  if (random() % 2 == 0) {
    for (int g : {8, 4, 3, 2}) {
      if (r.experts % g == 0) {
        r.groups = g;
        r.top_groups = 1 + static_cast<int>(random() % static_cast<unsigned>(g));
        r.group_score = static_cast<GroupScore>(random() % 3);
        break;
      }
    }
  }
  r.top_k = 1 + static_cast<int>(random() % static_cast<unsigned>(std::min(r.admitted(), 12)));
  return r;
}

TEST(RouterSelect, TheBestInOrderWhateverTheHint) {
  std::mt19937 random(11);
  for (int i = 0; i < 20000; ++i) {
    const int n = 1 + static_cast<int>(random() % (i % 4 == 0 ? kMaxExperts : 80));
    const int limit = 1 + static_cast<int>(random() % static_cast<uint32_t>(std::min(n, 33)));
    const uint32_t values = i % 3 == 0 ? 3 : 1000;  // few values: ties
    std::vector<double> key;
    std::vector<int32_t> index, expected(static_cast<size_t>(n));
    for (int e = 0; e < n; ++e) {
      const bool masked = i % 5 == 0 && n - e > limit && random() % 2 == 0;
      key.push_back(masked ? -HUGE_VAL : static_cast<double>(random() % values));
      index.push_back(3 * e);
      expected[static_cast<size_t>(e)] = e;
    }
    std::stable_sort(expected.begin(), expected.end(), [&](int32_t a, int32_t b) {
      return key[static_cast<size_t>(a)] > key[static_cast<size_t>(b)];
    });
    double hint = static_cast<double>(random() % 1200) - 100;
    internal::Ranked best[kMaxTopK + 2];
    const bool mapped = i % 2 == 0;
    internal::SelectBest(key.data(), mapped ? index.data() : nullptr, n, limit, &hint, best);
    for (int p = 0; p < limit; ++p) {
      const int32_t e = expected[static_cast<size_t>(p)];
      ASSERT_EQ(best[p].index, mapped ? 3 * e : e) << "n " << n << " limit " << limit;
      ASSERT_EQ(best[p].key, key[static_cast<size_t>(e)]);
    }
  }
}

TEST(RouterScores, FollowsTheDefinition) {
  std::mt19937 random(17);
  Router router;
  int tied = 0;
  int compared = 0;
  int none = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    const RouterRule rule = RandomRule(random);
    std::normal_distribution<double> normal(0, trial % 3 == 0 ? 0.05 : 2);
    std::vector<double> x(static_cast<size_t>(rule.experts));
    std::vector<double> bias(x.size());
    const int masked = random() % 3 == 0 ? 2 + static_cast<int>(random() % 6) : 0;
    for (double& v : x) {
      v = RoundToFormat(normal(random), rule.dtype);
      if (masked > 0 && random() % static_cast<unsigned>(masked) == 0) v = -INFINITY;
    }
    for (double& v : bias) v = RoundToFormat(0.1 * normal(random), DType::kF32);
    const RouterReference expected = JudgeByDefinition(rule, x, bias);
    // If library and portable exp may be on different sides of a threshold, nothing is checked.
    if (expected.closeness < 1e-6) continue;
    const RouterChoice got = router.Choose(rule, x, rule.has_bias ? bias : std::vector<double>{});
    ++compared;
    ASSERT_EQ(got.finite, !expected.no_choice) << trial;
    none += expected.no_choice ? 1 : 0;
    if (expected.no_choice) continue;
    ASSERT_EQ(got.tied, expected.tied) << trial;
    ASSERT_EQ(got.count, rule.top_k);
    if (expected.tied) {
      ++tied;
      continue;
    }
    std::vector<int> chosen(got.expert, got.expert + got.count);
    std::vector<int> wanted = expected.chosen;
    ASSERT_EQ(got.rank_order_known, expected.order_known) << trial;
    if (!got.rank_order_known) {
      std::sort(chosen.begin(), chosen.end());
      std::sort(wanted.begin(), wanted.end());
    }
    ASSERT_EQ(chosen, wanted) << trial;
    for (int n = 0; n < got.count; ++n) {
      ASSERT_NEAR(got.value[n], expected.value[static_cast<size_t>(got.expert[n])], 1e-13);
    }
  }
  EXPECT_GT(compared, 19000);
  EXPECT_GT(tied, 300);
  EXPECT_GT(none, 300);
  EXPECT_LT(tied, compared / 2);
}

RouterRule Identity(int experts, int k, DType dtype) {
  RouterRule r;
  r.experts = experts;
  r.top_k = k;
  r.dtype = dtype;
  return r;
}

TEST(RouterScores, ATieIsTwoUlpWideToTheBit) {
  Router router;
  const RouterRule rule = Identity(2, 1, DType::kF32);
  EXPECT_TRUE(router.Choose(rule, {1.0 + 0x1p-22, 1.0}).tied);             // 2 ulp
  EXPECT_FALSE(router.Choose(rule, {1.0 + 0x1p-22 + 0x1p-23, 1.0}).tied);  // 3 ulp
  EXPECT_TRUE(router.Choose(Identity(2, 1, DType::kBF16), {1.015625, 1.0}).tied);
  EXPECT_FALSE(router.Choose(Identity(2, 1, DType::kBF16), {1.0234375, 1.0}).tied);
}

TEST(RouterScores, EqualsGoByIndexAndAreTied) {
  Router router;
  const RouterChoice c = router.Choose(Identity(4, 2, DType::kF32), {0.0, 5, -0.0, 0});
  EXPECT_EQ(c.expert[0], 1);
  EXPECT_EQ(c.expert[1], 0);
  EXPECT_TRUE(c.tied);
  EXPECT_TRUE(c.rank_order_known);
  EXPECT_EQ(c.margin, 0);
  EXPECT_EQ(c.best_margin, 5);
}

TEST(RouterScores, AllChosenIsNeverTied) {
  Router router;
  const RouterChoice c = router.Choose(Identity(3, 3, DType::kBF16), {1, 1, 1});
  EXPECT_FALSE(c.tied);
  EXPECT_FALSE(c.rank_order_known);
  EXPECT_TRUE(std::isinf(c.margin));
}

TEST(RouterScores, PoisonedRowsHaveNoChoice) {
  Router router;
  for (double bad : {double{NAN}, double{INFINITY}}) {
    for (size_t at : {0u, 3u, 39u}) {
      for (ScoreFunction f :
           {ScoreFunction::kIdentity, ScoreFunction::kSoftmax, ScoreFunction::kSigmoid}) {
        RouterRule rule = Identity(40, 2, DType::kF32);
        rule.function = f;
        std::vector<double> x(40, 0.5);
        x[at] = bad;
        EXPECT_FALSE(router.Choose(rule, x).finite);
        rule.has_bias = true;
        EXPECT_FALSE(router.Choose(rule, std::vector<double>(40, 0.5), x).finite);
        x[at] = -INFINITY;  // a bias masks nothing
        EXPECT_FALSE(router.Choose(rule, std::vector<double>(40, 0.5), x).finite);
      }
    }
  }
}

// The rest of a masked row is chosen from as if the masked experts did not exist.
TEST(RouterScores, MinusInfinityMasksAnExpert) {
  Router router;
  for (ScoreFunction f :
       {ScoreFunction::kIdentity, ScoreFunction::kSoftmax, ScoreFunction::kSigmoid}) {
    RouterRule rule = Identity(5, 2, DType::kF32);
    rule.function = f;
    RouterChoice c = router.Choose(rule, {-INFINITY, 1, -INFINITY, 3, 2});
    ASSERT_TRUE(c.finite);
    EXPECT_EQ(c.expert[0], 3);
    EXPECT_EQ(c.expert[1], 4);
    EXPECT_FALSE(c.tied);
    EXPECT_TRUE(c.rank_order_known);
    // Exactly k candidates: no other could be tied.
    c = router.Choose(rule, {-INFINITY, 1, -INFINITY, 1, -INFINITY});
    ASSERT_TRUE(c.finite);
    EXPECT_FALSE(c.tied);
    EXPECT_FALSE(c.rank_order_known);
    EXPECT_TRUE(std::isinf(c.margin));
    EXPECT_EQ(c.ranked, 2);
    // Ties among the remaining candidates are ties.
    EXPECT_TRUE(router.Choose(rule, {-INFINITY, 1, 1, 1, -INFINITY}).tied);
    EXPECT_FALSE(router.Choose(rule, {-INFINITY, 1, -INFINITY, -INFINITY, -INFINITY}).finite);
    // A bias does not unmask an expert.
    rule.has_bias = true;
    c = router.Choose(rule, {-INFINITY, 1, -INFINITY, 3, 2}, {1e6, 0, 1e6, 0, 0});
    ASSERT_TRUE(c.finite);
    EXPECT_EQ(c.expert[0], 3);
    EXPECT_EQ(c.expert[1], 4);
  }
  // A masked group is not admitted while another has candidates.
  RouterRule rule = Identity(6, 1, DType::kF32);
  rule.groups = 3;
  rule.top_groups = 1;
  rule.group_score = GroupScore::kSum2;
  const RouterChoice c = router.Choose(rule, {-INFINITY, 9, 1, 2, -INFINITY, -INFINITY});
  ASSERT_TRUE(c.finite);
  EXPECT_EQ(c.expert[0], 3);
  EXPECT_FALSE(c.tied);
}

// The fast path gives the same result as the full one, also near ties and in the far tail of a
// softmax.
TEST(RouterScores, ChoiceAloneIsTheSameChoice) {
  std::mt19937 random(23);
  Router router;
  auto scratch = std::make_unique<RouterScratch>();
  for (int trial = 0; trial < 40000; ++trial) {
    const RouterRule rule = RandomRule(random);
    const double scale[] = {0.05, 1, 8, 300};
    std::normal_distribution<double> normal(0, scale[trial % 4]);
    std::vector<double> x(static_cast<size_t>(rule.experts));
    std::vector<double> bias(x.size());
    for (double& v : x) v = RoundToFormat(normal(random), rule.dtype);
    for (double& v : bias) v = 0.1 * normal(random);
    for (size_t i = 1; i < x.size(); ++i) {  // gaps of a few ulp, around the tolerance
      if (random() % 3 != 0) continue;
      x[i] = RoundToFormat(
          x[i - 1] + static_cast<double>(random() % 8) * UlpOf(x[i - 1], rule.dtype), rule.dtype);
    }
    if (trial % 7 == 0) x[random() % x.size()] = -INFINITY;
    const double* b = rule.has_bias ? bias.data() : nullptr;
    const RouterChoice full = router.Choose(rule, x, rule.has_bias ? bias : std::vector<double>{});
    RouterChoice quick;
    ChooseOnly(rule, x.data(), b, scratch.get(), &quick);
    ASSERT_EQ(quick.finite, full.finite) << trial;
    if (!full.finite) continue;
    ASSERT_EQ(quick.tied, full.tied) << trial;
    ASSERT_EQ(quick.rank_order_known, full.rank_order_known) << trial;
    ASSERT_EQ(quick.ranked, full.ranked) << trial;
    for (int n = 0; n < full.ranked; ++n) ASSERT_EQ(quick.expert[n], full.expert[n]) << trial;
  }
}

TEST(RouterScores, ExtremeFiniteRowsStayFinite) {
  Router router;
  for (ScoreFunction f :
       {ScoreFunction::kIdentity, ScoreFunction::kSoftmax, ScoreFunction::kSigmoid}) {
    RouterRule rule = Identity(3, 1, DType::kF64);
    rule.function = f;
    const RouterChoice c = router.Choose(rule, {-1e308, 1e308, 0});
    EXPECT_TRUE(c.finite);
    EXPECT_EQ(c.expert[0], 1);
    EXPECT_FALSE(std::isnan(c.margin));
  }
}

}  // namespace
}  // namespace plumbline
