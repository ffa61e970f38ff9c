// Measures the false alarm rate of performance/mfu on healthy series and its detection rate of a
// drop.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>

#include "rules/engine/engine.h"
#include "tests/rules/support/spec_values.h"

namespace plumbline::rules {
namespace {

constexpr int kPoints = 1024;

// Returns a series with 3 % noise, a dip to half every 100 points and 3 % drift. From `drop_at` on,
// it is lower by the fraction `drop`.
v1::Batch MfuRun(uint64_t seed, int drop_at, double drop) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  v1::Batch batch;
  testing::AddTrainer(0, 1, &batch);
  for (int step = 0; step < kPoints; ++step) {
    double value = 0.41 * (1 - 0.03 * step / kPoints) * (1 + 0.03 * normal(random));
    if (step % 100 == 99) value /= 2;
    if (step >= drop_at) value *= 1 - drop;
    v1::Evidence& evidence = *batch.add_evidence();
    evidence.mutable_site()->set_op("mfu");
    evidence.set_step(step);
    evidence.mutable_scalar()->set_value(value);
  }
  return batch;
}

int Alarms(int runs, int drop_at, double drop) {
  int alarms = 0;
  for (int run = 0; run < runs; ++run) {
    EngineConfig config;
    config.rules = {"performance/mfu"};
    auto engine = Engine::Create(config, [&](const v1::Verdict& verdict) {
      if (verdict.rule() != "performance/mfu") return;
      alarms += verdict.kind() == v1::Verdict::KIND_FINDING ? 1 : 0;
    });
    EXPECT_TRUE(engine.ok()) << engine.status();
    EXPECT_TRUE((*engine)->Add(MfuRun(static_cast<uint64_t>(run) + 1, drop_at, drop)).ok());
    (*engine)->Finish();
  }
  return alarms;
}

TEST(Mfu, AlarmsOfDropsAndOfNothingElse) {
  const int runs = std::getenv("PLUMB_LONG") != nullptr ? 2000 : 50;
  const int healthy = Alarms(runs, kPoints, 0);
  const int fell = Alarms(runs, 500, 0.15);
  RecordProperty("runs", runs);
  RecordProperty("healthy_alarms", healthy);
  RecordProperty("drops_of_15_per_cent_found", fell);
  EXPECT_LE(healthy, runs / 500);
  EXPECT_GE(fell, runs * 95 / 100);
}

// Returns the highest level for a speed in tokens of this course (of done, 0 to 1), with a length
// of sequences if one is given.
v1::Level LevelOfSpeed(const std::string& op, double (*course)(double), double (*length)(double),
                       int points, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  v1::Batch batch;
  testing::AddTrainer(0, 1, &batch);
  const auto add = [&](const std::string& name, int step, double value) {
    v1::Evidence& evidence = *batch.add_evidence();
    evidence.mutable_site()->set_op(name);
    evidence.set_step(step);
    evidence.mutable_scalar()->set_value(value);
  };
  for (int step = 0; step < points; ++step) {
    const double done = static_cast<double>(step) / points;
    add(op, step, 5000 * course(done) * (1 + 0.03 * normal(random)));
    if (length != nullptr) add("seq_len", step, length(done));
  }
  v1::Level level = v1::LEVEL_UNSPECIFIED;
  EngineConfig config;
  config.rules = {"performance/mfu"};
  auto engine = Engine::Create(config, [&](const v1::Verdict& verdict) {
    if (verdict.rule() == "performance/mfu" && verdict.has_finding())
      level = std::max(level, verdict.finding().level());
  });
  EXPECT_TRUE(engine.ok()) << engine.status();
  EXPECT_TRUE((*engine)->Add(std::move(batch)).ok());
  (*engine)->Finish();
  return level;
}

double Collapses(double done) { return done < 0.6 ? 1 : 0.2; }
double LongCollapses(double done) { return done < 0.6 ? 512 : 8192; }

TEST(Mfu, SpeedsAreJudgedForCollapsesOnly) {
  using Course = double (*)(double);
  const Course healthy[] = {[](double t) { return 1 - 0.6 * t; },
                            [](double t) { return t < 0.5 ? 1 : 0.85; },
                            [](double t) { return 1 + 0.6 * std::exp(-30 * t); },
                            [](double t) { return 1 / (1 + 0.13 * std::floor(5 * t)); }};
  for (const int points : {60, 130, 200, 600}) {
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      for (const Course course : healthy) {
        for (const char* op : {"tokens_per_second", "samples_per_second", "it/s"})
          EXPECT_EQ(LevelOfSpeed(op, course, nullptr, points, seed), v1::LEVEL_UNSPECIFIED) << op;
      }
      for (const char* op : {"tps", "samples_per_second", "it/s", "images/sec",
                             "throughput per GPU (TFLOP/s/GPU)"}) {
        EXPECT_EQ(LevelOfSpeed(op, Collapses, nullptr, points, seed), v1::LEVEL_WARNING) << op;
        EXPECT_EQ(LevelOfSpeed(op, Collapses, LongCollapses, points, seed), v1::LEVEL_NOTE) << op;
      }
    }
  }
}

}  // namespace
}  // namespace plumbline::rules
