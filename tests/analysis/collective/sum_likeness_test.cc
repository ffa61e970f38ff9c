// Tests results without a matching candidate: sums in some order, or something else.
#include "analysis/collective/sum_likeness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <random>

#include "analysis/collective/errors.h"
#include "analysis/statistics/bias_stream.h"
#include "base/half.h"

namespace plumbline::analysis {
namespace {

// Columns of `ranks` values around `mean`, each summed in one shuffled order by bf16 hops.
struct Made {
  ReductionCase c;
  std::vector<int32_t> columns;

  Made(int ranks, int samples, double mean, RoundingMode mode = RoundingMode::kNearestEven) {
    std::mt19937_64 random(7);
    std::normal_distribution<double> normal;
    c.ranks = ranks;
    c.samples = samples;
    c.input_dtype = c.output_dtype = c.wire_dtype = DType::kBF16;
    c.wire_declared = true;
    c.inputs.resize(static_cast<size_t>(ranks) * static_cast<size_t>(samples));
    for (int i = 0; i < samples; ++i) {
      const double size = std::exp(normal(random));
      for (int r = 0; r < ranks; ++r)
        c.inputs[static_cast<size_t>(r * samples + i)] =
            RoundToFormat(size * (mean + 0.3 * normal(random)), DType::kBF16);
    }
    std::vector<int> order(static_cast<size_t>(ranks));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    for (int i = 0; i < samples; ++i) {
      double sum = 0;
      for (const int r : order) sum = RoundToFormat(sum + c.input(r, i), DType::kBF16, mode);
      c.output.push_back(sum);
      columns.push_back(i);
    }
  }
  SumLikeness Judged() const {
    SumLikeness likeness;
    likeness.Take(c, columns);
    return likeness;
  }
};

TEST(SumLikeness, ChainsInUnknownOrdersExplainTheirBias) {
  const Made made(512, 128, 1);
  EXPECT_TRUE(made.Judged().Explains(-24, 5));
  EXPECT_FALSE(made.Judged().Explains(24, 5));
  EXPECT_NE(made.Judged().Words(-24, 5).find("bf16 partial sums, one after the other"),
            std::string::npos);
}

TEST(SumLikeness, RoundingUpwardAndTowardZeroAreKnown) {
  EXPECT_TRUE(Made(64, 128, 1, RoundingMode::kUp).Judged().Explains(10, 5));
  EXPECT_TRUE(Made(64, 128, 1, RoundingMode::kTowardZero).Judged().Explains(-10, 5));
}

TEST(SumLikeness, ClippedValuesAreNoSums) {
  Made made(64, 128, 0);
  for (double& y : made.c.output) y = std::clamp(y, -1.0, 1.0);
  EXPECT_FALSE(made.Judged().Explains(-20, 5));
  EXPECT_EQ(made.Judged().Explanation().find("clipped: "), 0u) << made.Judged().Explanation();
}

// Tests sums toward zero of 256 cancelling addends, whose range is so wide that it includes correct
// sums, clipped or not: the arithmetic must also predict their position.
TEST(SumLikeness, ASpanThatHoldsAnythingAccusesNone) {
  int biased = 0;
  for (const double share : {0.2, 0.33, 0.6}) {
    Made made(256, 128, 0);
    std::mt19937_64 random(3);
    std::normal_distribution<double> normal;
    for (double& x : made.c.inputs) x = RoundToFormat(normal(random), DType::kBF16);
    double largest = 0;
    for (int i = 0; i < made.c.samples; ++i) {
      double sum = 0;
      for (int r = 0; r < made.c.ranks; ++r) sum += made.c.input(r, i);
      made.c.output[static_cast<size_t>(i)] = RoundToFormat(sum, DType::kBF16);
      largest = std::max(largest, std::fabs(sum));
    }
    for (double& y : made.c.output)
      y = RoundToFormat(std::clamp(y, -share * largest, share * largest), DType::kBF16);
    BiasStream stream(1e-6);
    stream.Add(ErrorsOfOutputs(made.c), std::nullopt);
    EXPECT_LT(stream.mean(), 0);
    if (stream.interval_side() == BiasSide::kNone) continue;  // too few are clipped for a bias
    EXPECT_FALSE(made.Judged().Explains(stream.mean(), stream.half_width())) << share;
    EXPECT_EQ(made.Judged().Explanation().find("clipped: "), 0u) << made.Judged().Explanation();
    ++biased;
  }
  EXPECT_GE(biased, 2);
}

TEST(SumLikeness, ResultsOnACoarserGridWereStoredOnIt) {
  Made made(512, 128, 1, RoundingMode::kTowardZero);
  EXPECT_TRUE(made.Judged().Explains(-60, 40)) << made.Judged().Explanation();
  for (double& y : made.c.output) y = RoundToFormat(y, DType::kE5M2, RoundingMode::kTowardZero);
  EXPECT_FALSE(made.Judged().Explains(-60, 40));
  EXPECT_EQ(made.Judged().Explanation().find("stored-narrower: "), 0u)
      << made.Judged().Explanation();
}

// Groups of eight neighbours in f32, then sequentially toward zero.
TEST(SumLikeness, GroupsThatAreSummedWellFirstAreKnown) {
  Made made(256, 128, 1);
  for (int i = 0; i < made.c.samples; ++i) {
    double sum = 0;
    for (int g = 0; g < made.c.ranks; g += 8) {
      double group = 0;
      for (int r = g; r < g + 8; ++r) group += made.c.input(r, i);
      sum = RoundToFormat(sum + group, DType::kBF16, RoundingMode::kTowardZero);
    }
    made.c.output[static_cast<size_t>(i)] = sum;
  }
  EXPECT_TRUE(made.Judged().Explains(-8, 5));
  EXPECT_NE(made.Judged().Words(-8, 5).find("groups of 8 in f32"), std::string::npos);
}

TEST(SumLikeness, OneFactorIsNamed) {
  Made made(64, 128, 0);
  for (double& y : made.c.output) y = RoundToFormat(0.6 * y, DType::kBF16);
  EXPECT_FALSE(made.Judged().Explains(-70, 5));
  EXPECT_EQ(made.Judged().Explanation().find("common-factor: "), 0u) << made.Judged().Explanation();
}

TEST(SumLikeness, WhatWasNeverReducedIsStated) {
  Made zeros(64, 128, 0), own(64, 128, 0);
  for (double& y : zeros.c.output) y = 0;
  for (int i = 0; i < own.c.samples; ++i) own.c.output[static_cast<size_t>(i)] = own.c.input(3, i);
  for (const Made* made : {&zeros, &own}) {
    EXPECT_FALSE(made->Judged().Explains(-20, 5));
    EXPECT_EQ(made->Judged().Explanation().find("not-shared: "), 0u)
        << made->Judged().Explanation();
  }
}

// Tests that the fraction of unlike elements decides, not their distance.
TEST(SumLikeness, AnythingElseIsUnlikeSums) {
  Made made(64, 128, 0);
  for (size_t i = 0; i < made.c.output.size(); i += 3) made.c.output[i] *= -1;
  EXPECT_FALSE(made.Judged().Explains(-20, 5));
  EXPECT_EQ(made.Judged().Explanation().find("unlike-sums: "), 0u) << made.Judged().Explanation();
}

TEST(SumLikeness, NonFiniteValuesAreLeftOut) {
  Made made(512, 128, 1);
  for (size_t i = 0; i < 20; ++i) made.c.output[i] = i % 2 == 0 ? NAN : INFINITY;
  for (int i = 20; i < 40; ++i)
    made.c.inputs[static_cast<size_t>(i)] = i % 2 == 0 ? NAN : -INFINITY;
  EXPECT_TRUE(made.Judged().Explains(-24, 5));
  for (double& y : made.c.output) y = NAN;
  EXPECT_FALSE(made.Judged().any());
  EXPECT_FALSE(made.Judged().Explains(-24, 5));
  EXPECT_EQ(made.Judged().Explanation(), "");
}

TEST(SumLikeness, WorkEndsWhenEnoughIsKnown) {
  const Made made(16, 700, 1);
  SumLikeness likeness;
  for (int i = 0; i < 5; ++i) likeness.Take(made.c, made.columns);
  const std::string words = likeness.Words(-0.001, 1);
  for (int i = 0; i < 50; ++i) likeness.Take(made.c, made.columns);
  EXPECT_EQ(likeness.Words(-0.001, 1), words);
}

}  // namespace
}  // namespace plumbline::analysis
