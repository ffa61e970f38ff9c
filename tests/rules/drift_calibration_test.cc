// Tests the confidence of named causes on runs with mixed causes of several sizes, including small
// ones: of the causes with confidence p, at least the fraction p must be correct, up to chance. A
// few runs each; forty times as many if PLUMB_LONG=1.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "analysis/drift/run.h"
#include "tests/rules/support/simulated_rollout.h"

namespace plumbline::rules {
namespace {

using testing::RolloutSimulator;
using testing::RolloutSpec;

struct Truth {
  RolloutSpec spec;
  std::string cause;
};

RolloutSpec Base() {
  RolloutSpec spec;
  spec.steps = 24;
  spec.sequences = 8;
  spec.contexts = 64;
  spec.entropy = true;
  return spec;
}

template <typename Change>
void Add(std::vector<Truth>* list, const char* sin, const char* cause, const Change& change) {
  RolloutSpec spec = Base();
  spec.sin = sin;
  change(spec);
  list->push_back({spec, cause});
  spec.entropy = false;
  list->push_back({spec, cause});
}

std::vector<Truth> Causes() {
  std::vector<Truth> list;
  for (const char* noise : {"dense", "moe", "fp8", "none"})
    Add(&list, "", "noise", [&](auto& s) { s.noise = noise; });
  for (const double size : {0.05, 0.3, 1.0, 2.0})
    Add(&list, "batch-variance", "noise", [&](auto& s) { s.size = size; });  // dropout
  for (const double t : {0.8, 0.95, 0.99, 1.02, 1.1}) {
    Add(&list, "raw-at-temperature", "temperature", [&](auto& s) { s.temperature = t; });
    Add(&list, "processed-against-raw", "temperature", [&](auto& s) { s.temperature = t; });
  }
  Add(&list, "processed-against-raw", "temperature", [](auto& s) {
    s.temperature = 0.85;
    s.other_temperature = 1.15;
    s.guilty = "worker";
  });
  for (const double p : {0.8, 0.95, 0.99})
    Add(&list, "truncated", "truncation", [&](auto& s) { s.top_p = p; });
  for (const double p : {0.8, 0.95}) {
    Add(&list, "truncated", "truncation", [&](auto& s) {
      s.top_p = p;
      s.declared = true;
      s.mode = "processed";
    });
  }
  Add(&list, "off-by-one", "misalignment", [](auto&) {});
  for (const double share : {0.005, 0.03, 0.1}) {
    Add(&list, "retokenised", "retokenisation", [&](auto& s) { s.share = share; });
    Add(&list, "zero-filled", "zero-filled", [&](auto& s) { s.share = share; });
  }
  for (const double size : {0.03, 0.1, 0.3}) {
    Add(&list, "stale-cache", "stale-cache", [&](auto& s) { s.size = size; });
    Add(&list, "stale-cache", "stale-cache", [&](auto& s) {
      s.size = size;
      s.restart_every = s.reset;
    });
  }
  for (const double drift : {0.03, 0.06, 0.1}) {
    Add(&list, "missed-sync", "missed-sync", [&](auto& s) {
      s.from_step = 12;
      s.ramp = true;
      s.steps = 40;
      s.drift = drift;
    });
  }
  for (const int lag : {1, 4, 8}) Add(&list, "", "staleness", [&](auto& s) { s.lag = lag; });
  for (const char* side : {"rollout", "both"}) {
    for (const char* noise : {"none", "dense"}) {
      Add(&list, "", "rounded-logits", [&](auto& s) {
        s.rounded = side;
        s.noise = noise;
      });
    }
  }
  return list;
}

DriftCause Name(RolloutSpec spec, int seed) {
  spec.seed = seed;
  RolloutSimulator simulator(spec);
  DriftSite site("policy", "logprobs");
  for (int step = 0; step < spec.steps; ++step) {
    site.BeginStep(spec.restart_every > 0 ? static_cast<uint32_t>(step / spec.restart_every) : 0,
                   step);
    for (const RolloutSequence& sequence : simulator.Step(step)) site.Take(sequence);
    site.EndStep();
  }
  site.End();
  return site.Cause();
}

TEST(DriftCalibration, ANameIsRightAsOftenAsItStates) {
  const int runs = std::getenv("PLUMB_LONG") != nullptr ? 80 : 2;
  struct Count {
    int right = 0, all = 0;
    std::map<std::string, int> instead;
  };
  std::map<std::pair<std::string, double>, Count> counts;
  int unknown = 0, all = 0;
  for (const Truth& truth : Causes()) {
    for (int run = 0; run < runs; ++run) {
      const DriftCause cause = Name(truth.spec, 300 + run);
      ++all;
      unknown += cause.id == "unknown";
      if (cause.id == "unknown") continue;
      Count& count = counts[{cause.id, cause.confidence}];
      ++count.all;
      count.right += cause.id == truth.cause;
      if (cause.id != truth.cause) ++count.instead[truth.cause];
    }
  }
  for (const auto& [key, count] : counts) {
    std::string instead;
    for (const auto& [cause, n] : count.instead) instead += " " + cause + " " + std::to_string(n);
    std::printf("%-15s %.2f: right in %d of %d%s%s\n", key.first.c_str(), key.second, count.right,
                count.all, instead.empty() ? "" : "; instead:", instead.c_str());
    // Fails if the number is below the promise by more than 3 binomial standard deviations.
    const double n = count.all, p = key.second;
    EXPECT_GE(count.right, n * p - 3 * std::sqrt(n * p * (1 - p))) << key.first << " " << p;
  }
  std::printf("%d runs, %d unknown\n", all, unknown);
  EXPECT_LT(4 * unknown, all);  // Abstaining is limited.
}

}  // namespace
}  // namespace plumbline::rules
