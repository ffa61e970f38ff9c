// Tests that if a logged loss is neither mean but coincides with the mean of means now and then,
// there is no finding; if it is the mean of means in each step, there is a finding, even with few
// logged decimals.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/rules/support/spec_values.h"
#include "tests/rules/support/verdicts.h"
#include "tests/support/batches.h"

namespace plumbline::rules {
namespace {

using testing::Draw;
using testing::VerdictsOf;

struct Step {
  double token_mean, mean_of_means, last_logged;
};
using Logger = std::function<double(const Step&, Draw&)>;

// Returns the number of findings of a run of `steps` steps. `logger` computes the logged loss,
// which is rounded to `decimals`.
int Findings(const Logger& logger, int decimals, int steps, uint64_t seed, int64_t* first) {
  constexpr int kRanks = 4;
  Draw draw(seed);
  v1::Batch batch;
  for (uint32_t r = 0; r < kRanks; ++r) *batch.add_sources() = test::SourceOf("run", r, kRanks);
  double last = 0;
  for (int s = 0; s < steps; ++s) {
    double sum = 0, tokens = 0, means = 0;
    const auto add = [&](uint32_t rank, const char* op, double value) {
      test::AddScalar(&batch, op, s, value).set_source(rank);
    };
    for (uint32_t r = 0; r < kRanks; ++r) {
      const double n = 100 + std::floor(900 * draw.Uniform());
      const double mean = 2.5 - 0.3 * std::log1p(s) / 5 + 0.15 * draw.Normal() + 100 / n;
      const auto loss_sum = static_cast<double>(static_cast<float>(mean * n));
      sum += loss_sum;
      tokens += n;
      means += loss_sum / n / kRanks;
      add(r, "loss_sum", loss_sum);
      add(r, "tokens", n);
    }
    const double value = logger({sum / tokens, means, last}, draw);
    last = value;
    const double unit = std::pow(10.0, -decimals);
    add(0, "loss", static_cast<double>(static_cast<float>(std::round(value / unit) * unit)));
  }
  for (uint32_t r = 0; r < kRanks; ++r) test::AddProgress(&batch, steps - 1).set_source(r);
  int findings = 0;
  for (const v1::Verdict& v : VerdictsOf("precision/loss-mean-of-means", {std::move(batch)})) {
    if (v.kind() != v1::Verdict::KIND_FINDING) continue;
    if (findings++ == 0 && first != nullptr) *first = v.site().step_first();
  }
  return findings;
}

TEST(LossCoincidence, WhatIsNeitherMeanIsNeverAccused) {
  const Logger smoothed = [](const Step& s, Draw&) {
    return s.last_logged == 0 ? s.token_mean : 0.9 * s.last_logged + 0.1 * s.token_mean;
  };
  const Logger with_auxiliary = [](const Step& s, Draw& draw) {
    return s.token_mean + 0.05 + 0.02 * draw.Uniform();
  };
  const Logger unrelated = [](const Step& s, Draw& draw) {
    return s.token_mean + 0.2 * draw.Normal();
  };
  int accused = 0, runs = 0;
  for (const Logger& logger : {smoothed, with_auxiliary, unrelated}) {
    for (int decimals = 2; decimals <= 6; ++decimals) {
      for (uint64_t seed = 0; seed < 40; ++seed, ++runs)
        accused += Findings(logger, decimals, 200, 100 * seed + static_cast<uint64_t>(decimals),
                            nullptr) > 0;
    }
  }
  EXPECT_EQ(accused, 0) << "of " << runs << " runs";
}

TEST(LossCoincidence, TheMeanOfMeansIsFoundInAFewSteps) {
  const Logger planted = [](const Step& s, Draw&) { return s.mean_of_means; };
  const Logger honest = [](const Step& s, Draw&) { return s.token_mean; };
  for (int decimals = 2; decimals <= 6; ++decimals) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      int64_t first = -1;
      EXPECT_GT(Findings(planted, decimals, 60, seed, &first), 0) << decimals << " decimals";
      EXPECT_LT(first, decimals == 2 ? 50 : 10) << decimals << " decimals";
      EXPECT_EQ(Findings(honest, decimals, 60, seed, nullptr), 0) << decimals << " decimals";
    }
  }
}

}  // namespace
}  // namespace plumbline::rules
