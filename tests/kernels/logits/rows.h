// Logits of two sides as stored in their formats, and comparison of measured rows with their
// definitions.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "base/half.h"
#include "kernels/logits/pair.h"
#include "tests/kernels/logits/reference.h"

namespace plumbline {

inline constexpr float kMasked = -INFINITY;

inline float Rounded(float z, DType t) {
  if (t == DType::kBF16) return BF16ToFloat(FloatToBF16(z));
  return t == DType::kF16 ? F16ToFloat(FloatToF16(z)) : z;
}

inline std::vector<std::byte> Packed(const std::vector<float>& z, DType t) {
  std::vector<std::byte> out(z.size() * DTypeSize(t));
  for (size_t i = 0; i < z.size(); ++i) {
    if (t == DType::kF32) {
      std::memcpy(&out[4 * i], &z[i], 4);
    } else {
      const uint16_t code = t == DType::kBF16 ? FloatToBF16(z[i]) : FloatToF16(z[i]);
      std::memcpy(&out[2 * i], &code, 2);
    }
  }
  return out;
}

// Logits of both sides as stored in their formats.
struct Rows {
  int64_t count, vocabulary;
  DType dtype[2];
  std::vector<float> z[2];
  std::vector<int64_t> tokens;

  Rows(int64_t t, int64_t v, DType train = DType::kF32, DType rollout = DType::kF32)
      : count(t), vocabulary(v), dtype{train, rollout} {
    for (auto& side : z) side.assign(static_cast<size_t>(t * v), 0);
    for (int64_t i = 0; i < t; ++i) tokens.push_back((i * 7919) % v);
  }

  // mu: a few likely tokens among many; pi: scale * mu + offset + noise.
  Rows& Draw(uint64_t seed, float noise, float scale = 1, float offset = 0, float spread = 3) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < z[0].size(); ++i) {
      const float mu = Rounded(spread * normal(random), dtype[1]);
      z[1][i] = mu;
      z[0][i] = Rounded(scale * mu + offset + noise * normal(random), dtype[0]);
    }
    return *this;
  }

  float& At(int side, int64_t row, int64_t i) {
    return z[side][static_cast<size_t>(row * vocabulary + i)];
  }

  LogitRow Expected(int64_t row) const {
    const auto at = static_cast<std::ptrdiff_t>(row * vocabulary);
    const auto cut = [&](int s) {
      return std::vector<float>(z[s].begin() + at, z[s].begin() + at + vocabulary);
    };
    return LogitReferenceRow(cut(0), cut(1), tokens[static_cast<size_t>(row)]).Measure();
  }

  std::vector<LogitRow> Measure(bool detailed = true) const {
    const auto a = Packed(z[0], dtype[0]), b = Packed(z[1], dtype[1]);
    LogitInput in;
    in.train = TensorView::Dense(a.data(), dtype[0], count, vocabulary);
    in.rollout = TensorView::Dense(b.data(), dtype[1], count, vocabulary);
    in.tokens = TensorView::Dense(tokens.data(), DType::kI64, count);
    EXPECT_TRUE(CheckLogits(in).ok()) << CheckLogits(in);
    const LogitPlan plan = PlanLogits(in);
    std::vector<LogitRow> rows;
    for (int64_t i = 0; i < count; ++i) rows.push_back(MeasureLogitRow(plan, i, detailed));
    return rows;
  }
};

// Allowed distance of a figure from the expected one: relative or, near zero, absolute.
struct Bound {
  double relative, absolute;
};

inline ::testing::AssertionResult Near(double found, double expected, Bound bound) {
  if (std::isnan(expected) && std::isnan(found)) return ::testing::AssertionSuccess();
  if (found == expected) return ::testing::AssertionSuccess();
  const double most = std::max(bound.absolute, bound.relative * std::fabs(expected));
  if (std::isfinite(expected) && std::fabs(found - expected) <= most)
    return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << found << ", expected " << expected << " to " << bound.relative;
}

inline ::testing::AssertionResult Near(double found, double expected, double relative,
                                       double absolute) {
  return Near(found, expected, Bound{relative, absolute});
}

struct RowBounds {
  Bound lse, entropy, varentropy, logprob, kl, max_abs_delta, slope, fit_r2;
  Bound js, total_variation, downward, log_moments;  // detailed figures
};

// Bounds for rows in f64. `absolute`: for values near zero, from the rounding of logits of that
// size.
inline RowBounds InDoubles(double relative = 1e-9, double absolute = 1e-15) {
  const Bound usual{relative, absolute}, of_logs{relative, 1e-13};
  return {.lse = usual,
          .entropy = of_logs,
          .varentropy = of_logs,
          .logprob = of_logs,
          .kl = usual,
          .max_abs_delta = usual,
          .slope = usual,
          .fit_r2 = usual,
          .js = usual,
          .total_variation = usual,
          .downward = usual,
          .log_moments = of_logs};
}

inline void ExpectCounts(const LogitRow& found, const LogitRow& expected) {
  EXPECT_EQ(found.usable, expected.usable);
  EXPECT_EQ(found.common, expected.common);
  for (int s = 0; s < 2; ++s) {
    EXPECT_EQ(found.finite[s], expected.finite[s]);
    EXPECT_EQ(found.only[s], expected.only[s]);
    EXPECT_EQ(found.non_finite[s], expected.non_finite[s]);
  }
  EXPECT_EQ(found.token, expected.token);
}

// Also for a row that is not usable, where figures are NaN. Checks all but the intercept.
inline void ExpectFigures(const LogitRow& found, const LogitRow& expected, const RowBounds& b) {
  for (int s = 0; s < 2; ++s) {
    EXPECT_TRUE(Near(found.lse[s], expected.lse[s], b.lse));
    EXPECT_TRUE(Near(found.entropy[s], expected.entropy[s], b.entropy));
    EXPECT_TRUE(Near(found.varentropy[s], expected.varentropy[s], b.varentropy));
    EXPECT_TRUE(Near(found.logprob[s], expected.logprob[s], b.logprob));
    EXPECT_TRUE(Near(found.lattice[s], expected.lattice[s], 0, 0));
  }
  EXPECT_TRUE(Near(found.kl_train_rollout, expected.kl_train_rollout, b.kl));
  EXPECT_TRUE(Near(found.kl_rollout_train, expected.kl_rollout_train, b.kl));
  EXPECT_TRUE(Near(found.max_abs_delta, expected.max_abs_delta, b.max_abs_delta));
  EXPECT_TRUE(Near(found.slope, expected.slope, b.slope));
  EXPECT_TRUE(Near(found.fit_r2, expected.fit_r2, b.fit_r2));
  EXPECT_EQ(found.top1_differs, expected.top1_differs);
  EXPECT_EQ(found.topk_common, expected.topk_common);
}

inline void ExpectRow(const LogitRow& found, const LogitRow& expected,
                      const RowBounds& bounds = InDoubles()) {
  ExpectCounts(found, expected);
  if (!expected.usable) {
    EXPECT_TRUE(std::isnan(found.kl_train_rollout));
    EXPECT_TRUE(std::isnan(found.lse[0]));
    return;
  }
  ExpectFigures(found, expected, bounds);
  EXPECT_TRUE(Near(found.intercept, expected.intercept, bounds.slope.relative, 1e-9));
}

inline void ExpectDetails(const LogitRow& found, const LogitRow& expected,
                          const RowBounds& b = InDoubles()) {
  EXPECT_TRUE(Near(found.js, expected.js, b.js));
  EXPECT_TRUE(Near(found.total_variation, expected.total_variation, b.total_variation));
  for (int k = 0; k < kLogitLambdas; ++k)
    EXPECT_TRUE(Near(found.downward[k], expected.downward[k], b.downward)) << k;
  for (int k = 0; k < kLogitThetas; ++k)
    EXPECT_TRUE(Near(found.log_moments[k], expected.log_moments[k], b.log_moments)) << k;
}

}  // namespace plumbline
