// Compares the CPU reference with a reference written for readability. routing/pools_test.cc tests
// pools.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "kernels/routing/routing.h"
#include "tests/base/router_reference.h"
#include "tests/kernels/routing/case.h"
#include "tests/kernels/routing/stats_equal.h"

namespace plumbline {
namespace {

struct Expected {
  RoutingStats stats;
  double closeness = INFINITY;  // of the closest tie decision
};

double LogSumExp(const std::vector<double>& x) {
  const double top = *std::max_element(x.begin(), x.end());
  double z = 0;
  for (double v : x) z += std::exp(v - top);
  return top + std::log(z);
}

double Entropy(const RoutingInput& in, const std::vector<double>& x) {
  std::vector<double> p = x;
  if (in.scores_are_logits || in.score_function == ScoreFunction::kIdentity) {
    const double lse = LogSumExp(x);
    for (double& v : p) v = std::exp(v - lse);
  } else {
    double sum = 0;
    for (double& v : p) v = v == -INFINITY ? 0 : v;
    for (double v : p) sum += v < 0 ? NAN : v;
    for (double& v : p) v /= sum;
  }
  double h = 0;
  for (double v : p) h -= v > 0 ? v * std::log(v) : v;
  return h;
}

class Reference {
 public:
  explicit Reference(const RoutingInput& in) : in_(in) {
    rule_.experts = static_cast<int>(in.scores.shape[1]);
    rule_.top_k = in.top_k;
    rule_.dtype = in.scores.dtype;
    rule_.function = in.scores_are_logits ? in.score_function : ScoreFunction::kIdentity;
    rule_.has_bias = in.expert_bias.present();
    rule_.groups = in.groups;
    rule_.top_groups = in.top_groups;
    rule_.group_score = in.group_score;
  }

  Expected Run() {
    const auto e = static_cast<size_t>(rule_.experts);
    out_.stats.load.assign(e, 0);
    out_.stats.refused.assign(e, 0);
    out_.stats.tokens = static_cast<uint64_t>(in_.scores.shape[0]);
    for (int64_t i = 0; in_.position.present() && i < in_.scores.shape[0]; ++i) {
      if (!Padding(i)) longest_ = std::max(longest_, Int64At(in_.position, i) + 1);
    }
    if (in_.position.present()) out_.stats.drop_histogram.assign(16, 0);
    if (in_.position.present()) out_.stats.offered_histogram.assign(16, 0);
    for (int64_t i = 0; i < in_.scores.shape[0]; ++i) {
      const uint64_t before = out_.stats.choices;
      Row(i);
      if (!in_.position.present() || Padding(i)) continue;
      out_.stats.offered_histogram[static_cast<size_t>(Int64At(in_.position, i) * 16 / longest_)] +=
          out_.stats.choices - before;
    }
    RoutingStats& s = out_.stats;
    s.entropy_mean = entropy_ / static_cast<double>(entropies_) / std::log(rule_.experts);
    if (entropies_ == 0 || e == 1) s.entropy_mean = NAN;
    s.margin_mean = margin_ / static_cast<double>(margins_);
    s.z_mean = in_.scores_are_logits || in_.score_function == ScoreFunction::kIdentity
                   ? z_ / static_cast<double>(finite_)
                   : NAN;
    s.logit_abs_max = finite_ > 0 ? abs_max_ : NAN;
    return out_;
  }

 private:
  bool Padding(int64_t i) const {
    return in_.padding_mask.present() && Int64At(in_.padding_mask, i) != 0;
  }

  void Row(int64_t i) {
    std::vector<double> x;
    std::vector<double> b;
    bool finite = true;
    for (int64_t e = 0; e < rule_.experts; ++e) {
      x.push_back(DoubleAt(in_.scores, i, e));
      b.push_back(rule_.has_bias ? DoubleAt(in_.expert_bias, e) : 0);
      const bool masked = x.back() == -INFINITY;
      finite = finite && (masked || (std::isfinite(x.back()) && std::isfinite(b.back())));
    }
    RouterReference own;
    if (finite) own = JudgeByDefinition(rule_, x, b);
    finite = finite && !own.no_choice;
    out_.closeness = std::min(out_.closeness, own.closeness);
    const bool padding = Padding(i);
    RoutingStats& s = out_.stats;
    if (padding) {
      ++s.padding;
    } else if (!finite) {
      ++s.non_finite;
    } else {
      Means(x, own);
      s.tied += own.tied ? 1 : 0;
    }
    Recorded(i, padding, finite, own);
  }

  void Means(const std::vector<double>& x, const RouterReference& own) {
    ++finite_;
    for (double v : x) abs_max_ = std::max(abs_max_, v == -INFINITY ? 0 : std::fabs(v));
    const double h = Entropy(in_, x);
    if (!std::isnan(h)) {
      entropy_ += h;
      ++entropies_;
    }
    z_ += LogSumExp(x) * LogSumExp(x);
    margin_ += own.best_margin;
    margins_ += own.has_second ? 1 : 0;
  }

  bool InMap(int64_t i, int64_t e) const {
    const bool zero = in_.probs.present() && in_.probs.shape[1] == rule_.experts &&
                      DoubleAt(in_.probs, i, e) == 0;
    return Int64At(in_.routing_map, i, e) != 0 && !zero;
  }

  void Refuse(int64_t i, int64_t e) {
    ++out_.stats.dropped;
    ++out_.stats.refused[static_cast<size_t>(e)];
    if (in_.position.present()) {
      ++out_.stats.drop_histogram[static_cast<size_t>(Int64At(in_.position, i) * 16 / longest_)];
    }
  }

  void Recorded(int64_t i, bool padding, bool finite, const RouterReference& own) {
    RoutingStats& s = out_.stats;
    const std::set<int64_t> mine(own.chosen.begin(), own.chosen.end());
    const bool judged = !padding && finite && !own.tied;
    std::multiset<int64_t> recorded;
    if (in_.topk_indices.present()) {
      for (int64_t j = 0; j < rule_.top_k; ++j) {
        const int64_t e = Int64At(in_.topk_indices, i, j);
        if (e == -1) continue;
        recorded.insert(e);
        const bool kept = in_.keep_mask.present()     ? Int64At(in_.keep_mask, i, j) != 0
                          : in_.routing_map.present() ? InMap(i, e)
                                                      : true;
        if (kept) {
          ++s.load[static_cast<size_t>(e)];
        } else if (!padding) {
          Refuse(i, e);
        }
      }
      if (!padding) s.choices += recorded.size();
      const std::multiset<int64_t> wanted(mine.begin(), mine.end());
      if (judged && recorded != wanted) ++s.unexplained;
    } else if (in_.routing_map.present()) {
      for (int64_t e = 0; e < rule_.experts; ++e) {
        if (InMap(i, e)) recorded.insert(e);
      }
      for (int64_t e : recorded) ++s.load[static_cast<size_t>(e)];
      if (!padding) s.choices += recorded.size();
      if (!judged) return;
      if (!std::includes(mine.begin(), mine.end(), recorded.begin(), recorded.end())) {
        ++s.unexplained;
        return;
      }
      for (int64_t e : mine) {
        if (recorded.count(e) == 0) {
          ++s.choices;
          Refuse(i, e);
        }
      }
    } else if (finite) {
      for (int64_t e : mine) ++s.load[static_cast<size_t>(e)];
      // If experts are equal, rounding decides the own choice; only the lowest-index rule is exact.
      if (!padding) s.choices += mine.size();
    }
  }

  const RoutingInput& in_;
  RouterRule rule_;
  Expected out_;
  int64_t longest_ = 0;
  uint64_t finite_ = 0;
  uint64_t entropies_ = 0;
  uint64_t margins_ = 0;
  double entropy_ = 0;
  double margin_ = 0;
  double z_ = 0;
  double abs_max_ = 0;
};

void ExpectMean(double got, double expected, const char* what) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(got)) << what << " " << got;
  } else {
    EXPECT_NEAR(got, expected, 1e-11 * (1 + std::fabs(expected))) << what;
  }
}

TEST(RoutingHost, AgreesWithTheReferenceOnRandomCalls) {
  int compared = 0;
  RoutingStats sum;
  for (uint32_t seed = 0; seed < 800; ++seed) {
    SCOPED_TRACE(seed);
    const RoutingCase c = CaseMaker(seed).Make();
    const Expected expected = Reference(c.in).Run();
    RoutingStats got;
    const absl::Status status = SummariseRouting(c.in, &got);
    ASSERT_TRUE(status.ok()) << status;
    if (expected.closeness < 1e-7) continue;
    ++compared;
    const RoutingStats& want = expected.stats;
    ASSERT_EQ(got.tokens, want.tokens);
    ASSERT_EQ(got.padding, want.padding);
    ASSERT_EQ(got.tied, want.tied);
    ASSERT_EQ(got.non_finite, want.non_finite);
    ASSERT_EQ(got.unexplained, want.unexplained);
    ASSERT_EQ(got.choices, want.choices);
    ASSERT_EQ(got.dropped, want.dropped);
    if (c.in.topk_indices.present() || c.in.routing_map.present() || want.tied == 0) {
      ASSERT_EQ(got.load, want.load);
    }
    ASSERT_EQ(got.refused, want.refused);
    ASSERT_EQ(got.drop_histogram, want.drop_histogram);
    ASSERT_EQ(got.offered_histogram, want.offered_histogram);
    ExpectMean(got.entropy_mean, want.entropy_mean, "entropy");
    ExpectMean(got.margin_mean, want.margin_mean, "margin");
    ExpectMean(got.z_mean, want.z_mean, "z");
    ExpectMean(got.logit_abs_max, want.logit_abs_max, "max");
    if (testing::Test::HasFailure()) return;
    sum.tied += got.tied;
    sum.unexplained += got.unexplained;
    sum.dropped += got.dropped;
    sum.non_finite += got.non_finite;
    sum.padding += got.padding;
  }
  // The cases reach every counter.
  EXPECT_GT(compared, 700);
  EXPECT_GT(sum.tied, 1000u);
  EXPECT_GT(sum.unexplained, 1000u);
  EXPECT_GT(sum.dropped, 1000u);
  EXPECT_GT(sum.non_finite, 100u);
  EXPECT_GT(sum.padding, 1000u);
}

TEST(RoutingHost, LayoutDoesNotMatter) {
  RoutingCase c;
  std::mt19937 random(4);
  std::vector<double> values(300 * 64);
  for (double& v : values)
    v = RoundToFormat(std::normal_distribution<double>()(random), DType::kBF16);
  const auto f = [&](int64_t i, int64_t j) { return values[static_cast<size_t>(i * 64 + j)]; };
  RoutingInput in;
  in.top_k = 4;
  in.score_function = ScoreFunction::kSoftmax;
  RoutingStats first;
  for (Layout layout : {Layout::kDense, Layout::kTransposed, Layout::kNegative, Layout::kPadded,
                        Layout::kUnaligned}) {
    in.scores = MakeTensor(&c, DType::kBF16, 300, 64, layout, f);
    RoutingStats stats;
    ASSERT_TRUE(SummariseRouting(in, &stats).ok());
    if (layout == Layout::kDense) first = stats;
    EXPECT_EQ(stats.load, first.load);
    EXPECT_EQ(stats.entropy_mean, first.entropy_mean);
    EXPECT_EQ(stats.z_mean, first.z_mean);
    EXPECT_EQ(stats.margin_mean, first.margin_mean);
  }
}

TEST(RoutingHost, ThreadsDoNotChangeABit) {
  for (uint32_t seed = 0; seed < 3; ++seed) {
    CaseOptions options;
    options.max_tokens = 40000;
    CaseMaker maker(seed, options);
    RoutingCase c = maker.Make();
    while (c.in.scores.shape[0] < 20000) c = maker.Make();
    RoutingStats one;
    ASSERT_TRUE(SummariseRouting(c.in, &one).ok());
    for (int threads : {2, 3, 8}) {
      RoutingStats many;
      ASSERT_TRUE(SummariseRouting(c.in, &many, threads).ok());
      ExpectSame(many, one);
    }
  }
}

// Experts 2 and 3 of 4 are masked: the rest of the row is measured as a row of two.
TEST(RoutingHost, MaskedExpertsAreNoCandidates) {
  RoutingCase c;
  RoutingInput in;
  in.top_k = 2;
  in.score_function = ScoreFunction::kSoftmax;
  in.scores = MakeTensor(&c, DType::kF32, 3, 4, Layout::kDense, [](int64_t i, int64_t j) {
    return j >= 4 - i ? -INFINITY : static_cast<double>(j);
  });
  in.topk_indices = MakeTensor(&c, DType::kI32, 3, 2, Layout::kDense,
                               [](int64_t i, int64_t j) { return static_cast<double>(3 - i - j); });
  RoutingStats stats;
  ASSERT_TRUE(SummariseRouting(in, &stats).ok());
  EXPECT_EQ(stats.non_finite, 0u);
  EXPECT_EQ(stats.unexplained, 0u);
  EXPECT_EQ(stats.tied, 0u);  // row 2 chooses all remaining experts
  EXPECT_EQ(stats.logit_abs_max, 3.0);
  const auto row = [](double n) {  // logsumexp(0 .. n-1)
    double z = 0;
    for (int i = 0; i < n; ++i) z += std::exp(i);
    return std::log(z);
  };
  const double z = (row(4) * row(4) + row(3) * row(3) + row(2) * row(2)) / 3;
  EXPECT_NEAR(stats.z_mean, z, 1e-12);
  in.top_k = 3;
  in.topk_indices = {};
  ASSERT_TRUE(SummariseRouting(in, &stats).ok());
  EXPECT_EQ(stats.non_finite, 1u);  // two candidates cannot give three choices
}

TEST(RoutingHost, OneNaNSpoilsOnlyItsRow) {
  RoutingCase c;
  RoutingInput in;
  in.top_k = 1;
  in.scores = MakeTensor(&c, DType::kF32, 600, 4, Layout::kDense, [](int64_t i, int64_t j) {
    return i == 300 && j == 2 ? NAN : static_cast<double>(j);
  });
  RoutingStats stats;
  ASSERT_TRUE(SummariseRouting(in, &stats).ok());
  EXPECT_EQ(stats.non_finite, 1u);
  EXPECT_EQ(stats.choices, 599u);
  EXPECT_EQ(stats.load, (std::vector<uint32_t>{0, 0, 0, 599}));
  EXPECT_EQ(stats.margin_mean, 1.0);
  EXPECT_EQ(stats.logit_abs_max, 3.0);
  EXPECT_TRUE(std::isfinite(stats.entropy_mean) && std::isfinite(stats.z_mean));
}

TEST(RoutingHost, NoFiniteRowGivesNaNMeans) {
  RoutingCase c;
  RoutingInput in;
  in.top_k = 1;
  in.scores =
      MakeTensor(&c, DType::kF32, 3, 4, Layout::kDense, [](int64_t, int64_t) { return NAN; });
  RoutingStats stats;
  ASSERT_TRUE(SummariseRouting(in, &stats).ok());
  EXPECT_EQ(stats.non_finite, 3u);
  EXPECT_TRUE(std::isnan(stats.entropy_mean) && std::isnan(stats.margin_mean) &&
              std::isnan(stats.z_mean) && std::isnan(stats.logit_abs_max));
}

}  // namespace
}  // namespace plumbline
