// Tests health/update-ratio on simulated runs: usual schedules and optimizers are not reported;
// rates that are wrong by decades are found, in series and in observed updates.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/rules/support/spec_values.h"
#include "tests/rules/support/update_run.h"
#include "tests/rules/support/verdicts.h"
#include "tests/support/batches.h"

namespace plumbline::rules {
namespace {

using testing::Draw;
using testing::Verdicts;
using testing::VerdictsOf;

constexpr char kRule[] = "health/update-ratio";
enum class Schedule {
  kConstant,
  kCosine,
  kLinear,
  kStable
};  // the last: warm-up, then a late decay

// The injector: a run's rate, its ratio, and the gradient's norm.
struct RatioRun {
  int steps = 1500;
  int every = 1;
  Schedule schedule = Schedule::kCosine;
  int warm_up = 100;
  double peak = 3e-4;   // of the rate
  double ratio = 2e-3;  // at the peak
  double spread = 0.2;  // standard deviation of its ln
  double correlation = 0.5;
  bool sgd = false;  // the ratio follows the gradient, which falls by three decades
  bool rate_reported = true;
  bool logarithms = false;
  double fault = 1;  // factor on the ratio
  int fault_from = 0;
  uint64_t seed = 1;

  double RateShare(int step) const {
    if (step < warm_up) return static_cast<double>(step) / warm_up;
    const double t = static_cast<double>(step - warm_up) / (steps - warm_up);
    switch (schedule) {
      case Schedule::kConstant:
        return 1;
      case Schedule::kCosine:
        return 0.5 * (1 + std::cos(3.14159265358979 * t));
      case Schedule::kLinear:
        return 1 - t;
      case Schedule::kStable:
        return t < 0.8 ? 1 : (1 - t) / 0.2;
    }
    return 1;
  }

  v1::Batch Batch() const {
    Draw draw(seed);
    v1::Batch batch = test::BatchOf(test::SourceOf("run"));
    double noise = 0;
    for (int step = 0; step < steps; ++step) {
      noise = correlation * noise + std::sqrt(1 - correlation * correlation) * draw.Normal();
      const double share = RateShare(step);
      const double gradient = sgd ? std::pow(10.0, -3.0 * step / steps) : 1;
      double value = ratio * share * gradient * std::exp(spread * noise);
      if (step >= fault_from) value *= fault;
      if (step % every != 0) continue;
      if (rate_reported) test::AddScalar(&batch, "lr", step, peak * share);
      test::AddScalar(&batch, "grad_norm", step, gradient);
      test::AddScalar(&batch, "update_ratio", step, logarithms ? std::log10(value) : value);
    }
    return batch;
  }
};

RatioRun Healthy(uint64_t seed) {
  Draw draw(seed * 104729);
  RatioRun run{.seed = seed};
  run.schedule = static_cast<Schedule>(seed % 4);
  run.warm_up = seed % 3 == 0 ? 0 : static_cast<int>(400 * draw.Uniform());
  run.ratio = std::pow(10.0, -3.2 + 1.2 * draw.Uniform());
  run.spread = 0.05 + 0.45 * draw.Uniform();
  run.correlation = 0.98 * draw.Uniform();
  run.sgd = seed % 5 == 0;
  run.rate_reported = seed % 3 != 1;
  run.every = seed % 7 == 0 ? 10 : 1;
  return run;
}

TEST(UpdateRatio, NoFalseAlarmOnHealthyRuns) {
  int alarms = 0;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    const int found = testing::Findings(VerdictsOf(kRule, {Healthy(seed).Batch()}), kRule);
    alarms += found > 0 ? 1 : 0;
  }
  EXPECT_LE(alarms, 5);  // the rate that the page states
  RecordProperty("alarms", alarms);
}

TEST(UpdateRatio, WrongByDecadesIsFound) {
  int small = 0, large = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    RatioRun run = Healthy(seed);
    run.sgd = false;
    run.rate_reported = true;
    run.logarithms = seed % 2 == 0;
    run.fault_from = seed % 3 == 0 ? 400 : 0;
    run.fault = 1e-4;
    const Verdicts low = VerdictsOf(kRule, {run.Batch()});
    small += testing::Findings(low, kRule, "updates-too-small");
    run.fault = 1e4;
    const Verdicts high = VerdictsOf(kRule, {run.Batch()});
    large += testing::Findings(high, kRule, "updates-too-large");
    for (const Verdicts& verdicts : {low, high}) {
      ASSERT_EQ(verdicts.size(), 1u);
      EXPECT_GE(verdicts[0].site().step_first(), run.fault_from) << seed;
    }
  }
  EXPECT_EQ(small, 100);
  EXPECT_EQ(large, 100);
}

TEST(UpdateRatio, HundredPoints) {
  for (int points = 95; points <= 105; ++points) {
    v1::Batch batch = test::BatchOf(test::SourceOf("run"));
    for (int step = 0; step < 400; ++step) {
      test::AddScalar(&batch, "lr", step, 1e-3);
      const bool outside = step >= 50 && step < 50 + points;
      test::AddScalar(&batch, "update_ratio", step, outside ? 0.5 : 1e-3);
    }
    const Verdicts verdicts = VerdictsOf(kRule, {batch});
    EXPECT_EQ(testing::Findings(verdicts, kRule), points >= 100 ? 1 : 0) << points;
    if (points >= 100) {
      EXPECT_EQ(verdicts[0].site().step_first(), 50);
    }
  }
}

// A few points suffice if all of them are far below: one second's run is rarely observed.
TEST(UpdateRatio, FewPointsThatAreFarBelow) {
  struct Looks {
    int count = 8;
    int apart = 30;  // steps
    double ratio = 8e-7;
    bool rated = true;
    double first = 8e-7;
  };
  const auto findings = [](const Looks& looks) {
    v1::Batch batch = test::BatchOf(test::SourceOf("run"));
    const int end = 16 + looks.count * looks.apart;
    for (int step = 0; step < end; ++step) {
      if (looks.rated) test::AddScalar(&batch, "lr", step, 5e-2);
      if (step < 16 || (step - 16) % looks.apart != 0) continue;
      test::AddScalar(&batch, "update_ratio", step, step == 16 ? looks.first : looks.ratio);
    }
    return testing::Findings(VerdictsOf(kRule, {batch}), kRule, "updates-too-small");
  };
  EXPECT_EQ(findings({}), 1);
  EXPECT_EQ(findings({.ratio = 0, .first = 0}), 1);
  EXPECT_EQ(findings({.count = 7, .apart = 40}), 0);
  EXPECT_EQ(findings({.apart = 28}), 0);  // over 197 steps
  EXPECT_EQ(findings({.ratio = 2e-6, .first = 2e-6}), 0);
  EXPECT_EQ(findings({.first = 2e-6}), 0);
  EXPECT_EQ(findings({.first = 1e-3}), 0);
  EXPECT_EQ(findings({.rated = false}), 0);  // it may be a warm-up
  EXPECT_EQ(findings({.ratio = NAN, .first = NAN}), 0);
}

// A resume begins another run: points outside before it are not added.
TEST(UpdateRatio, ARestartBeginsAnew) {
  std::vector<v1::Batch> batches;
  for (uint32_t attempt = 0; attempt < 2; ++attempt) {
    batches.push_back(test::BatchOf(test::SourceOf("run", 0, 1, attempt)));
    const int first = attempt == 0 ? 0 : 80;
    for (int step = first; step < first + 80; ++step)
      test::AddScalar(&batches.back(), "update_ratio", step, 0.5);
    test::AddProgress(&batches.back(), first + 79);
  }
  EXPECT_EQ(testing::Findings(VerdictsOf(kRule, batches), kRule), 0);
}

// Observed updates, from their sampled elements.
TEST(UpdateRatio, ObservedUpdates) {
  const auto findings = [](double step_sd, const std::string& optimizer, double lr) {
    testing::UpdateRunSpec spec{.layers = 2, .elements = 512, .steps = 130};
    spec.dtype = DType::kF32;
    spec.weight_sd = 0.02;
    spec.step_sd = step_sd;
    spec.optimizer = optimizer;
    spec.lr = lr;
    return testing::Findings(VerdictsOf(kRule, {testing::UpdateRun(spec)}), kRule);
  };
  EXPECT_EQ(findings(2e-5, "adamw", 1e-3), 0);  // 10^-3
  EXPECT_EQ(findings(2e-8, "adamw", 1e-6), 2);  // 10^-6
  EXPECT_EQ(findings(2e-8, "ema", 1e-6), 0);    // an average is not a trained weight
}

// Biases and gains have no natural scale.
TEST(UpdateRatio, OneAxisIsLeftOut) {
  testing::UpdateRunSpec spec{.elements = 512, .steps = 130};
  spec.dtype = DType::kF32;
  spec.step_sd = 2e-8;
  spec.lr = 1e-6;
  v1::Batch batch = testing::UpdateRun(spec);
  v1::Batch named = batch;
  for (v1::Evidence& e : *named.mutable_evidence()) e.mutable_site()->set_layer("block.ln.bias");
  EXPECT_EQ(testing::Findings(VerdictsOf(kRule, {named}), kRule), 0);
  // Decides by the shape of the weight that is observed in the same step.
  v1::Batch shaped = batch;
  for (int step = 0; step < 130; ++step) {
    v1::Evidence& e = *shaped.add_evidence();
    e.set_step(step);
    e.mutable_site()->set_layer("layers.0.w");
    e.mutable_site()->set_op("weight");
    e.mutable_tensor()->set_role("weight");
    e.mutable_tensor()->set_dtype(v1::DTYPE_F32);
    e.mutable_tensor()->add_shape(512);
  }
  EXPECT_EQ(testing::Findings(VerdictsOf(kRule, {shaped}), kRule), 0);
  EXPECT_EQ(testing::Findings(VerdictsOf(kRule, {batch}), kRule), 1);
}

TEST(UpdateRatio, PoisonNeitherAccusesNorBlinds) {
  for (const double poison : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    for (const bool fault : {false, true}) {
      v1::Batch batch = test::BatchOf(test::SourceOf("run"));
      for (int step = 0; step < 400; ++step) {
        test::AddScalar(&batch, "lr", step, step % 5 == 2 ? poison : 1e-3);
        const double ratio = fault ? 1e-6 : 1e-3;
        test::AddScalar(&batch, "update_ratio", step, step % 3 == 1 ? poison : ratio);
      }
      EXPECT_EQ(testing::Findings(VerdictsOf(kRule, {batch}), kRule), fault ? 1 : 0) << poison;
    }
  }
}

}  // namespace
}  // namespace plumbline::rules
