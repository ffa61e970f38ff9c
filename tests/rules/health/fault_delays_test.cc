// Measures how soon faults are reported that no figure of the loss rules covers: one is planted in
// each of 20 runs that were healthy until then, fed step by step. Prints the table of
// docs/measurements/losses.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "rules/engine/engine.h"
#include "tests/rules/support/spec_values.h"
#include "tests/support/batches.h"

namespace plumbline::rules {
namespace {

constexpr int kSeeds = 20, kSteps = 1500;

// Values of one step; `since` is the number of steps since the fault began, negative before.
struct Logged {
  double loss = 0, norm = 0, rate = 0, scale = 65536;
  uint64_t zeros = 3;  // of 256 gradients of one layer
  uint32_t attempt = 0;
};

struct Fault {
  const char* name;
  const char* rule;
  int64_t latest;  // maximum delay in steps
  std::function<void(int64_t since, Logged*)> plant;
};

Logged Healthy(int64_t step, testing::Draw& draw) {
  Logged logged;
  const auto n = static_cast<double>(step);
  logged.loss = (2 + 8 / std::sqrt(n + 1)) * std::exp(0.02 * draw.Normal());
  logged.norm = (0.5 + 2 / (1 + n / 50)) * std::exp(0.2 * draw.Normal());
  logged.rate = 1e-3 * (0.1 + 0.45 * (1 + std::cos(3.14159265358979 * n / kSteps)));
  return logged;
}

v1::Batch StepOf(int64_t step, const Logged& logged) {
  v1::Batch batch = test::BatchOf(test::SourceOf("run", 0, 1, logged.attempt));
  test::AddScalar(&batch, "loss", step, logged.loss);
  test::AddScalar(&batch, "grad_norm", step, logged.norm);
  test::AddScalar(&batch, "lr", step, logged.rate);
  test::AddScalar(&batch, "loss_scale", step, logged.scale);
  v1::Evidence& gradient = *batch.add_evidence();
  gradient.mutable_site()->set_layer("layers.3");
  gradient.mutable_site()->set_op("gradient");
  gradient.set_step(step);
  gradient.mutable_tensor()->set_role("gradient");
  gradient.mutable_tensor()->set_dtype(v1::DTYPE_F32);
  gradient.mutable_tensor()->mutable_summary()->set_count(256);
  gradient.mutable_tensor()->mutable_summary()->set_zero(logged.zeros);
  test::AddProgress(&batch, step);
  return batch;
}

// Returns the steps from the onset to the first warning of the fault's rule; -1 if there is none. A
// warning before the onset is a false alarm.
int64_t DelayOf(const Fault& fault, int64_t onset, uint64_t seed) {
  testing::Draw draw(seed);
  int64_t now = 0, reported = -1;
  auto engine = *Engine::Create({.rules = {"health/*"}}, [&](const v1::Verdict& verdict) {
    if (verdict.finding().level() < v1::LEVEL_WARNING) return;
    EXPECT_GE(now, onset) << verdict.rule() << " " << seed;
    if (verdict.rule() == fault.rule && reported < 0) reported = now;
  });
  for (int64_t step = 0; step < kSteps && reported < 0; ++step) {
    now = step;
    Logged logged = Healthy(step, draw);
    if (step >= onset) fault.plant(step - onset, &logged);
    EXPECT_TRUE(engine->Add(StepOf(step, logged)).ok());
  }
  return reported < 0 ? -1 : reported - onset;
}

const std::vector<Fault>& Faults() {
  static const std::vector<Fault> faults = {
      {"a NaN loss", "health/loss-non-finite", 0,
       [](int64_t, Logged* logged) { logged->loss = NAN; }},
      {"gradients explode", "health/gradient-spike", 0,
       [](int64_t, Logged* logged) { logged->norm *= 1e8; }},
      {"gradients vanish", "health/gradient-vanish", 9,
       [](int64_t, Logged* logged) { logged->norm *= 1e-9; }},
      {"gradients are zero", "health/gradient-vanish", 9,
       [](int64_t, Logged* logged) { logged->norm = 0; }},
      {"one layer's gradient is zero", "health/all-zero", 9,
       [](int64_t, Logged* logged) { logged->zeros = 256; }},
      {"the loss scale halves every 10 steps", "health/loss-scale", 100,
       [](int64_t since, Logged* logged) {
         logged->scale = std::ldexp(65536.0, -static_cast<int>(since / 10 + 1));
       }},
      {"the rate is zero", "health/learning-rate", 99,  // it may return before
       [](int64_t, Logged* logged) { logged->rate = 0; }},
      {"a resume begins the schedule anew", "health/learning-rate", 0,
       [](int64_t since, Logged* logged) {
         logged->attempt = 1;
         logged->rate =
             1e-3 *
             (0.1 + 0.45 * (1 + std::cos(3.14159265358979 * static_cast<double>(since) / kSteps)));
       }},
  };
  return faults;
}

TEST(FaultDelays, AreSmall) {
  for (const Fault& fault : Faults()) {
    std::vector<int64_t> delays;
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      // A resume is recognised by its rate if that had fallen below a quarter.
      const bool resume = fault.latest == 0 && std::string(fault.rule) == "health/learning-rate";
      const int64_t onset = (resume ? 1250 : 300) + static_cast<int64_t>(seed) * 10;
      delays.push_back(DelayOf(fault, onset, seed));
      EXPECT_GE(delays.back(), 0) << fault.name << " " << seed;
      EXPECT_LE(delays.back(), fault.latest) << fault.name << " " << seed;
    }
    std::sort(delays.begin(), delays.end());
    std::printf("| %s | %s | %d | %d | %lld | %lld |\n", fault.name, fault.rule, kSeeds,
                static_cast<int>(std::count_if(delays.begin(), delays.end(),
                                               [](int64_t delay) { return delay >= 0; })),
                static_cast<long long>(delays[delays.size() / 2]),
                static_cast<long long>(delays.back()));
  }
}

// A run that never learns, from its first point on; judged when it has 4,096, 8,192, ... points.
TEST(FaultDelays, ARunThatNeverLearns) {
  std::vector<int64_t> delays;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    testing::Draw draw(seed);
    int64_t now = 0, reported = -1;
    auto engine =
        *Engine::Create({.rules = {"health/loss-stall"}}, [&](const v1::Verdict& verdict) {
          if (verdict.finding().level() >= v1::LEVEL_WARNING && reported < 0) reported = now;
        });
    for (int64_t step = 0; step < 9000 && reported < 0; ++step) {
      now = step;
      Logged logged;
      logged.loss = 9.2 * std::exp(0.01 * draw.Normal());
      EXPECT_TRUE(engine->Add(StepOf(step, logged)).ok());
    }
    EXPECT_GE(reported, 0) << seed;
    delays.push_back(reported);
  }
  std::sort(delays.begin(), delays.end());
  std::printf("| the loss never falls | health/loss-stall | %d | %d | %lld | %lld |\n", kSeeds,
              kSeeds, static_cast<long long>(delays[delays.size() / 2]),
              static_cast<long long>(delays.back()));
}

}  // namespace
}  // namespace plumbline::rules
