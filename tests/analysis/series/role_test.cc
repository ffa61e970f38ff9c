#include "analysis/series/role.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace plumbline {
namespace {

TEST(SeriesRole, IsReadFromNamesThatPeopleUse) {
  const std::vector<std::pair<SeriesRole, std::vector<const char*>>> known = {
      {SeriesRole::kLoss,
       {"loss", "lm loss", "LM Loss", "train_loss", "train/loss", "trainLoss", "Loss/train",
        "loss-total", "train_loss_step", "train.loss.epoch", "CrossEntropyLoss", "mlm loss",
        "total_loss", "losses/loss", "lm-loss-training/lm loss", "trainloss", "policy_loss",
        "nll_loss"}},
      {SeriesRole::kEvaluationLoss,
       {"loss/val", "valLoss", "val_loss", "eval_loss", "eval/loss", "test loss", "dev.loss",
        "validation_loss", "valid/loss", "lm loss validation", "heldout-loss"}},
      {SeriesRole::kAuxiliaryLoss,
       {"aux_loss", "load_balancing_loss", "z_loss", "router_z_loss", "moe/aux-loss", "auxLoss",
        "kl_loss", "partial_loss", "partial_loss.1", "loss/generator", "critic_loss", "lb_loss",
        "seq_load_balancing_loss", "entropy_loss", "val_aux_loss"}},
      {SeriesRole::kGradientNorm,
       {"grad_norm", "gnorm", "grad norm", "gradient norm", "train/grad_norm", "gradNorm",
        "grad-norm/all", "gradnorm"}},
      {SeriesRole::kRate,
       {"lr", "learning_rate", "learning rate", "train/lr", "lr.1", "lr-AdamW/pg1",
        "learningRate"}},
      {SeriesRole::kLossScale,
       {"loss scale", "loss_scale", "loss-scale", "lossScale", "train/loss_scale"}},
      {SeriesRole::kTokens,
       {"tokens", "consumed_tokens", "train/tokens_seen", "n tokens", "total tokens"}},
      {SeriesRole::kStepSeconds,
       {"step_seconds", "step_time", "iteration time", "perf/step_time_s"}},
      {SeriesRole::kMemory, {"memory.reserved", "gpu_memory_allocated", "mem", "memory/peak_gb"}},
      {SeriesRole::kUpdateRatio, {"update_ratio", "update/weight ratio"}},
  };
  for (const auto& [role, names] : known) {
    for (const char* name : names) EXPECT_STREQ(NameOf(RoleByName(name)), NameOf(role)) << name;
  }
}

// Words that look like one, or make something else of it.
TEST(SeriesRole, FalseFriendsHaveNone) {
  for (const char* name : {"loss_sum",
                           "loss_weight",
                           "lossless",
                           "closs",
                           "gloss",
                           "floss",
                           "blossom",
                           "loss_coef",
                           "loss_std",
                           "loss_min",
                           "best_val_loss",
                           "loss_mask_tokens",
                           "loss_ratio",
                           "packet_loss",
                           "data loss",
                           "min_lr",
                           "lr_scale",
                           "base_lr",
                           "max_lr",
                           "lr_decay_steps",
                           "initial_loss_scale",
                           "accuracy",
                           "perplexity",
                           "",
                           "/",
                           "grad_norm_clip",
                           "max_grad_norm",
                           "grad_norm_threshold",
                           "loss_time",
                           "colr",
                           "param_norm",
                           "tokens/s",
                           "tokens_per_second",
                           "memory_bandwidth",
                           "data_time",
                           "number of skipped iterations"}) {
    EXPECT_STREQ(NameOf(RoleByName(name)), "none") << name;
  }
}

TEST(SeriesRole, WhatTheUserSaysCountsFirst) {
  SeriesRoles roles;
  roles.Set("objective", SeriesRole::kLoss);
  roles.Set("loss", SeriesRole::kNone);
  EXPECT_EQ(roles.Of("objective"), SeriesRole::kLoss);
  EXPECT_EQ(roles.Of("loss"), SeriesRole::kNone);
  EXPECT_EQ(roles.Of("val_loss"), SeriesRole::kEvaluationLoss);
}

TEST(SeriesRole, NamesGoThereAndBack) {
  for (int i = 0; i <= static_cast<int>(SeriesRole::kUpdateRatio); ++i) {
    const auto role = static_cast<SeriesRole>(i);
    EXPECT_EQ(FindRole(NameOf(role)), role);
  }
  EXPECT_EQ(FindRole("Loss"), std::nullopt);
}

}  // namespace
}  // namespace plumbline
