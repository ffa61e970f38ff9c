// False alarms of health/loss-parts on simulated healthy games, and what it finds; 10 times as many
// if PLUMB_LONG is set.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <random>
#include <string>

#include "rules/engine/engine.h"
#include "tests/rules/support/spec_values.h"

namespace plumbline::rules::testing {
namespace {

using PartValues = std::map<std::string, std::function<double(double, double)>>;  // done, normal

int FindingsOf(const PartValues& series, int points, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  v1::Batch batch;
  AddTrainer(0, 1, &batch);
  for (int step = 0; step < points; ++step) {
    for (const auto& [op, value] : series) {
      v1::Evidence& evidence = *batch.add_evidence();
      evidence.mutable_site()->set_op(op);
      evidence.set_step(step);
      evidence.mutable_scalar()->set_value(
          value(static_cast<double>(step) / points, normal(random)));
    }
  }
  int findings = 0;
  EngineConfig config;
  config.rules = {"health/loss-parts"};
  auto engine = Engine::Create(config, [&](const v1::Verdict& verdict) {
    findings += verdict.kind() == v1::Verdict::KIND_FINDING ? 1 : 0;
  });
  EXPECT_TRUE(engine.ok()) << engine.status();
  EXPECT_TRUE((*engine)->Add(std::move(batch)).ok());
  (*engine)->Finish();
  return findings;
}

int Games() { return std::getenv("PLUMB_LONG") != nullptr ? 2000 : 200; }

TEST(LossParts, HealthyGamesHaveNone) {
  int found = 0;
  for (int i = 0; i < Games(); ++i) {
    const auto seed = static_cast<uint64_t>(i) + 1;
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> uniform;
    const double grows = std::pow(10, 4 * uniform(random)), noise = 0.1 + 0.7 * uniform(random);
    const double real = 0.05 + uniform(random), fake = 0.5 + 4 * uniform(random);
    found += FindingsOf(
        {{"losses/value_loss",
          [=](double t, double z) { return 0.02 * (1 + grows * t) * std::exp(noise * z); }},
         {"losses/policy_loss", [](double, double z) { return 0.01 * z; }},
         {"loss_D", [=](double t, double z) { return real * (1 - t / 2) * std::exp(noise * z); }},
         {"loss_G", [=](double t, double z) { return fake * (1 + t) * std::exp(noise * z); }},
         {"critic_loss", [=](double t, double z) { return -5 * std::exp(-6 * t) + 0.02 * z; }},
         {"kl_loss", [=](double t, double z) { return 30 * t * std::exp(0.1 * z); }}},
        20 + i % 200, seed);
  }
  EXPECT_EQ(found, 0);
}

TEST(LossParts, WhatExplodesIsFound) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const PartValues series = {{"losses/qf1_loss", [](double t, double z) {
                                  return std::exp(30 * std::max(0.0, t - 0.3) + 0.3 * z);
                                }}};
    EXPECT_GE(FindingsOf(series, 60, seed), 1) << seed;
  }
}

}  // namespace
}  // namespace plumbline::rules::testing
