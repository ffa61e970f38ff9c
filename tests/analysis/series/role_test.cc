#include "analysis/role/role.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace plumbline {
namespace {

// AReaL joins the scopes, the name and the statistic. The extremes have no role.
TEST(SeriesRole, OfTheNamesOfAReaL) {
  for (const std::string scope : {"ppo_actor/", "grpo_actor/", "ppo_actor/update/"}) {
    EXPECT_EQ(RoleByName(scope + "entropy/avg"), SeriesRole::kEntropy);
    EXPECT_EQ(RoleByName(scope + "approx_kl/avg"), SeriesRole::kStepKl);
    EXPECT_EQ(RoleByName(scope + "clip_ratio/avg"), SeriesRole::kClipShare);
    EXPECT_EQ(RoleByName(scope + "dual_clip_ratio/avg"), SeriesRole::kNone);
    EXPECT_EQ(RoleByName(scope + "loss/avg"), SeriesRole::kAuxiliaryLoss);
    EXPECT_EQ(RoleByName(scope + "grad_norm"), SeriesRole::kGradientNorm);
    EXPECT_EQ(RoleByName(scope + "lr"), SeriesRole::kRate);
  }
  for (const char* name : {"ppo_actor/task_reward/avg", "ppo_actor/final_reward/avg",
                           "ppo_actor/reward/avg", "rollout/reward/avg"})
    EXPECT_EQ(RoleByName(name), SeriesRole::kReward) << name;
  EXPECT_EQ(RoleByName("ppo_actor/no_eos_ratios/avg"), SeriesRole::kTruncatedShare);
  for (const char* name :
       {"ppo_actor/task_reward/max", "ppo_actor/task_reward/min", "ppo_actor/update/entropy/min",
        "ppo_actor/kl_rewards/avg", "ppo_actor/advantages/avg", "timeperf/rollout"})
    EXPECT_EQ(RoleByName(name), SeriesRole::kNone) << name;
}

// Kaldi's objective is maximised; other objectives may be minimised.
TEST(SeriesRole, OfAnObjectiveFunction) {
  for (const char* name :
       {"output/Average objective function", "output-xent/Average objective function"})
    EXPECT_EQ(RoleByName(name), SeriesRole::kLikelihood) << name;
  EXPECT_EQ(RoleByName("objective function"), SeriesRole::kNone);
}

TEST(SeriesRole, IsReadFromNamesThatPeopleUse) {
  const std::vector<std::pair<SeriesRole, std::vector<const char*>>> known = {
      {SeriesRole::kLoss,
       {"loss",
        "lm loss",
        "LM Loss",
        "train_loss",
        "train/loss",
        "trainLoss",
        "Loss/train",
        "loss-total",
        "train_loss_step",
        "train.loss.epoch",
        "CrossEntropyLoss",
        "mlm loss",
        "total_loss",
        "losses/loss",
        "lm-loss-training/lm loss",
        "trainloss",
        "nll_loss",
        "sft_loss",
        "ce_loss",
        "ce",
        "train/ce",
        "orpo_loss",
        "mel_l1_loss",
        "l1_loss",
        "l2_loss",
        "loss_value",
        "train_loss_value",
        "loss_box_reg",
        "loss_cls",
        "loss_rpn_loc",
        "loss_mask",
        "train/loss_mask",
        "generation_loss",
        "vision_loss",
        "distill_loss",
        "position_loss"}},
      {SeriesRole::kEvaluationLoss,
       {"loss/val", "val_ce", "valLoss", "val_loss", "eval_loss", "eval/loss", "test loss",
        "dev.loss", "validation_loss", "valid/loss", "lm loss validation", "heldout-loss"}},
      {SeriesRole::kAuxiliaryLoss,
       {"aux_loss",
        "Losses/[0]",
        "losses/[12]",
        "load_balancing_loss",
        "z_loss",
        "router_z_loss",
        "moe/aux-loss",
        "auxLoss",
        "kl_loss",
        "partial_loss",
        "partial_loss.1",
        "loss/generator",
        "critic_loss",
        "lb_loss",
        "seq_load_balancing_loss",
        "entropy_loss",
        "val_aux_loss",
        "reg_loss",
        "l2_reg_loss",
        "l1_penalty_loss",
        "kld_loss",
        "codebook_loss",
        "diversity_loss"}},
      {SeriesRole::kGradientNorm,
       {"grad_norm", "gnorm", "total_norm", "grad norm", "gradient norm", "train/grad_norm",
        "gradNorm", "grad-norm/all", "gradnorm", "norm"}},
      {SeriesRole::kRate,
       {"lr", "learning_rate", "learning rate", "train/lr", "lr.1", "lr-AdamW/pg1",
        "learningRate"}},
      {SeriesRole::kLossScale,
       {"loss scale", "loss_scale", "loss-scale", "lossScale", "train/loss_scale", "grad_scale",
        "amp_scale", "scaler/scale", "scale"}},
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

// Tests names that are known completely, with and without wrappers.
TEST(SeriesRole, LossesOfBoxes) {
  for (const char* name : {"box_loss", "train/dfl_loss", "loss_bbox", "giou_loss", "loss_box_reg"})
    EXPECT_TRUE(IsLossOfBoxes(name)) << name;
  for (const char* name : {"cls_loss", "loss", "obj_loss", "val/box_loss", "boxes"})
    EXPECT_FALSE(IsLossOfBoxes(name)) << name;
}

TEST(SeriesRole, NamesInTheTable) {
  const std::vector<std::pair<SeriesRole, std::vector<const char*>>> known = {
      {SeriesRole::kMismatch,
       {"sampling/sampling_logp_difference/mean", "train_rollout_logprob_abs_diff",
        "debug/vllm_vs_local_logprob_diff_mean"}},
      {SeriesRole::kMismatchProbability, {"training/rollout_probs_diff_mean"}},
      {SeriesRole::kMismatchKl,
       {"rollout_corr/k3_kl", "gen_kl_error", "mismatch_kl/all/mean", "vllm_kl"}},
      {SeriesRole::kMismatchFactor, {"token_mult_prob_error", "train/token_mult_prob_error"}},
      {SeriesRole::kMismatchChiSquare, {"rollout_corr/chi2_token", "chi2_token"}},
      {SeriesRole::kImportanceRatio, {"sampling/importance_sampling_ratio/mean"}},
      {SeriesRole::kStepKl, {"actor/ppo_kl", "train/approx_kl", "approx_kl"}},
      {SeriesRole::kClipShare, {"clip_frac", "actor/pg_clipfrac", "clip_ratio/region_mean"}},
      {SeriesRole::kReferenceKl, {"kl", "train/kl", "objective/kl"}},
      {SeriesRole::kEntropy, {"entropy", "actor/entropy"}},
      {SeriesRole::kReward, {"reward", "train/reward", "rollout/ep_rew_mean"}},
      {SeriesRole::kRewardSpread, {"reward_std", "frac_reward_zero_std"}},
      {SeriesRole::kResponseLength, {"response_length/mean", "completions/mean_length"}},
      {SeriesRole::kTruncatedShare,
       {"completions/clipped_ratio", "response_length/clip_ratio", "truncated_ratio"}},
      {SeriesRole::kExpertLoad, {"max_vio", "max_vio/mean"}},
      {SeriesRole::kDropRate, {"drop_rate"}},
      {SeriesRole::kLossScale, {"Fp16 Grad Scale", "grad_scale", "amp_scale", "loss scale"}},
      {SeriesRole::kSkippedSteps, {"number of skipped iterations", "skipped"}},
      {SeriesRole::kNanCount, {"number of nan iterations"}},
      {SeriesRole::kTokensPerSecond, {"tok/s", "tokens_per_second", "tps", "wps"}},
      {SeriesRole::kUtilisation, {"mfu", "bf16 MFU", "throughput/device/mfu"}},
      {SeriesRole::kAccuracy, {"mean_token_accuracy", "token_acc", "accuracy"}},
      {SeriesRole::kPerplexity, {"ppl", "perplexity", "lm loss PPL"}},
      {SeriesRole::kLikelihood, {"log_likelihood", "train/loglik", "elbo"}},
      {SeriesRole::kStepSeconds, {"batch_cost", "avg_batch_cost"}},
      {SeriesRole::kEvaluationLoss,
       {"val-rmse", "validation_0-rmse", "valid_0's l2", "val_mae", "val_nll"}},
      {SeriesRole::kRate, {"L.r.", "optim/LR (group 0)", "LearningRate"}},
      {SeriesRole::kLoss,
       {"Cost", "xent", "cross-entropy", "data/train_loss", "train-logloss", "train-rmse",
        "training's l2", "nll", "neg_log_likelihood_loss"}},
  };
  for (const auto& [role, names] : known) {
    for (const char* name : names) EXPECT_STREQ(NameOf(RoleByName(name)), NameOf(role)) << name;
  }
}

// Tests words that resemble a role name or have another meaning.
TEST(SeriesRole, FalseFriendsHaveNone) {
  for (const char* name : {"loss/over",
                           "cost_usd",
                           "gpu_cost_usd",
                           "energy_cost",
                           "dataloader_cost",
                           "heat_loss",
                           "loss_kg",
                           "tot_loss/over",
                           "avg_reader_cost",
                           "Train time/batch",
                           "negative_log_likelihood",
                           "loss_sum",
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
                           "",
                           "/",
                           "grad_norm_clip",
                           "max_grad_norm",
                           "grad_norm_threshold",
                           "loss_time",
                           "colr",
                           "param_norm",
                           "hparam/loss",
                           "train_speed(iter/s)",
                           "memory_bandwidth",
                           "data_time"}) {
    EXPECT_STREQ(NameOf(RoleByName(name)), "none") << name;
  }
}

// Tests that losses of game sides, in any spelling, are auxiliary, because they rise by design.
TEST(SeriesRole, SidesOfAGameAreAuxiliary) {
  const std::vector<std::pair<GameSide, std::vector<const char*>>> known = {
      {GameSide::kPolicy,
       {"policy_loss", "train/policy_gradient_loss", "losses/policy_loss", "pg_loss", "LossPi",
        "loss/policy_avg", "train/actor_loss", "Loss/surrogate", "Losses/Policy_Loss",
        "policyLoss"}},
      {GameSide::kValue,
       {"value_loss", "train/value_loss", "vf_loss", "loss/value", "loss/value_avg", "critic_loss",
        "info/learner/default_policy/learner_stats/value_loss_of_critic", "losses/qf1_loss",
        "td_loss", "q_loss", "Losses/Value_Loss", "value/loss", "Loss/value_function", "LossV",
        "losses/qf_loss", "loss_qvalue"}},
      {GameSide::kGenerator,
       {"Loss/G", "loss_G", "g_loss", "gen_loss", "loss_gen", "generator_loss", "loss_G_GAN",
        "loss/gan_g", "G/loss"}},
      {GameSide::kDiscriminator, {"Loss/D", "loss_D", "d_loss", "disc_loss", "D_real_loss"}},
      {GameSide::kNone,
       {"adv_loss", "loss_adv", "gp_loss", "gradient_penalty_loss", "alpha_loss", "reward_loss",
        "train/reward_loss", "rnd_loss", "temperature_loss", "kl_loss", "icm_loss"}}};
  for (const auto& [side, names] : known) {
    for (const char* name : names) {
      EXPECT_EQ(RoleByName(name), SeriesRole::kAuxiliaryLoss) << name;
      const bool first = std::string(name).starts_with("info/");  // the first word decides
      EXPECT_EQ(SideByName(name), first ? GameSide::kPolicy : side) << name;
    }
  }
  for (const char* name :
       {"rollout/ep_rew_mean", "charts/episodic_return", "episode_reward", "reward", "train/reward",
        "reward_std", "critic/rewards/mean", "objective/rlhf_reward"})
    EXPECT_EQ(SideByName(name), GameSide::kEpisodes) << name;
  // Rewards of pairs, and of a model that learns to give them, are not a game; sides without a loss
  // are not players.
  for (const char* name : {"rewards/chosen", "rewards/margins", "max_reward", "loss", "value",
                           "policy", "val_loss", "episode", "total_loss", "eval_rewards/chosen"})
    EXPECT_EQ(SideByName(name), GameSide::kNone) << name;
  for (const char* name : {"mean_reward", "eval/mean_reward", "eval/score", "test_score"})
    EXPECT_EQ(SideByName(name), GameSide::kWideScore) << name;
}

// Tests that a reward may have any prefix, any kind of mean, and any separators.
TEST(SeriesRole, RewardsOfEpisodesInAnySpelling) {
  const auto joined = [](const std::vector<std::string>& words, const std::string& separator) {
    std::string name;
    for (const std::string& word : words)
      name += (name.empty() || word.empty() ? "" : separator) + word;
    return name;
  };
  for (const char* prefix : {"", "test", "eval", "train", "env"}) {
    for (const char* kind : {"", "avg", "average", "total", "cumulative", "best", "undiscounted"}) {
      for (const char* what : {"reward", "return", "returns", "rew"}) {
        for (const char* separator : {"_", "/", " ", "."}) {
          const std::string name = joined({prefix, kind, what}, separator);
          EXPECT_EQ(SideByName(name), GameSide::kEpisodes) << name;
        }
      }
    }
  }
  for (const char* name : {"AverageReturn", "AverageEpRet", "rewards/step", "rewards/iter"})
    EXPECT_EQ(SideByName(name), GameSide::kEpisodes) << name;
}

// Tests that a number after the word of a side hides it in no place; letters with a number are no
// sides ("d1" is the output of a decoder).
TEST(SeriesRole, SidesWithNumbers) {
  const std::vector<std::pair<GameSide, std::vector<std::string>>> known = {
      {GameSide::kPolicy, {"actor", "policy"}},
      {GameSide::kValue, {"critic", "value", "baseline", "qvalue"}},
      {GameSide::kGenerator, {"gen", "generator"}},
      {GameSide::kDiscriminator, {"disc", "discriminator"}}};
  for (const auto& [side, words] : known) {
    for (const std::string& word : words) {
      for (const std::string number : {"1", "2", "_1", "12"}) {
        for (const std::string& name :
             {"loss/" + word + number, word + number + "_loss", "train/loss_" + word + number}) {
          EXPECT_EQ(SideByName(name), side) << name;
          EXPECT_EQ(RoleByName(name), SeriesRole::kAuxiliaryLoss) << name;
        }
      }
    }
  }
  for (const char* name : {"loss_d1", "loss_v2", "loss_stage1", "loss_layer2"})
    EXPECT_EQ(RoleByName(name), SeriesRole::kLoss) << name;
}

TEST(SeriesRole, WhatTheUserStatesCountsFirst) {
  SeriesRoles roles;
  roles.Set("objective", SeriesRole::kLoss);
  roles.Set("loss", SeriesRole::kNone);
  EXPECT_EQ(roles.Of("objective"), SeriesRole::kLoss);
  EXPECT_EQ(roles.Of("loss"), SeriesRole::kNone);
  EXPECT_EQ(roles.Of("val_loss"), SeriesRole::kEvaluationLoss);
}

TEST(SeriesRole, NamesGoThereAndBack) {
  for (int i = 0; i <= static_cast<int>(SeriesRole::kLast); ++i) {
    const auto role = static_cast<SeriesRole>(i);
    EXPECT_EQ(FindRole(NameOf(role)), role);
  }
  EXPECT_EQ(FindRole("Loss"), std::nullopt);
}

// Tests the metrics of boosted trees: errors are losses of the named set, error fractions are
// judged for NaN only, and metrics that increase with quality have no role.
TEST(SeriesRole, IsReadFromNamesOfBoosters) {
  const std::vector<std::pair<SeriesRole, std::vector<const char*>>> known = {
      {SeriesRole::kLoss,
       {"train-rmse", "train-mae", "training's l2", "training's huber", "RMSE", "MAE", "learn/RMSE",
        "train-logloss", "train-mlogloss", "train-poisson-nloglik", "mae"}},
      {SeriesRole::kEvaluationLoss,
       {"eval-rmse", "validation_0-rmse", "val-mape", "valid_0's l1", "valid_1's binary_logloss",
        "test/RMSE", "test-quantile", "test/Logloss"}},
      {SeriesRole::kAuxiliaryLoss,
       {"train-error", "eval-merror", "test-error@0.7", "valid_0's binary_error", "learn", "test"}},
      {SeriesRole::kNone,
       {"train-auc", "valid_0's auc", "eval-aucpr", "AUC", "test/AUC", "train/gamma", "train/l2",
        "l2", "time-rmse", "num-error", "gamma", "train-gamma", "best"}}};
  for (const auto& [role, names] : known) {
    for (const char* name : names) EXPECT_EQ(NameOf(RoleByName(name)), NameOf(role)) << name;
  }
  EXPECT_TRUE(MayBePart("RMSE"));
  EXPECT_EQ(RoleByName("1795947937.2/hparam/loss"), SeriesRole::kNone);
}

}  // namespace
}  // namespace plumbline
