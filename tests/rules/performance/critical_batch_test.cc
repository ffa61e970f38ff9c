// Measures how often performance/critical-batch reports runs below, at and above four critical
// batches.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>
#include <string>

#include "rules/engine/engine.h"
#include "tests/rules/support/spec_values.h"

namespace plumbline::rules {
namespace {

constexpr int kDimensions = 32, kSteps = 128;

// Returns a run whose large batch is `times` critical batches: per step, the gradient of the small
// batch and the average with the gradients of all others.
v1::Batch NoiseRun(double times, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  const double small = 16, big = 16 * 64;
  const double signal = 1, noise = signal * big / times;  // |G|^2, S
  v1::Batch batch;
  testing::AddTrainer(0, 1, &batch);
  const auto add = [&](int step, const char* name, double value) {
    v1::Evidence& evidence = *batch.add_evidence();
    evidence.mutable_site()->set_op(name);
    evidence.set_step(step);
    evidence.mutable_scalar()->set_value(value);
  };
  for (int step = 0; step < kSteps; ++step) {
    double small_square = 0, big_square = 0;
    for (int i = 0; i < kDimensions; ++i) {
      const double mean = std::sqrt(signal / kDimensions);
      const double own = mean + std::sqrt(noise / kDimensions / small) * normal(random);
      const double rest = mean + std::sqrt(noise / kDimensions / (big - small)) * normal(random);
      const double all = (small * own + (big - small) * rest) / big;
      small_square += own * own;
      big_square += all * all;
    }
    add(step, "gradient_noise.small_norm", std::sqrt(small_square));
    add(step, "gradient_noise.big_norm", std::sqrt(big_square));
    add(step, "gradient_noise.small_batch", small);
    add(step, "gradient_noise.big_batch", big);
  }
  return batch;
}

int Accused(double times, int runs) {
  int accused = 0;
  for (int run = 0; run < runs; ++run) {
    EngineConfig config;
    config.rules = {"performance/critical-batch"};
    auto engine = Engine::Create(config, [&](const v1::Verdict& verdict) {
      if (verdict.rule() != "performance/critical-batch") return;
      accused += verdict.kind() == v1::Verdict::KIND_FINDING ? 1 : 0;
    });
    EXPECT_TRUE(engine.ok()) << engine.status();
    EXPECT_TRUE((*engine)
                    ->Add(NoiseRun(times, static_cast<uint64_t>(1000 * times) +
                                              7919u * static_cast<uint64_t>(run)))
                    .ok());
    (*engine)->Finish();
  }
  return accused;
}

TEST(CriticalBatch, AccusesBeyondFourTimesAndSeldomAtIt) {
  const int runs = std::getenv("PLUMB_LONG") != nullptr ? 2000 : 60;
  const int half = Accused(2, runs), at = Accused(4, runs), beyond = Accused(8, runs);
  RecordProperty("runs", runs);
  RecordProperty("accused_at_twice", half);
  RecordProperty("accused_at_four_times", at);
  RecordProperty("accused_at_eight_times", beyond);
  EXPECT_EQ(half, 0);
  EXPECT_LE(at, 3 + runs / 50);
  EXPECT_GE(beyond, runs * 95 / 100);
}

}  // namespace
}  // namespace plumbline::rules
