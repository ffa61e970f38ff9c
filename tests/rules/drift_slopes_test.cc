// Tests the false-alarm rate of the temperature fit on honest runs of few sequences, and prints its
// power (docs/measurements/drift.md). Ten runs each; 2,000 if PLUMB_LONG=1.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>

#include "analysis/drift/run.h"
#include "analysis/statistics/statistics.h"
#include "tests/rules/support/simulated_rollout.h"

namespace plumbline::rules {
namespace {

using testing::RolloutSimulator;
using testing::RolloutSpec;

constexpr double kStated = 5.7e-7;  // of cause.cc

bool Long() { return std::getenv("PLUMB_LONG") != nullptr; }

TemperatureMark MarkOf(const RolloutSpec& spec, double most) {
  DriftSite site("policy", "logprobs");
  RolloutSimulator simulator(spec);
  site.BeginStep(0, 0);
  for (const RolloutSequence& sequence : simulator.Step(0)) site.Take(sequence);
  site.EndStep();
  const DriftStatistics& s = site.statistics;
  return FindTemperature(s.slopes, static_cast<double>(s.fresh.count()), most);
}

RolloutSpec Honest(int sequences, int run) {
  RolloutSpec spec;
  spec.steps = 1;
  spec.sequences = sequences;
  spec.seed = 910000 + 10000 * sequences + run;
  spec.entropy = run % 2 == 0;
  const char* const kNoises[] = {"dense", "moe", "fp8"};
  spec.noise = kNoises[run % 3];
  spec.contexts = run % 5 == 0 ? 16 : 0;
  return spec;
}

// The slopes on log mu of an honest run whose differences have a random sign for each context, or
// for each sequence: their expectation is 0.
std::array<SlopeFit, 2> SignlessFits(const RolloutSpec& spec) {
  std::array<ClusteredSlope, 2> slopes;
  std::mt19937_64 random(static_cast<uint64_t>(spec.seed));
  std::normal_distribution<double> normal;
  RolloutSimulator simulator(spec);
  for (const RolloutSequence& sequence : simulator.Step(0)) {
    // A sequence's differences grow with log mu, by a random slope.
    const double of_sequence = normal(random);
    for (const RolloutToken& t : sequence.tokens) {
      const auto bits = std::bit_cast<uint64_t>(
          std::isfinite(t.train_entropy) ? t.train_entropy : t.rollout + double(t.token));
      const ContextKey context = ContextKeyOf(bits);
      const double sign =
          (ContextKeyOf(bits + static_cast<uint64_t>(spec.seed)) >> 20) % 2 ? 1 : -1;
      slopes[0].Add(t.rollout, sign * (t.train - t.rollout), context);
      slopes[1].Add(t.rollout, of_sequence * t.rollout, context);
    }
    for (ClusteredSlope& slope : slopes) slope.EndSequence();
  }
  return {slopes[0].Fit(), slopes[1].Fit()};
}

// Deviations of the slope: with Student's t after the error over contexts is widened for their
// number (twice), without it (only the widened error), and once for each of the two errors.
struct Deviations {
  double twice = 0, only_contexts = 0, once = 0;
};
Deviations DeviationsOf(const SlopeFit& fit) {
  if (!std::isfinite(fit.standard_error)) return {};
  const double degrees = static_cast<double>(fit.sequences) - 1;
  const double by_context = std::fabs(fit.z());
  const double by_sequence = NormalDeviateOfT(std::fabs(fit.slope / fit.sequence_error), degrees);
  return {NormalDeviateOfT(by_context, degrees), by_context, std::min(by_context, by_sequence)};
}

TEST(DriftSlopes, LevelOfTheSlopeOfFewSequences) {
  const int runs = Long() ? 2000 : 10;
  for (const int sequences : {4, 8, 16, 32, 64}) {
    std::array<std::map<double, std::array<int, 3>>, 2> alarms;
    for (int run = 0; run < runs; ++run) {
      const std::array<SlopeFit, 2> fits = SignlessFits(Honest(sequences, run));
      for (size_t by = 0; by < fits.size(); ++by) {
        const Deviations z = DeviationsOf(fits[by]);
        for (const double deviations : {1.96, 2.576, 3.29}) {
          std::array<int, 3>& count = alarms[by][deviations];
          count[0] += z.twice > deviations;
          count[1] += z.only_contexts > deviations;
          count[2] += z.once > deviations;
        }
      }
    }
    for (size_t by = 0; by < alarms.size(); ++by) {
      std::printf("%d sequences, by %s, %d runs:", sequences, by == 0 ? "context" : "sequence",
                  runs);
      for (const auto& [deviations, count] : alarms[by]) {
        const double expected = runs * std::erfc(deviations / std::sqrt(2.0));
        std::printf(" above %.3g (%.3g expected) twice %d, contexts only %d, once %d;", deviations,
                    expected, count[0], count[1], count[2]);
        EXPECT_LE(count[2], expected + 4 * std::sqrt(expected) + 1) << sequences;
      }
      std::printf("\n");
    }
  }
}

TEST(DriftSlopes, FalseAlarmsAndPowerOfFewSequences) {
  const int runs = Long() ? 2000 : 10;
  for (const int sequences : {4, 8, 16, 32, 64}) {
    std::printf("%d sequences: ", sequences);
    for (const double most : {0.05, 0.01, 1e-3, kStated}) {
      int alarms = 0;
      for (int run = 0; run < runs; ++run) alarms += MarkOf(Honest(sequences, run), most).found();
      const double expected = most * runs;
      std::printf("%d alarms at %.2g, ", alarms, most);
      EXPECT_LE(alarms, expected + 4 * std::sqrt(expected) + 1) << sequences << " " << most;
    }
    for (const double temperature : {1.05, 1.1, 1.2}) {
      int found = 0;
      for (int run = 0; run < runs / 5; ++run) {
        RolloutSpec spec = Honest(sequences, run);
        spec.sin = "processed-against-raw";
        spec.temperature = temperature;
        found += MarkOf(spec, kStated).found();
      }
      std::printf("T = %.2f: %d of %d, ", temperature, found, runs / 5);
      if (sequences >= 64 && temperature >= 1.2) {
        EXPECT_GE(found, 0.9 * runs / 5);
      }
    }
    std::printf("\n");
  }
}

}  // namespace
}  // namespace plumbline::rules
