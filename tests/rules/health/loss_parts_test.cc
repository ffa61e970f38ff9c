// False alarms of health/loss-parts on simulated healthy games, and what it finds; 10 times as many
// if PLUMB_LONG is set.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <string_view>

#include "rules/engine/engine.h"
#include "tests/rules/support/spec_values.h"

namespace plumbline::rules::testing {
namespace {

using PartValues = std::map<std::string, std::function<double(double, double)>>;  // done, normal

// Other seeds if PLUMB_SEED is set.
uint64_t OtherSeed() {
  const char* other = std::getenv("PLUMB_SEED");
  return other != nullptr ? std::strtoull(other, nullptr, 10) : 0;
}

int FindingsOf(const PartValues& series, int points, uint64_t seed) {
  std::mt19937_64 random(seed + OtherSeed());
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
    if (verdict.rule() == "health/loss-parts")
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
    std::mt19937_64 random(seed + OtherSeed());
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

// A critic or the plain loss of a DQN that leaves at 40 % of the run by a factor, while the reward
// rises, then falls back; and rewards that only go up and down, with losses that grow as much.
TEST(LossParts, PowerByLength) {
  const auto grows = [](double factor) {
    return [=](double t, double z) {
      return 0.5 * std::pow(factor, std::min(1.0, std::max(0.0, (t - 0.4) / 0.2))) *
             std::exp(0.2 * z);
    };
  };
  const auto fell = [](double t, double z) {
    return (t < 0.4 ? 10 + 3500 * t : 10 + 1400 * std::max(0.0, 1 - (t - 0.4) / 0.2)) + 20 * z;
  };
  const auto wavy = [](double t, double z) {
    return 10 + 1500 * t + 300 * std::sin(40 * t) + 100 * z;
  };
  struct Run {
    const char* name;
    PartValues series;
    int least[4];  // percent at 10, 20, 60, 200 points
  };
  const Run runs[] = {
      {"critic, 1e9", {{"critic_loss", grows(1e9)}, {"ep_rew_mean", fell}}, {0, 60, 95, 95}},
      {"critic, 1e5", {{"critic_loss", grows(1e5)}, {"ep_rew_mean", fell}}, {0, 0, 95, 95}},
      {"loss, 1e9", {{"loss", grows(1e9)}, {"episode_reward", fell}}, {0, 60, 95, 95}},
      {"healthy: loss, 1e5", {{"loss", grows(1e5)}, {"episode_reward", wavy}}, {}},
      {"healthy: critic, 1e5", {{"critic_loss", grows(1e5)}, {"test/reward", wavy}}, {}},
  };
  const int lengths[] = {10, 20, 60, 200};
  for (const Run& run : runs) {
    const bool healthy = std::string_view(run.name).starts_with("healthy");
    std::printf("%-22s", run.name);
    for (size_t k = 0; k < std::size(lengths); ++k) {
      const int count = Games() / 10;
      int found = 0;
      for (int i = 0; i < count; ++i)
        found += FindingsOf(run.series, lengths[k], 500'000 + static_cast<uint64_t>(i)) > 0;
      std::printf(" %d: %d of %d", lengths[k], found, count);
      EXPECT_LE(found, healthy ? 0 : count) << run.name << " " << lengths[k];
      EXPECT_GE(100 * found, run.least[k] * count) << run.name << " " << lengths[k];
    }
    std::printf("\n");
  }
}

// Games of few rows, as they are pasted: VITS, CycleGAN, HiFi-GAN, DCGAN. `fault` begins at 60 %: 0
// none, 1 the discriminator is exactly 0, 2 the copy gets worse, 3 both.
PartValues ShortGame(const std::string& kind, int fault, std::mt19937_64& random) {
  std::uniform_real_distribution<double> uniform;
  const auto bad = [=](int of, double t) { return (fault & of) != 0 && t >= 0.6; };
  const auto course = [=](double begin, double end, double noise, int of, double then) {
    return [=](double t, double z) {
      const double level = end + (begin - end) * std::exp(-4 * t);
      return (bad(of, t) ? then : level) * std::exp(noise * z);
    };
  };
  const double s = kind == "vits" ? 0.02 + 0.08 * uniform(random) : 0.1 + 0.3 * uniform(random);
  const double mel = 45 + 35 * uniform(random);
  if (kind == "vits")
    return {{"loss_disc", course(2.6, 2.3, s, 1, 0)},
            {"loss_gen", course(2.1, 2.9, 1.5 * s, 1, 5.6)},
            {"loss_fm", course(3, 6, 1.2 * s, 1, 12)},
            {"loss_mel", course(mel, 0.45 * mel, s, 2, 2.2 * mel)},
            {"loss_dur", course(2, 1.3, s, 0, 0)},
            {"loss_kl", course(1 + 80 * uniform(random), 1.6, 1.5 * s, 0, 0)}};
  if (kind == "cyclegan")
    return {{"D_A", course(0.27, 0.19, s, 1, 0)},   {"G_A", course(0.35, 0.5, s, 1, 1.2)},
            {"cycle_A", course(2.3, 0.5, s, 2, 9)}, {"idt_A", course(0.9, 0.2, s, 2, 4)},
            {"D_B", course(0.25, 0.2, s, 0, 0)},    {"G_B", course(0.35, 0.45, s, 0, 0)},
            {"cycle_B", course(2.1, 0.5, s, 0, 0)}, {"idt_B", course(0.8, 0.2, s, 0, 0)}};
  if (kind == "hifigan")
    return {{"gen_loss_total", course(35, 30, s, 1, 90)},
            {"disc_loss_total", course(3.2, 2.8, s, 1, 0)},
            {"mel_spec_error", course(1.05, 0.25, 0.5 * s, 2, 3)}};
  return {{"Loss_D", course(0.9, 0.5, 2 * s, 1, 0)}, {"Loss_G", course(2.5, 4, 2 * s, 1, 27)}};
}

constexpr const char* kShortGames[] = {"vits", "cyclegan", "hifigan", "dcgan"};

TEST(LossParts, HealthyGamesOfFewRowsHaveNone) {
  for (const char* kind : kShortGames) {
    int found = 0;
    for (int i = 0; i < 3 * Games(); ++i) {
      std::mt19937_64 random(900'000 + static_cast<uint64_t>(i) + OtherSeed());
      const PartValues game = ShortGame(kind, 0, random);
      found += FindingsOf(game, 10 + i % 21, 700'000 + static_cast<uint64_t>(i)) > 0;
    }
    EXPECT_EQ(found, 0) << kind;
  }
}

TEST(LossParts, RuinedGamesOfFewRowsAreFound) {
  for (const char* kind : kShortGames) {
    for (const int fault : {1, 2, 3}) {
      if (fault > 1 && std::string_view(kind) == "dcgan") continue;
      for (const int points : {10, 12, 15, 20, 30}) {
        int found = 0;
        for (uint64_t i = 0; i < 20; ++i) {
          std::mt19937_64 random(i + OtherSeed());
          found += FindingsOf(ShortGame(kind, fault, random), points, 800'000 + i) > 0;
        }
        EXPECT_GE(found, 18) << kind << ", fault " << fault << ", " << points << " points";
      }
    }
  }
}

}  // namespace
}  // namespace plumbline::rules::testing
