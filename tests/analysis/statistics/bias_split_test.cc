// Shares of alpha sum to at most one, errors in ulp, e-BH, forecasts in words.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "analysis/statistics/alpha_split.h"
#include "analysis/statistics/bias_forecast.h"
#include "analysis/statistics/bias_stream.h"
#include "analysis/statistics/e_bh.h"
#include "analysis/statistics/sum_error.h"
#include "rules/catalogue.h"
#include "tests/rules/support/simulated_sums.h"

namespace plumbline::rules {
namespace {

using testing::ErrorOfSum;

v1::Site Site(const std::string& layer, const std::string& op) {
  v1::Site site;
  site.set_layer(layer);
  site.set_op(op);
  return site;
}

// Every string of up to `length` letters of the alphabet.
std::vector<std::string> AllStrings(const std::string& alphabet, size_t length) {
  std::vector<std::string> all = {""};
  for (size_t begin = 0; length > 0; --length) {
    const size_t end = all.size();
    for (size_t i = begin; i < end; ++i) {
      for (char c : alphabet) all.push_back(all[i] + c);
    }
    begin = end;
  }
  return all;
}

TEST(AlphaSplit, SharesOfAnySetOfNamesSumToAtMostOne) {
  std::set<std::string> names;
  std::string bytes;
  for (int c = 1; c < 256; ++c) bytes += static_cast<char>(c);
  for (const std::string& s : AllStrings(bytes, 2)) names.insert(s);
  for (const std::string& s : AllStrings("0123456789", 5)) names.insert(s);
  for (const std::string& s : AllStrings("inhu.p#", 6)) names.insert(s);
  const char* shapes[] = {"layers.", "layer.", "blocks.",  "h.",    "bucket.",
                          "bucket",  "mlp.",   "experts.", "layers"};
  for (const char* shape : shapes) {
    for (int i = 0; i < 20000; ++i) {
      names.insert(shape + std::to_string(i));
      names.insert(shape + std::string("0") + std::to_string(i));
      names.insert(shape + std::to_string(i) + ".mlp");
      names.insert("model.layers." + std::to_string(i % 200) + ".experts." +
                   std::to_string(i / 200));
    }
  }
  for (const char* name :
       {"",        "sum",    "avg",    "gradient",   "weight",    "accumulation",   "all_reduce",
        "logits",  "loss",   "grads",  "policy",     "model",     "embedding",      "gradients",
        "routing", "matmul", "update", "activation", "reduction", "reduce_scatter", "logprobs"}) {
    names.insert(name);
  }
  double layers = 0;
  double ops = 0;
  double rules = 0;
  for (const std::string& name : names) {
    layers += LayerWeight(name);
    ops += OpWeight(name);
    rules += RuleWeight(name);
    ASSERT_GT(LayerWeight(name), 0) << name;
  }
  for (const CatalogueEntry& entry : Catalogue()) {
    if (!names.contains(entry.info->id)) rules += RuleWeight(entry.info->id);
  }
  std::printf("  %zu names: layers %.3f, ops %.3f, rules %.3f\n", names.size(), layers, ops, rules);
  EXPECT_LE(layers, 1);
  EXPECT_LE(ops, 1);
  EXPECT_LE(rules, 1);
  EXPECT_GT(layers, 0.4);  // little is wasted
}

// Numbers are told from like ones; the share falls with the number as it should.
TEST(AlphaSplit, NumbersWithAndWithoutZeros) {
  EXPECT_NEAR(LayerWeight("layers.3"), 0.5 / 16 * 6 / (M_PI * M_PI * 16), 1e-12);
  EXPECT_NEAR(LayerWeight("layers.0") / LayerWeight("layers.9"), 100, 1e-9);
  EXPECT_LT(LayerWeight("layers.03"), LayerWeight("layers.3") / 1000);
  EXPECT_GT(LayerWeight("layers.4294967296123"), 0);
  EXPECT_EQ(LayerWeight(std::string(2000, 'x')), 0);
}

TEST(AlphaSplit, UsualNamesKeepEnough) {
  for (const char* layer : {"grads", "layers.3", "layers.63.mlp", "bucket.7",
                            "model.layers.12.self_attn.q_proj", "transformer.h.11.mlp.c_fc.weight",
                            "module.decoder.layers.31.mlp.experts.7.linear_fc2.weight"}) {
    const double alpha = AlphaOf("precision/collective-sum", Site(layer, "sum"));
    std::printf("  %-58s alpha %.1e, ln 1/alpha %.0f\n", layer, alpha, -std::log(alpha));
    EXPECT_LT(-std::log(alpha), 110) << layer;
  }
  EXPECT_NEAR(AlphaOf("precision/collective-sum", Site("grads", "sum")), 1e-6 / 16 / 32 / 32,
              1e-15);
}

TEST(SumErrors, ErrorInUlpWithItsSign) {
  // bf16: 256 + 1 is 256 (ulp 2, tie to even): the one rounding nobody can avoid.
  EXPECT_EQ(ErrorOfSum(256, {256, 1}, DType::kBF16).e, 0);
  EXPECT_FALSE(ErrorOfSum(256, {256, 1}, DType::kBF16).misrounded);
  // A thousand ones stop at 256 of 1,000, whose ulp is 4.
  EXPECT_EQ(ErrorOfSum(256, std::vector<double>(1000, 1.0), DType::kBF16).e, (256.0 - 1000) / 4);
  EXPECT_EQ(ErrorOfSum(-256, std::vector<double>(1000, -1.0), DType::kBF16).e, (256.0 - 1000) / 4);
  EXPECT_EQ(ErrorOfSum(1.0, std::vector<double>(1000, 1.0), DType::kBF16, 1000).e, 0);
  // 1000 - 999 + .001 in bf16: the sum is 1, its error is measured in the addends' ulp of 8.
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
  // 4 tensors, alpha .05: needs 80, 40, 26.7, 20.
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
  EXPECT_EQ(
      DriftWords(f, "ulp"),
      "10,000 steps add up to -100 ulp (noise: 540); an average of decay 0.9 settles at -0.1 ulp");
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
}  // namespace plumbline::rules
