// The causes of drift: a confusion matrix of injectors and named causes at given sizes. Ten times
// as many runs if PLUMB_LONG=1.
//
// The following pairs are indistinguishable; the expected result is either of them or none:
// - batch variance on one side and plain noise, if the trainer was not compared with itself;
// - a temperature below 1 and top-p (or a leak of likely tokens), if both sides log raw values and
//   nothing is declared: "unknown";
// - a prefix cache that outlives updates, a tensor that skips updates and scales that age, if
//   cached_tokens are not recorded: "unknown";
// - logits of both sides rounded to 16 bits and noise, if the rounding changes the log-sums by more
//   than a tenth of a unit, as in both families here (full logits resolve it);
// - unrecorded staleness and noise.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "analysis/drift/run.h"
#include "tests/rules/support/simulated_rollout.h"

namespace plumbline::rules {
namespace {

using testing::RolloutSimulator;
using testing::RolloutSpec;

bool Long() { return std::getenv("PLUMB_LONG") != nullptr; }

// 24 steps of 16 sequences of 64 tokens: 24,576 tokens.
RolloutSpec BaseRun(const std::string& family, const std::string& sin = "") {
  RolloutSpec spec;
  spec.family = family;
  spec.sin = sin;
  spec.steps = 24;
  spec.entropy = true;
  if (family == "large") spec.contexts = 16;
  return spec;
}

RolloutSpec At(RolloutSpec spec, double temperature, double top_p = 1) {
  spec.temperature = temperature;
  spec.top_p = top_p;
  return spec;
}

RolloutSpec Own(RolloutSpec spec, bool declared) {  // the rollout's own columns
  spec.entropy = false;
  spec.rollout_entropy = spec.rollout_varentropy = true;
  spec.declared = declared;
  return spec;
}

RolloutSpec NoEntropy(RolloutSpec spec) {
  spec.entropy = false;
  return spec;
}

struct Injected {
  std::string name;
  RolloutSpec spec;
  std::string cause;  // The expected cause.
  bool apart = true;  // If false, "unknown" is expected.
};

std::vector<Injected> Injectors(const std::string& family) {
  std::vector<Injected> list;
  const auto add = [&](std::string name, RolloutSpec spec, std::string cause) {
    list.push_back({std::move(name), std::move(spec), std::move(cause)});
  };
  RolloutSpec spec = BaseRun(family);
  add("dense", spec, "noise");
  spec.noise = "moe";
  add("moe", spec, "noise");
  spec.noise = "fp8";
  add("fp8", spec, "noise");
  spec = BaseRun(family);
  spec.noise = "none";
  spec.rounded = "rollout";
  add("rounded", spec, "rounded-logits");
  spec = BaseRun(family);
  spec.lag = 8;
  add("stale", spec, "staleness");
  for (const double t : {0.8, 0.9, 1.1, 1.4}) {
    const std::string at = " at " + std::to_string(t).substr(0, 3);
    add("raw rollout, trainer" + at, At(BaseRun(family, "raw-at-temperature"), t), "temperature");
    add("the same without entropies" + at, NoEntropy(At(BaseRun(family, "raw-at-temperature"), t)),
        "temperature");
    add("processed" + at + ", raw trainer", At(BaseRun(family, "processed-against-raw"), t),
        "temperature");
    add("the same without entropies, processed" + at,
        NoEntropy(At(BaseRun(family, "processed-against-raw"), t)), "temperature");
  }
  add("both raw at 1.2", Own(At(BaseRun(family, "both-raw"), 1.2), false), "temperature");
  add("both raw at 0.8, declared", Own(At(BaseRun(family, "both-raw"), 0.8), true), "temperature");
  add("both raw, top-p, declared", Own(At(BaseRun(family, "both-raw"), 1, 0.8), true),
      "truncation");
  list.push_back(
      {"both raw at 0.8", Own(At(BaseRun(family, "both-raw"), 0.8), false), "unknown", false});
  add("top-p 0.95", At(BaseRun(family, "truncated"), 1, 0.95), "truncation");
  add("top-p 0.9", At(BaseRun(family, "truncated"), 1, 0.9), "truncation");
  add("off by one", BaseRun(family, "off-by-one"), "misalignment");
  add("retokenised", BaseRun(family, "retokenised"), "retokenisation");
  add("zeros", BaseRun(family, "zero-filled"), "zero-filled");
  spec = BaseRun(family, "missed-sync");
  spec.from_step = 12;
  spec.ramp = true;
  spec.steps = 40;
  spec.drift = 0.06;
  add("missed sync", spec, "missed-sync");
  spec = BaseRun(family, "missed-sync");
  spec.from_step = 12;
  spec.versions = 8;
  add("a flat jump", spec, "unknown");
  spec = BaseRun(family, "stale-cache");
  spec.size = 0.3;
  add("stale cache", spec, "stale-cache");
  spec.restart_every = spec.reset;
  add("stale cache, restarts", spec, "stale-cache");
  spec = BaseRun(family);
  spec.lag = 8;
  spec.behaviour = true;
  add("stale, third pass", spec, "staleness");
  spec.drift = 0.002;
  add("stale by little, third pass", spec, "noise");
  spec = BaseRun(family);
  spec.lag = 9;
  spec.in_flight = 8;
  add("updates in flight", spec, "staleness");
  spec = BaseRun(family, "batch-variance");
  spec.behaviour = true;
  add("batch variance, third pass", spec, "batch-variance");
  spec.sin = "";
  add("dense, third pass", spec, "noise");
  spec = BaseRun(family, "sharpening");
  spec.lag = 8;
  spec.size = 0.02;
  add("sharpening", spec, "staleness");
  list.push_back({"batch variance", BaseRun(family, "batch-variance"), "noise", false});
  spec = BaseRun(family, "rewarded");
  spec.advantages = true;
  spec.size = 0.01;
  list.push_back({"by the advantage", spec, "unknown", false});
  spec = BaseRun(family);
  spec.rounded = "logits";
  list.push_back({"both sides' logits rounded", spec, "noise", false});
  spec.rounded = "train-logits";
  list.push_back({"the trainer's logits rounded", spec, "noise", false});
  return list;
}

DriftSite Simulate(RolloutSpec spec, int seed) {
  spec.seed = seed;
  RolloutSimulator simulator(spec);
  DriftSite site("policy", "logprobs");
  for (int step = 0; step < spec.steps; ++step) {
    site.BeginStep(spec.restart_every > 0 ? step / spec.restart_every : 0, step);
    for (const RolloutSequence& sequence : simulator.Step(step)) site.Take(sequence);
    site.EndStep();
  }
  site.End();
  return site;
}

struct Totals {
  int right = 0, wrong = 0, abstained = 0;
};

Totals Confuse(const std::string& family, int runs) {
  Totals all;
  for (const Injected& injected : Injectors(family)) {
    std::map<std::string, int> named;
    for (int run = 0; run < runs; ++run) ++named[Simulate(injected.spec, 1000 + run).Cause().id];
    std::string row;
    for (const auto& [id, count] : named) row += "  " + id + " " + std::to_string(count);
    std::printf("%-6s %-44s%s\n", family.c_str(), injected.name.c_str(), row.c_str());
    if (!injected.apart) continue;
    for (const auto& [id, count] : named) {
      (id == injected.cause ? all.right : id == "unknown" ? all.abstained : all.wrong) += count;
    }
    EXPECT_GE(named[injected.cause], runs * 9 / 10) << injected.name;
  }
  return all;
}

void ExpectNamed(const std::string& family, int runs) {
  const Totals t = Confuse(family, runs);
  const double n = t.right + t.wrong + t.abstained;
  std::printf("%s: %d right, %d wrong, %d abstained\n", family.c_str(), t.right, t.wrong,
              t.abstained);
  EXPECT_GE(t.right, 0.95 * n);
  EXPECT_LE(t.wrong, 0.01 * n);
}

// Returns the cause of a run whose sequences are changed by `change` after their step was drawn.
template <typename Change>
DriftCause CauseOf(RolloutSpec spec, int steps, const Change& change) {
  DriftSite site("policy", "logprobs");
  for (int step = 0; step < steps; ++step) {
    if (spec.sin == "missed-sync") spec.versions = step;
    RolloutSimulator simulator(spec);
    site.BeginStep(0, step);
    for (RolloutSequence& sequence : simulator.Step(step)) {
      change(step, sequence);
      site.Take(sequence);
    }
    site.EndStep();
  }
  site.End();
  return site.Cause();
}

// Tests columns in another unit: logarithms of base 10 and 2, and means over the sequence. Another
// constant factor is no unit.
TEST(DriftCause, AnotherUnitIsNamed) {
  struct Case {
    double rollout, train;
    bool by_length;
    const char* cause;
  };
  for (const Case& c :
       {Case{1 / std::log(10.0), 1, false, "units"}, Case{1, 1 / std::log(10.0), false, "units"},
        Case{1 / std::log(2.0), 1, false, "units"}, Case{1, 1 / std::log(2.0), false, "units"},
        Case{1, 1, true, "units"}, Case{1 / 1.5, 1, false, ""}, Case{1, 1, false, "noise"}}) {
    for (const char* noise : {"none", "dense", "fp8"}) {
      RolloutSpec spec = BaseRun("small");
      spec.noise = noise;
      spec.uneven = true;
      const DriftCause cause = CauseOf(spec, 4, [&](int /*step*/, RolloutSequence& s) {
        const double length = c.by_length ? static_cast<double>(s.tokens.size()) : 1;
        for (RolloutToken& t : s.tokens) {
          t.rollout *= c.rollout / length;
          t.train *= c.train;
        }
      });
      if (*c.cause == 0) {
        EXPECT_NE(cause.id, "units");
      } else {
        EXPECT_EQ(cause.id, c.cause)
            << noise << " " << c.rollout << " " << c.train << " " << cause.words;
      }
    }
  }
}

// Writes one number per sequence, `factor` times the sum or the mean over its tokens, to a side.
void Repeat(bool train, bool mean, double factor, RolloutSequence& s) {
  double sum = 0;
  for (const RolloutToken& t : s.tokens) sum += train ? t.rollout : t.train;
  const double number = factor * (mean ? sum / static_cast<double>(s.tokens.size()) : sum);
  for (RolloutToken& t : s.tokens) (train ? t.train : t.rollout) = number;
}

// Tests a column that has the sum or the mean of its sequence in each token. Another number, and
// sequences of one token, are no unit. Both sides at once, in sequences of one length, have a
// constant ratio that may have another cause.
TEST(DriftCause, OneNumberPerSequenceIsNamed) {
  for (const char* noise : {"none", "dense", "fp8"}) {
    for (int which = 0; which < 8; ++which) {
      const bool train = (which & 1) != 0, mean = (which & 2) != 0;
      RolloutSpec spec = BaseRun("small");
      spec.noise = noise;
      spec.uneven = (which & 4) != 0;
      const auto named = [&](const auto& change) {
        return CauseOf(spec, 4, [&](int /*step*/, RolloutSequence& s) { change(s); });
      };
      const DriftCause cause = named([&](auto& s) { Repeat(train, mean, 1, s); });
      EXPECT_EQ(cause.id, "units") << noise << which << cause.words;
      EXPECT_NE(cause.fix.find(mean ? "mean" : "sum"), std::string::npos) << cause.fix;
      EXPECT_NE(cause.fix.find(train ? "trainer's" : "rollout's"), std::string::npos) << cause.fix;
      EXPECT_NE(named([&](auto& s) { Repeat(train, mean, 1.5, s); }).id, "units");
      EXPECT_NE(named([&](auto& s) {
                  s.tokens.resize(1);
                  Repeat(train, mean, 1, s);
                }).id,
                "units");
    }
    RolloutSpec spec = BaseRun("small");
    spec.noise = noise;
    const auto both = [](int /*step*/, RolloutSequence& s) {
      Repeat(true, false, 1, s);
      Repeat(false, true, 1, s);
      for (RolloutToken& t : s.tokens) t.rollout /= static_cast<double>(s.tokens.size());
    };
    EXPECT_NE(CauseOf(spec, 4, both).id, "units") << noise;
    spec.uneven = true;
    EXPECT_EQ(CauseOf(spec, 4,
                      [](int /*step*/, RolloutSequence& s) {
                        Repeat(true, false, 1, s);
                        const double length = static_cast<double>(s.tokens.size());
                        for (RolloutToken& t : s.tokens) t.rollout = t.train / length;
                      })
                  .id,
              "units")
        << noise;
  }
}

// Tests weights that never arrive: the engine has those of the first step. A first step that is
// equal by chance, before noise of constant size, is none.
TEST(DriftCause, WeightsThatNeverArrive) {
  for (const bool versions : {true, false}) {
    RolloutSpec spec = BaseRun("small", "missed-sync");
    spec.noise = "none";
    spec.versions_recorded = versions;
    const DriftCause never = CauseOf(spec, 8, [](int /*step*/, RolloutSequence& /*s*/) {});
    EXPECT_EQ(never.id, "missed-sync") << never.words;
    EXPECT_NE(never.words.find("equal to the last bit in step 0"), std::string::npos);
    const DriftCause noise = CauseOf(BaseRun("small"), 8, [](int step, RolloutSequence& s) {
      for (RolloutToken& t : s.tokens) t.rollout = step == 0 ? t.train : t.rollout;
    });
    EXPECT_EQ(noise.id, "noise") << noise.words;
  }
}

// Tests that flips in the joined routing name a two-component d, and no other cause.
TEST(DriftCause, RouterFlipsNeedBothMarks) {
  for (const auto& [noise, flips, cause] :
       {std::tuple("moe", true, "router-flips"), std::tuple("moe", false, "noise"),
        std::tuple("dense", true, "noise"), std::tuple("fp8", true, "noise")}) {
    RolloutSpec spec = BaseRun("small");
    spec.noise = noise;
    DriftSite site = Simulate(spec, 3);
    site.tests.router_flips = flips;
    EXPECT_EQ(site.Cause().id, cause) << noise << " " << flips;
  }
}

// Tests the same sequences at the same version in another batch shape: the trainer differs from
// itself as much as from the engine.
TEST(DriftCause, TrainerAgainstItselfNamesBatchVariance) {
  RolloutSpec spec = BaseRun("small", "batch-variance");
  spec.size = 0.1;
  RolloutSimulator simulator(spec);
  DriftSite site("policy", "logprobs");
  for (int step = 0; step < 4; ++step) {
    site.BeginStep(0, step);
    const auto first = simulator.Step(step);
    for (size_t i = 0; i < first.size(); ++i) {
      site.Take(first[i]);
      RolloutSequence copy = first[i];
      copy.later_epoch = true;
      for (RolloutToken& token : copy.tokens) token.train += 0.1;
      copy.train_version += step == 3;  // a later epoch, hence no evidence
      site.Take(copy);
    }
    site.EndStep();
  }
  site.End();
  EXPECT_NEAR(site.tests.trainer_k2, 0.005, 1e-9);
  EXPECT_EQ(site.statistics.trainer_k2.count(), 3 * 16 * 64);
  EXPECT_EQ(site.Cause().id, "batch-variance");
}

// Tests an engine that rescored its own tokens and differs from itself as much as from the trainer.
TEST(DriftCause, TheEngineAgainstItselfNamesBatchVariance) {
  RolloutSpec spec = BaseRun("small");
  spec.steps = 4;
  spec.source = "rescored";
  for (const auto& [k2, cause] : {std::pair(5e-4, "batch-variance"), std::pair(1e-6, "noise")}) {
    spec.rescore_k2 = k2;
    EXPECT_EQ(Simulate(spec, 3).Cause().id, cause) << k2;
  }
}

// Tests a d that correlates with the reward: found from some size on, never if nothing is planted,
// and not named noise.
TEST(DriftCause, BiasByTheAdvantage) {
  const int runs = Long() ? 200 : 20;
  for (const double size : {0.0, 0.001, 0.003, 0.01}) {
    int found = 0, named_noise = 0;
    for (int run = 0; run < runs; ++run) {
      RolloutSpec spec = BaseRun("small", "rewarded");
      spec.advantages = true;
      spec.size = size;
      const DriftSite site = Simulate(spec, 400 + run);
      const AdvantageBias bias = FindAdvantageBias(site.statistics);
      found += bias.found;
      named_noise += bias.found && site.Cause().id == "noise";
      if (bias.found) {
        EXPECT_NEAR(bias.per_deviation, size, 0.3 * size + 5e-4);
      }
    }
    std::printf("%.3f a deviation of the advantage: found in %d of %d\n", size, found, runs);
    EXPECT_EQ(named_noise, 0);
    EXPECT_LE(found, size == 0 ? 0 : runs);
    EXPECT_GE(found, size >= 0.01 ? runs : 0);
  }
}

// Tests the same cache with and without restarts that reset its age. If d does not correlate
// clearly with the cached tokens, growth reset by a restart is named unknown, not noise.
TEST(DriftCause, RestartsOfAStaleCache) {
  const int runs = Long() ? 100 : 10;
  int apart = 0, together = 0;
  for (const double size : {0.03, 0.05, 0.07, 0.1, 0.15}) {
    std::map<std::string, int> named[2];
    for (int run = 0; run < 2 * runs; ++run) {
      RolloutSpec spec = BaseRun("small", "stale-cache");
      spec.contexts = 64;
      spec.size = size;
      spec.restart_every = run % 2 == 0 ? 0 : spec.reset;
      ++named[run % 2][Simulate(spec, 700 + run / 2).Cause().id];
    }
    apart += named[0]["stale-cache"];
    together += named[1]["stale-cache"];
    for (auto& by : named) {
      EXPECT_EQ(by["stale-cache"] + by["noise"] + by["unknown"], runs) << size;
    }
    std::printf("cache of size %.2f: named in %d of %d, with restarts in %d (unknown %d)\n", size,
                named[0]["stale-cache"], runs, named[1]["stale-cache"], named[1]["unknown"]);
  }
  EXPECT_GE(together, apart);
}

// Tests growth that a restart resets: if there is no record of cached tokens, the cause is a stale
// cache with lower confidence, independent of a record of the restarts.
TEST(DriftCause, GrowthUntilRestartIsAStaleCache) {
  for (const bool recorded : {true, false}) {
    for (const bool follows : {false, true}) {
      RolloutSpec spec = BaseRun("small", "stale-cache");
      spec.size = 0.3;
      spec.steps = 32;
      RolloutSimulator simulator(spec);
      DriftSite site("policy", "logprobs");
      for (int step = 0; step < spec.steps; ++step) {
        site.BeginStep(recorded ? static_cast<uint32_t>(step / spec.reset) : 0, step);
        for (RolloutSequence& sequence : simulator.Step(step)) {
          // Cached tokens that are unrelated: the growth has another cause.
          sequence.cached_tokens = follows ? static_cast<int64_t>(sequence.tokens[0].token) : -1;
          site.Take(sequence);
        }
        site.EndStep();
      }
      site.End();
      const DriftCause cause = site.Cause();
      EXPECT_EQ(cause.id, follows ? "unknown" : "stale-cache") << cause.words;
      EXPECT_LE(cause.confidence, 0.6);
      EXPECT_NE(cause.words.find(recorded ? "3 times, at each restart" : "3 times, as at restarts"),
                std::string::npos)
          << cause.words;
    }
  }
}

// Tests dropout in the trainer's pass: its noise is in both d and log pi, which resembles a slope.
// It is noise of any size, and is reported as larger than rounding.
TEST(DriftCause, DropoutIsNoTemperature) {
  for (const char* family : {"small", "large"}) {
    for (const bool entropies : {true, false}) {
      for (const double size : {0.1, 0.3, 0.6, 1.0, 1.5, 2.5}) {
        for (int seed = 0; seed < (Long() ? 20 : 2); ++seed) {
          RolloutSpec spec = BaseRun(family, "dropout");
          spec.size = size;
          spec.entropy = entropies;
          spec.steps = 8;
          const DriftCause cause = Simulate(spec, 60 + seed).Cause();
          EXPECT_NE(cause.id, "temperature") << family << " " << size << ": " << cause.words;
          const bool random =
              cause.id == "noise" || cause.id == "unknown" || cause.id == "batch-variance";
          EXPECT_TRUE(random) << cause.id << " " << size;
          if (size >= 0.6 && entropies) {
            EXPECT_NE(cause.words.find("dropout"), std::string::npos) << cause.words;
          }
        }
      }
    }
  }
}

// Tests workers at 0.85 and 1.15, logged as sampled, and a trainer at 1: the pool has no slope.
TEST(DriftCause, WorkersAtOtherTemperaturesAreNamed) {
  for (const bool entropies : {true, false}) {
    RolloutSpec spec = BaseRun("small", "processed-against-raw");
    spec.entropy = entropies;
    spec.temperature = 0.85;
    spec.other_temperature = 1.15;
    spec.guilty = "worker";
    const DriftSite site = Simulate(spec, 5);
    const TemperatureMark mark = FindTemperature(site.statistics);
    EXPECT_EQ(mark.part.Words(), "worker worker-0");
    EXPECT_EQ(site.Cause().id, "temperature") << site.Cause().words;
    EXPECT_NE(site.Cause().words.find("worker worker-0"), std::string::npos);
  }
}

TEST(DriftCause, SmallVocabulary) { ExpectNamed("small", Long() ? 100 : 10); }
TEST(DriftCause, LargeVocabulary) { ExpectNamed("large", Long() ? 20 : 2); }

}  // namespace
}  // namespace plumbline::rules
