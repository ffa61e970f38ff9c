// What a series of reinforcement learning measures, by its name.
#include "analysis/policy/policy_metric.h"

#include <cmath>
#include <string>

#include "gtest/gtest.h"

namespace plumbline::analysis {
namespace {

PolicyMetric Of(const std::string& op) { return PolicyMetricOf(op, RoleByName(op)); }

TEST(PolicyMetric, KindsOfNames) {
  struct Named {
    const char* op;
    PolicyKind kind;
  };
  constexpr Named kNamed[] = {
      {"sampling/sampling_logp_difference/mean", PolicyKind::kMismatch},
      {"sampling/sampling_logp_difference/max", PolicyKind::kMismatch},
      {"training/rollout_probs_diff_mean", PolicyKind::kMismatch},
      {"training/rollout_probs_diff_std", PolicyKind::kOther},
      {"data/training/rollout_probs_diff_max", PolicyKind::kOther},
      {"rollout_corr/k3_kl", PolicyKind::kMismatch},
      {"train/gen_kl_error", PolicyKind::kMismatch},
      {"mismatch_kl/all/mean", PolicyKind::kMismatch},
      {"Mismatch KL", PolicyKind::kMismatch},
      {"optim/kl_sample_train_v1", PolicyKind::kMismatch},
      {"sampling/importance_sampling_ratio/min", PolicyKind::kOther},
      {"reward", PolicyKind::kReward},
      {"rewards/accuracy_reward/std", PolicyKind::kOther},
      {"rewards/margins", PolicyKind::kMargin},
      {"rewards/chosen", PolicyKind::kOther},
      {"frac_reward_zero_std", PolicyKind::kSpreadlessShare},
      {"reward_std", PolicyKind::kRewardSpread},
      {"actor/kl_loss", PolicyKind::kReferenceKl},
      {"train/entropy_loss", PolicyKind::kEntropy},
      {"actor/kl_coef", PolicyKind::kKlCoefficient},
      {"clip_ratio/high_max", PolicyKind::kOther},
      {"actor/pg_clipfrac", PolicyKind::kClipShare},
      {"train/loss", PolicyKind::kPreferenceLoss},
      {"eval/loss", PolicyKind::kNone},
      {"throughput", PolicyKind::kNone},
      // SkyRL, AReaL, ROLL, OpenRLHF, slime, verl, open-instruct, prime-rl, NeMo-RL.
      {"policy/policy_entropy", PolicyKind::kEntropy},
      {"policy/policy_kl", PolicyKind::kReferenceKl},
      {"policy/ppo_clip_ratio", PolicyKind::kClipShare},
      {"policy/loss_metrics/clip_ratio", PolicyKind::kClipShare},
      {"policy/rollout_train_logprobs_abs_diff_mean", PolicyKind::kMismatch},
      {"reward/avg_raw_reward", PolicyKind::kReward},
      {"reward/avg_pass_at_8", PolicyKind::kOther},
      {"loss/avg_final_rewards", PolicyKind::kReward},
      {"loss/avg_raw_advantages", PolicyKind::kNone},
      {"loss/avg_raw_advantages_abs", PolicyKind::kRewardSpread},
      {"ppo_actor/update/entropy/avg", PolicyKind::kEntropy},
      {"ppo_actor/update/behave_kl/avg", PolicyKind::kMismatch},
      {"ppo_actor/update/behave_imp_weight/avg", PolicyKind::kMismatch},
      {"ppo_actor/update/clip_ratio/avg", PolicyKind::kClipShare},
      {"ppo_actor/task_reward/avg", PolicyKind::kReward},
      {"ppo_actor/no_eos_ratios/avg", PolicyKind::kTruncatedShare},
      {"metrics/critic/entropy/mean", PolicyKind::kEntropy},
      {"metrics/critic/kl", PolicyKind::kReferenceKl},
      {"actor/ppo_ratio_clipfrac", PolicyKind::kClipShare},
      {"actor/train_infer_diff_mean", PolicyKind::kMismatch},
      {"critic/advantages/max", PolicyKind::kRewardSpread},
      {"critic/advantages/mean", PolicyKind::kNone},
      {"truncated", PolicyKind::kTruncatedShare},
      {"rollout/truncated_ratio", PolicyKind::kTruncatedShare},
      {"response/aborted_ratio", PolicyKind::kNone},
      {"response_length_non_aborted/clip_ratio", PolicyKind::kTruncatedShare},
      {"completions/truncated_fraction", PolicyKind::kTruncatedShare},
      {"prompt_length/clip_ratio", PolicyKind::kNone},
      {"is_truncated/all/mean", PolicyKind::kTruncatedShare},
      {"train/truncation_rate", PolicyKind::kTruncatedShare},
      {"clip_ratio", PolicyKind::kClipShare},
      {"objective/scores", PolicyKind::kReward},
      {"objective/entropy_avg", PolicyKind::kEntropy},
      {"rollout/reward", PolicyKind::kReward},
      {"rollout/rewards", PolicyKind::kNone},
      {"train/total_reward/mean", PolicyKind::kReward},
  };
  for (const Named& named : kNamed) EXPECT_EQ(Of(named.op).kind, named.kind) << named.op;
}

TEST(PolicyMetric, LimitsAreThoseOfTheFramework) {
  EXPECT_EQ(Of("train_rollout_logprob_abs_diff").limit, 0.1);
  EXPECT_EQ(Of("train/gen_kl_error").limit, 1e-3);
  EXPECT_EQ(Of("rollout_corr/kl").limit, 0.1);
  EXPECT_EQ(Of("sampling/sampling_logp_difference/max").limit, 0) << "only its own past";
}

TEST(PolicyMetric, Distances) {
  const PolicyMetric ratio = Of("rollout_corr/rollout_is_mean");
  EXPECT_DOUBLE_EQ(ratio.Distance(0.5), std::log(2.0));
  EXPECT_DOUBLE_EQ(ratio.Distance(2), std::log(2.0));
  EXPECT_TRUE(std::isinf(ratio.Distance(0))) << "all tokens are masked";
  EXPECT_TRUE(std::isnan(ratio.Distance(NAN)));
  EXPECT_NEAR(Of("token_mult_prob_error").Distance(1.05), 0.05, 1e-12);
  EXPECT_NEAR(Of("rollout_is_eff_sample_size").Distance(0.3), 1 / 0.3, 1e-12);
  EXPECT_TRUE(std::isnan(Of("rollout_is_eff_sample_size").Distance(NAN)));
  EXPECT_EQ(Of("rollout_corr/kl").Distance(-0.2), 0.2) << "some are signed";
}

}  // namespace
}  // namespace plumbline::analysis
