// Losses that rise by design: the sides of a game, their sum, a part of a loss. Healthy ones cause
// no warning, and faults are found.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "rules/engine/engine.h"
#include "rules/engine/report.h"
#include "tests/rules/support/series_run.h"

namespace plumbline::rules::testing {
namespace {

// Returns the highest level of each rule on losses, for a run of these series.
std::map<std::string, v1::Level> Levels(const std::string& series, const SeriesRoles& roles = {}) {
  Report report;
  auto engine = Engine::Create({.rules = {"health/loss-*"}, .roles = roles},
                               [&](const v1::Verdict& verdict) { report.Add(verdict); });
  EXPECT_TRUE(engine.ok());
  for (v1::Batch& batch : SeriesRun("steps = 900\n" + series))
    EXPECT_TRUE((*engine)->Add(std::move(batch)).ok());
  (*engine)->Finish();
  std::map<std::string, v1::Level> levels;
  for (const v1::Finding* finding : report.findings()) {
    v1::Level& level = levels[finding->rule().substr(7)];
    level = std::max(level, finding->level());
  }
  return levels;
}

// Falls, then rises to six times as much.
std::string Rising(const std::string& name) { return name + " = 3 150>1 600>6 ~0.05\n"; }
std::string Steady(const std::string& name) { return name + " = 1 ~0.05\n"; }

v1::Level Highest(const std::map<std::string, v1::Level>& levels) {
  v1::Level highest = v1::LEVEL_UNSPECIFIED;
  for (const auto& [rule, level] : levels) highest = std::max(highest, level);
  return highest;
}

TEST(GameLosses, TheSidesOfAGameMayRise) {
  for (const char* name :
       {"train/value_loss", "losses/qf1_loss", "td_loss", "policy_loss", "Loss/G", "d_loss",
        "adv_loss", "gp_loss", "reward_loss", "rnd_loss", "alpha_loss", "kld_loss", "codebook_loss",
        "train/policy_gradient_loss"}) {
    EXPECT_TRUE(Levels(Rising(name)).empty()) << name;
    EXPECT_EQ(Levels(std::string(name) + " = 1 ~0.05 700!nan\n")["loss-non-finite"],
              v1::LEVEL_ERROR)
        << name;
  }
}

TEST(GameLosses, TheirSumMayRiseWhereTheyAreThere) {
  EXPECT_EQ(Levels(Rising("train/loss"))["loss-divergence"], v1::LEVEL_ERROR);
  const std::string one = Steady("policy_loss");
  EXPECT_EQ(Levels(Rising("train/loss") + one)["loss-divergence"], v1::LEVEL_ERROR);
  for (const std::string& others :
       {one + Steady("value_loss"), Steady("loss_G") + Steady("loss_D"),
        Steady("train/policy_gradient_loss") + Steady("train/value_loss"),
        Steady("rollout/ep_rew_mean"), Steady("reward"), Steady("test/reward"),
        std::string("eval/mean_reward = 20 900>400 ~0.05\n"),
        std::string("test_score = 20 900>400 ~0.05\n")}) {
    const auto levels = Levels(Rising("train/loss") + others);
    EXPECT_EQ(levels.at("loss-divergence"), v1::LEVEL_NOTE) << others;
    EXPECT_EQ(Highest(levels), v1::LEVEL_NOTE) << others;
    // A loss that never falls is also a note.
    EXPECT_LE(Highest(Levels(Steady("loss") + others)), v1::LEVEL_NOTE) << others;
  }
}

// Tests that a score in percent, and the mean reward of a model that learns to give rewards, leave
// the loss an error.
TEST(GameLosses, ScoresThatMayBeShares) {
  for (const std::string score : {"eval/score = 30 900>85 ~0.02\n", "score = 0.3 900>0.8 ~0.02\n",
                                  "eval/mean_reward = 1 900>7 ~0.3\n"})
    EXPECT_EQ(Levels(Rising("train/loss") + score)["loss-divergence"], v1::LEVEL_ERROR) << score;
}

TEST(GameLosses, WhatBreaksInTheirSumIsFound) {
  const std::string others = Steady("policy_loss") + Steady("value_loss");
  EXPECT_EQ(Levels("loss = 1 ~0.05 700!nan\n" + others)["loss-non-finite"], v1::LEVEL_ERROR);
  // A jump is not a rise.
  const auto jumped = Levels("loss = 1 500:1000 ~0.05\n" + others);
  EXPECT_EQ(jumped.at("loss-spike"), v1::LEVEL_WARNING);
  EXPECT_EQ(jumped.at("loss-divergence"), v1::LEVEL_NOTE);
  // If the user states that it is the loss, it is judged as one.
  SeriesRoles roles;
  roles.Set("loss", SeriesRole::kLoss);
  EXPECT_EQ(Levels(Rising("loss") + others, roles)["loss-divergence"], v1::LEVEL_ERROR);
}

TEST(GameLosses, APartMayRiseNextToTheLoss) {
  for (const char* part : {"l1_loss", "l2_loss", "nll_loss", "loss_box_reg"}) {
    EXPECT_EQ(Levels(Rising(part))["loss-divergence"], v1::LEVEL_ERROR) << part;
    EXPECT_EQ(Highest(Levels(Rising(part) + "total_loss = 3 900>1 ~0.02\n")), v1::LEVEL_NOTE)
        << part;
  }
}

}  // namespace
}  // namespace plumbline::rules::testing
