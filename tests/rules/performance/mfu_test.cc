// Measures the false alarm rate of performance/mfu on healthy series and its detection rate of a
// drop.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

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

}  // namespace
}  // namespace plumbline::rules
