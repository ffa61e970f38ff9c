// Compares the CPU reference with the definitions: values, masks, layouts, and refused inputs.
#include "kernels/logits/pair.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "tests/kernels/logits/rows.h"

namespace plumbline {
namespace {

using ::testing::HasSubstr;

TEST(LogitPair, EachRowIsAsDefined) {
  const DType dtypes[] = {DType::kF32, DType::kF16, DType::kBF16};
  uint64_t seed = 0;
  for (const int64_t v : {2, 3, 8, 255, 256, 257, 1000, 5000}) {
    for (const float noise : {0.0f, 1e-3f, 0.05f, 0.3f, 5.0f}) {
      for (const float scale : {1.0f, 1.1f}) {
        Rows rows(2, v, dtypes[seed % 3], dtypes[seed / 3 % 3]);
        ++seed;
        rows.Draw(seed, noise, scale, seed % 2 == 0 ? 0 : 25.0f);
        const auto found = rows.Measure();
        for (int64_t i = 0; i < 2; ++i) {
          SCOPED_TRACE(std::to_string(v) + " logits, noise " + std::to_string(noise) + ", seed " +
                       std::to_string(seed));
          const LogitRow expected = rows.Expected(i);
          ExpectRow(found[static_cast<size_t>(i)], expected);
          ExpectDetails(found[static_cast<size_t>(i)], expected);
        }
      }
    }
  }
}

TEST(LogitPair, LargeVocabularies) {
  Rows rows(1, 262144, DType::kBF16, DType::kF32);
  rows.Draw(5, 0.02f);
  const auto found = rows.Measure();
  ExpectRow(found[0], rows.Expected(0));
  ExpectDetails(found[0], rows.Expected(0));
  EXPECT_EQ(found[0].second_reads, 2u * 262144);
  EXPECT_EQ(rows.Measure(false)[0].second_reads, 0u);
  EXPECT_TRUE(std::isnan(rows.Measure(false)[0].js));
}

// Divergences of 1e-13 nats with normalisers of 30.
TEST(LogitPair, TinyDivergencesAreExact) {
  Rows rows(4, 4096);
  rows.Draw(9, 0, 1, 25);
  for (int64_t i = 0; i < rows.count; ++i) {
    for (int64_t k = 0; k < 40; ++k) {
      float& z = rows.At(0, i, k);
      z = std::nextafter(z, 100.0f);
    }
  }
  const auto found = rows.Measure();
  for (int64_t i = 0; i < rows.count; ++i) {
    const LogitRow expected = rows.Expected(i);
    EXPECT_LT(expected.kl_train_rollout, 1e-11);
    EXPECT_GT(expected.kl_train_rollout, 0);
    EXPECT_TRUE(
        Near(found[static_cast<size_t>(i)].kl_train_rollout, expected.kl_train_rollout, 1e-4, 0));
  }
}

TEST(LogitPair, EqualSidesDivergeByNothing) {
  Rows rows(1, 1000, DType::kBF16, DType::kBF16);
  rows.Draw(3, 0);
  const LogitRow row = rows.Measure()[0];
  EXPECT_EQ(row.kl_train_rollout, 0);
  EXPECT_EQ(row.kl_rollout_train, 0);
  EXPECT_EQ(row.js, 0);
  EXPECT_EQ(row.total_variation, 0);
  EXPECT_EQ(row.max_abs_delta, 0);
  EXPECT_EQ(row.slope, 1);
  EXPECT_EQ(row.intercept, 0);
  EXPECT_EQ(row.fit_r2, 1);
  EXPECT_EQ(row.topk_common, kTopLogits);
  EXPECT_FALSE(row.top1_differs);
  for (const double mean : row.downward) EXPECT_NEAR(mean, 1, 1e-14);
}

TEST(LogitPair, ATemperatureIsTheSlope) {
  Rows rows(1, 3000);
  rows.Draw(4, 0, 1 / 0.8f, 2);
  const LogitRow row = rows.Measure()[0];
  EXPECT_NEAR(row.slope, 1.25, 1e-6);
  EXPECT_NEAR(row.intercept, 2, 1e-5);
  EXPECT_GT(row.fit_r2, 1 - 1e-12);
}

TEST(LogitPair, MasksAreSupports) {
  const auto masked = [](int which) {
    Rows rows(1, 700);
    rows.Draw(6, 0.02f);
    for (int64_t i = 3; i < 700; i += 3) {
      if (which != 1) rows.At(0, 0, i) = kMasked;
      if (which != 0) rows.At(1, 0, i) = kMasked;
    }
    if (which == 3) rows.At(0, 0, 3) = 1;  // neither support contains the other
    if (which == 3) rows.At(1, 0, 4) = kMasked;
    return rows;
  };
  for (const int which : {0, 1, 2, 3}) {
    SCOPED_TRACE(which);
    const Rows rows = masked(which);
    const LogitRow found = rows.Measure()[0];
    ExpectRow(found, rows.Expected(0));
    ExpectDetails(found, rows.Expected(0));
    EXPECT_EQ(std::isinf(found.kl_train_rollout), which == 1 || which == 3);
    EXPECT_EQ(std::isinf(found.kl_rollout_train), which == 0);
  }
  Rows first = masked(2);  // a masked token
  first.tokens[0] = 3;
  EXPECT_EQ(first.Measure()[0].logprob[0], -INFINITY);
}

TEST(LogitPair, MaskedRowsHaveNothingInCommon) {
  Rows rows(4, 300);
  rows.Draw(8, 0.02f);
  for (int64_t i = 0; i < 300; ++i) {
    rows.At(0, 1, i) = rows.At(1, 1, i) = kMasked;     // both
    rows.At(1, 2, i) = kMasked;                        // one
    rows.At(static_cast<int>(i % 2), 3, i) = kMasked;  // never both
  }
  const auto found = rows.Measure();
  for (int64_t i = 0; i < 4; ++i) ExpectRow(found[static_cast<size_t>(i)], rows.Expected(i));
  EXPECT_TRUE(found[0].usable);
  for (const size_t i : {1, 2, 3}) EXPECT_FALSE(found[i].usable);
  EXPECT_EQ(found[2].only[0], 300u);
}

TEST(LogitPair, AMaskThatBeginsLateIsNoReference) {
  Rows rows(1, 2000);
  rows.Draw(18, 0.02f);
  for (int64_t i = 0; i < 1500; ++i) rows.At(1, 0, i) = kMasked;
  ExpectRow(rows.Measure()[0], rows.Expected(0));
}

TEST(LogitPair, FaultsStayInTheirRow) {
  Rows clean(5, 600, DType::kBF16, DType::kF16);
  clean.Draw(10, 0.02f);
  const auto before = clean.Measure();
  Rows rows = clean;
  rows.At(0, 1, 599) = NAN;
  rows.At(1, 1, 0) = INFINITY;
  rows.At(1, 3, 300) = NAN;
  const auto after = rows.Measure();
  for (const size_t i : {0, 2, 4})
    EXPECT_EQ(std::memcmp(&before[i], &after[i], sizeof(LogitRow)), 0);
  for (const size_t i : {1, 3}) EXPECT_FALSE(after[i].usable);
  EXPECT_EQ(after[1].non_finite[0], 1u);
  EXPECT_EQ(after[1].non_finite[1], 1u);
  EXPECT_EQ(after[3].non_finite[1], 1u);
  EXPECT_EQ(after[3].non_finite[0], 0u);
}

TEST(LogitPair, TiesOneHotsAndHugeLogits) {
  const float huge = 3e38f;
  Rows ties(1, 100);  // all equal
  EXPECT_FALSE(ties.Measure()[0].top1_differs);
  EXPECT_EQ(ties.Measure()[0].topk_common, kTopLogits);
  EXPECT_TRUE(std::isnan(ties.Measure()[0].slope));
  EXPECT_NEAR(ties.Measure()[0].entropy[0], std::log(100), 1e-12);
  EXPECT_EQ(ties.Measure()[0].varentropy[0], 0);

  Rows shared(1, 600);  // argmaxes {0, 500} and {500}
  shared.At(0, 0, 0) = shared.At(0, 0, 500) = 2;
  shared.At(1, 0, 500) = 3;
  EXPECT_FALSE(shared.Measure()[0].top1_differs);
  shared.At(1, 0, 501) = 4;  // now {501}
  EXPECT_TRUE(shared.Measure()[0].top1_differs);

  Rows one_hot(1, 1000);
  one_hot.Draw(2, 0.01f);
  one_hot.At(0, 0, 700) = one_hot.At(1, 0, 700) = 900;
  const LogitRow hot = one_hot.Measure()[0];
  ExpectRow(hot, one_hot.Expected(0));
  EXPECT_EQ(hot.entropy[0], 0);
  EXPECT_EQ(hot.kl_train_rollout, 0);

  for (const float low : {-1e9f, -huge}) {
    Rows rows(1, 900);
    rows.Draw(12, 0.02f);
    for (int64_t i = 0; i < 900; i += 2) rows.At(0, 0, i) = rows.At(1, 0, i) = low;
    const LogitRow found = rows.Measure()[0], expected = rows.Expected(0);
    EXPECT_TRUE(Near(found.kl_train_rollout, expected.kl_train_rollout, 1e-9, 0));
    EXPECT_TRUE(Near(found.lse[0], expected.lse[0], 1e-12, 0));
    EXPECT_TRUE(Near(found.js, expected.js, 1e-9, 0));
    EXPECT_TRUE(Near(found.varentropy[1], expected.varentropy[1], 1e-9, 0));
    EXPECT_TRUE(Near(found.log_moments[0], expected.log_moments[0], 1e-9, 0));
    EXPECT_TRUE(Near(found.slope, 1, 1e-6, 0));
  }
  Rows apart(1, 300);
  apart.Draw(13, 1);
  apart.At(0, 0, 5) = huge;
  apart.At(1, 0, 6) = huge;
  const LogitRow found = apart.Measure()[0];
  EXPECT_TRUE(Near(found.kl_train_rollout, huge, 1e-6, 0));
  EXPECT_NEAR(found.js, std::log(2), 1e-12);
  EXPECT_NEAR(found.total_variation, 1, 1e-12);
}

// The same logits in different layouts.
TEST(LogitPair, StridesAndAlignment) {
  Rows rows(6, 500, DType::kBF16, DType::kF32);
  rows.Draw(14, 0.02f);
  const auto expected = rows.Measure();
  std::vector<float> transposed(3000);
  for (int64_t t = 0; t < 6; ++t) {
    for (int64_t i = 0; i < 500; ++i) transposed[static_cast<size_t>(i * 6 + t)] = rows.At(1, t, i);
  }
  const auto a = Packed(rows.z[0], DType::kBF16);
  std::vector<std::byte> odd(a.size() + 1);
  std::memcpy(odd.data() + 1, a.data(), a.size());
  LogitInput in;
  in.train = TensorView::Dense(odd.data() + 1, DType::kBF16, 2, 3, 500);
  in.rollout = TensorView::Dense(transposed.data(), DType::kF32, 2, 3, 500);
  in.rollout.stride = {3, 1, 6};
  std::vector<int32_t> tokens(12, -5);
  for (size_t i = 0; i < 6; ++i) tokens[2 * i] = static_cast<int32_t>(rows.tokens[i]);
  in.tokens = TensorView::Dense(tokens.data(), DType::kI32, 2, 3);
  in.tokens.stride = {6, 2};
  ASSERT_TRUE(CheckLogits(in).ok()) << CheckLogits(in);
  const LogitPlan plan = PlanLogits(in);
  ASSERT_EQ(plan.rows, 6);
  for (int64_t t = 0; t < 6; ++t) {
    const LogitRow found = MeasureLogitRow(plan, t, true);
    EXPECT_EQ(std::memcmp(&found, &expected[static_cast<size_t>(t)], sizeof(found)), 0) << t;
  }
}

TEST(LogitPair, WhatIsNotAllowedIsMaskedOnBothSides) {
  Rows rows(2, 400);
  rows.Draw(15, 0.02f);
  std::vector<uint8_t> allowed(800, 1);
  for (size_t i = 0; i < 800; i += 3) allowed[i] = 0;
  Rows masked = rows;
  for (size_t i = 0; i < 800; i += 3) masked.z[0][i] = masked.z[1][i] = kMasked;
  rows.At(0, 0, 0) = NAN;                 // ignored
  rows.tokens[1] = masked.tokens[1] = 2;  // element 402
  LogitInput in;
  in.train = TensorView::Dense(rows.z[0].data(), DType::kF32, 2, 400);
  in.rollout = TensorView::Dense(rows.z[1].data(), DType::kF32, 2, 400);
  in.tokens = TensorView::Dense(rows.tokens.data(), DType::kI64, 2);
  in.allowed = TensorView::Dense(allowed.data(), DType::kBool, 2, 400);
  ASSERT_TRUE(CheckLogits(in).ok());
  const auto expected = masked.Measure();
  for (int64_t t = 0; t < 2; ++t) {
    const LogitRow found = MeasureLogitRow(PlanLogits(in), t, true);
    EXPECT_EQ(std::memcmp(&found, &expected[static_cast<size_t>(t)], sizeof(found)), 0) << t;
  }
  EXPECT_EQ(expected[1].logprob[0], -INFINITY);
}

TEST(LogitPair, WhatDoesNotFitIsNamed) {
  std::vector<float> z(24, 0);
  std::vector<int64_t> tokens = {0, 1, 7, -1};
  const auto good = [&] {
    LogitInput in;
    in.train = in.rollout = TensorView::Dense(z.data(), DType::kF32, 4, 6);
    in.tokens = TensorView::Dense(tokens.data(), DType::kI64, 4);
    return in;
  };
  const auto expect = [&](auto change, const char* text) {
    LogitInput in = good();
    change(in);
    const absl::Status status = CheckLogits(in);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  };
  EXPECT_TRUE(CheckLogits(good()).ok());
  expect([](LogitInput& in) { in.train = {}; }, "train: expected a tensor of a known dtype");
  expect([](LogitInput& in) { in.rollout.dtype = DType::kF64; },
         "rollout: expected [..., V] of f32");
  expect([](LogitInput& in) { in.rollout.shape[1] = 5; }, "rollout: expected the shape of train");
  expect([](LogitInput& in) { in.train.shape[1] = 0; }, "train: expected a vocabulary");
  expect([](LogitInput& in) { in.tokens.dtype = DType::kF32; }, "tokens: expected integers");
  expect([](LogitInput& in) { in.tokens.shape[0] = 3; }, "tokens: expected the rows of train");
  expect([](LogitInput& in) { in.allowed = in.train; }, "allowed: expected bool or u8");
  expect([](LogitInput& in) { in.tokens.device = 0; }, "on one device");
  EXPECT_THAT(std::string(CheckToken(PlanLogits(good()), 2).message()),
              HasSubstr("tokens: expected ids below 6, found 7 in row 2"));
}

}  // namespace
}  // namespace plumbline
