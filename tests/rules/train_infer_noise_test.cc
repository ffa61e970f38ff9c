// Tokens whose noise is unequal (scales of fp8 and int8, outlier channels): flips that a token's
// own scores explain are no finding, and a bias of few experts among such tokens is one. 40
// recordings; 2,000 innocent and 500 guilty ones if PLUMB_LONG=1.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/rules/support/routing_pair.h"
#include "tests/rules/support/verdicts.h"

namespace plumbline::rules {
namespace {

using testing::RoutingPair;
using testing::RoutingPairSpec;
using testing::Verdicts;
using testing::VerdictsOf;

constexpr char kRule[] = "causality/train-infer-routing";

bool Long() { return std::getenv("PLUMB_LONG") != nullptr; }

// Returns a recording whose noise differs between tokens; both sides choose by their own scores.
RoutingPairSpec Unequal(uint64_t seed) {
  static constexpr int kShapes[][2] = {{8, 2}, {16, 4}, {64, 8}, {32, 1}, {4, 2}, {128, 8}};
  RoutingPairSpec spec{.sequences = 8, .length = 192, .seed = seed};
  spec.experts = kShapes[seed % 6][0];
  spec.top_k = kShapes[seed % 6][1];
  const uint64_t kind = seed / 6 % 4;
  spec.unequal = kind == 0 ? "int8" : kind == 1 ? "lognormal" : "outliers";
  spec.noise = kind == 3 ? 0.01 : 0.003;
  spec.unequal_by = kind == 0   ? 15 + 15.0 * static_cast<double>(seed / 24 % 3)
                    : kind == 1 ? 2 + static_cast<double>(seed / 24 % 2)
                    : kind == 2 ? 30
                                : 10;
  return spec;
}

TEST(TrainInferNoise, UnequalNoiseIsNotAccused) {
  const int runs = Long() ? 2000 : 36;
  int accused = 0, noisy = 0;
  for (int seed = 1; seed <= runs; ++seed) {
    const RoutingPairSpec spec = Unequal(static_cast<uint64_t>(seed));
    for (const v1::Verdict& v : VerdictsOf(kRule, RoutingPair(spec))) {
      const bool loud = v.finding().level() >= v1::LEVEL_WARNING;
      accused += loud;
      EXPECT_FALSE(loud) << seed << " " << spec.unequal << ": " << v.finding().explanation();
      const auto& details = v.details().fields();
      noisy += details.contains("noisy_flip_share") &&
               details.at("noisy_flip_share").number_value() > 1e-3;
    }
  }
  std::printf("%d of %d recordings with unequal noise accused; %d had unlikely flips\n", accused,
              runs, noisy);
  EXPECT_GT(noisy, runs / 4);  // The test has relevant cases.
}

TEST(TrainInferNoise, ABiasOfFewExpertsIsFoundAmongUnequalNoise) {
  const int runs = Long() ? 500 : 18;
  int found = 0;
  for (int seed = 1; seed <= runs; ++seed) {
    RoutingPairSpec spec = Unequal(static_cast<uint64_t>(seed));
    spec.biased_experts = std::max(1, spec.experts / 16);
    spec.bias = 0.4;
    found += testing::Findings(VerdictsOf(kRule, RoutingPair(spec)), kRule, "large-margin-flips");
  }
  std::printf("%d of %d recordings with a bias of few experts found\n", found, runs);
  EXPECT_GE(100 * found, 95 * runs);
}

}  // namespace
}  // namespace plumbline::rules
