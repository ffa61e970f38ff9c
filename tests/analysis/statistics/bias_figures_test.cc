// Tests errors in ulp, e-BH and forecast texts.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "analysis/statistics/bias_forecast.h"
#include "analysis/statistics/bias_stream.h"
#include "analysis/statistics/e_bh.h"
#include "analysis/statistics/sum_error.h"
#include "tests/rules/support/simulated_sums.h"

namespace plumbline::analysis {
namespace {

using rules::testing::ErrorOfSum;

TEST(SumErrors, ErrorInUlpWithItsSign) {
  // bf16: 256 + 1 is 256 (ulp 2, tie to even): the only unavoidable rounding.
  EXPECT_EQ(ErrorOfSum(256, {256, 1}, DType::kBF16).e, 0);
  EXPECT_FALSE(ErrorOfSum(256, {256, 1}, DType::kBF16).misrounded);
  // A thousand ones stop at 256 of 1,000, which has an ulp of 4.
  EXPECT_EQ(ErrorOfSum(256, std::vector<double>(1000, 1.0), DType::kBF16).e, (256.0 - 1000) / 4);
  EXPECT_EQ(ErrorOfSum(-256, std::vector<double>(1000, -1.0), DType::kBF16).e, (256.0 - 1000) / 4);
  EXPECT_EQ(ErrorOfSum(1.0, std::vector<double>(1000, 1.0), DType::kBF16, 1000).e, 0);
  // 1000 - 999 + .001 in bf16: the sum is 1, the error is in the addends' ulp of 8.
  EXPECT_EQ(ErrorOfSum(9, {1000, -999}, DType::kBF16).e, 8.0 / 8);
  const SumError zero = ErrorOfSum(3, {5, -5}, DType::kF16);
  EXPECT_EQ(zero.kind, SumError::Kind::kZeroSum);
  EXPECT_TRUE(zero.misrounded);
  EXPECT_EQ(zero.e, 3 / 0x1p-8);
  EXPECT_FALSE(ErrorOfSum(-0.0, {5, -5}, DType::kF16).misrounded);
  EXPECT_EQ(ErrorOfSum(NAN, {1, 2}, DType::kF16).kind, SumError::Kind::kAside);
  EXPECT_EQ(ErrorOfSum(INFINITY, {1, 2}, DType::kF16).kind, SumError::Kind::kAside);
  EXPECT_EQ(ErrorOfSum(65504, {65504, 65504}, DType::kF16).kind, SumError::Kind::kAside);
  EXPECT_EQ(ErrorOfSum(1, {1e200, -1e200, 1}, DType::kF64).kind, SumError::Kind::kAside);
}

TEST(LostMass, CountsWhatDidNotMove) {
  LostMass lost;
  lost.Take(256, 1, 256);
  lost.Take(256, 2, 258);
  lost.Take(256, 0, 256);
  lost.Take(256, NAN, NAN);
  EXPECT_EQ(lost.adds, 2u);
  EXPECT_DOUBLE_EQ(lost.lost_share(), 0.5);
  EXPECT_DOUBLE_EQ(lost.mass_share(), 1.0 / 3);
  EXPECT_TRUE(std::isnan(LostMass{}.mass_share()));
}

TEST(EBh, SelectsByTheKthValue) {
  const auto ln = [](double e) { return std::log(e); };
  // 4 tensors, alpha .05: requires 80, 40, 26.7, 20.
  EXPECT_EQ(SelectByEBh(std::vector<double>{ln(79), ln(41), ln(1), ln(0.1)}, 0.05),
            (std::vector<bool>{true, true, false, false}));
  EXPECT_EQ(SelectByEBh(std::vector<double>{ln(79), ln(39), ln(26), ln(0.1)}, 0.05),
            (std::vector<bool>{false, false, false, false}));
  EXPECT_EQ(SelectByEBh(std::vector<double>{ln(21), ln(30), ln(22), ln(1e300)}, 0.05),
            (std::vector<bool>{true, true, true, true}));
  EXPECT_EQ(SelectByEBh(std::vector<double>{NAN, ln(81), NAN, NAN}, 0.05),
            (std::vector<bool>{false, true, false, false}));
  EXPECT_TRUE(SelectByEBh({}, 0.05).empty());
}

TEST(Forecast, NumbersAndWords) {
  const BiasForecast f = Forecast(-0.01, 1.1, 10000, 0.9);
  EXPECT_DOUBLE_EQ(f.overtakes, 12100);
  EXPECT_EQ(ForecastWords(f), "after 12,000 steps this bias is larger than the noise");
  EXPECT_DOUBLE_EQ(f.drift, -100);
  EXPECT_NEAR(f.drift_high - f.drift, 4.9 * 1.1 * 100, 1e-9);
  EXPECT_NEAR(f.settles, -0.1, 1e-12);
  EXPECT_EQ(DriftWords(f, "ulp"),
            "10,000 steps add up to -100 ulp (noise: 540); a moving average with decay 0.9 "
            "converges to -0.1 ulp");
  EXPECT_EQ(ForecastWords(Forecast(0, 1)), "no bias to extrapolate");
  EXPECT_EQ(ForecastWords(Forecast(3, 1)), "this bias is larger than the noise in every step");
  EXPECT_EQ(ForecastWords(Forecast(NAN, 1)), "bias and noise are unknown");
  EXPECT_EQ(RoundedCount(7), "7");
  EXPECT_EQ(RoundedCount(12345), "12,000");
  EXPECT_EQ(RoundedCount(994999), "990,000");
  EXPECT_EQ(RoundedCount(999999), "1 million");
  EXPECT_EQ(RoundedCount(1.23e6), "1.2 million");
  EXPECT_EQ(RoundedCount(4.5e10), "45 billion");
  EXPECT_EQ(RoundedCount(1e15), "1e+15");
  EXPECT_EQ(RoundedCount(INFINITY), "infinity");
}

TEST(Forecast, FillsAFinding) {
  BiasStream stream(1e-9);
  std::vector<double> errors;
  for (int i = 0; i < 1000; ++i) errors.push_back(i % 2 == 0 ? -3 : -1);
  stream.Add(errors, 100000);
  v1::Finding finding;
  FillBias(stream, finding);
  EXPECT_EQ(finding.level(), v1::LEVEL_ERROR);
  EXPECT_EQ(finding.strength(), v1::STRENGTH_STATISTICAL);
  EXPECT_EQ(finding.bias().mean(), -2);
  EXPECT_LT(finding.bias().low(), -2);
  EXPECT_EQ(finding.false_alarm().value(), 1e-9);
  EXPECT_EQ(finding.sample_size(), 1000u);
  EXPECT_NEAR(finding.forecast().fields().at("settles_at").number_value(), -20, 1e-9);
  EXPECT_EQ(finding.assumptions_size(), 2);  // clipped; one step
}

}  // namespace
}  // namespace plumbline::analysis
