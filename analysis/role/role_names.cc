#include "analysis/role/role_names.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string>

#include "absl/strings/ascii.h"

namespace plumbline {
namespace {

// `name` has the form of NormalName. A '*' at its end matches any further words, one at its
// beginning any words before.
struct NameOfRole {
  std::string_view name;
  SeriesRole role;
};

// The names come from public sources of August 2026 (TRL, verl, slime, NeMo-RL, prime-rl, OpenRLHF,
// open-instruct, ms-swift, AReaL, torchtitan, Megatron-LM, OLMo-core, Composer).
constexpr NameOfRole kNamesOfRoles[] = {
    // Trainer and engine disagree on a token's log-probability.
    {"sampling sampling logp difference *", SeriesRole::kMismatch},
    {"train rollout logprob abs diff *", SeriesRole::kMismatch},
    {"train rollout logprob abs diff", SeriesRole::kMismatch},
    {"* train rollout logprob abs diff", SeriesRole::kMismatch},
    {"vllm vs local logprob diff *", SeriesRole::kMismatch},
    {"debug vllm vs local logprob diff *", SeriesRole::kMismatch},
    {"* vllm vs local logprob diff mean", SeriesRole::kMismatch},
    {"training rollout probs diff mean", SeriesRole::kMismatchProbability},
    {"training rollout probs diff max", SeriesRole::kMismatchProbability},
    {"training rollout probs diff std", SeriesRole::kMismatchProbability},
    {"rollout probs diff mean", SeriesRole::kMismatchProbability},
    {"rollout probs diff max", SeriesRole::kMismatchProbability},
    {"rollout probs diff std", SeriesRole::kMismatchProbability},
    {"* rollout actor probs pearson corr", SeriesRole::kMismatchProbability},
    {"rollout actor probs pearson corr", SeriesRole::kMismatchProbability},
    {"rollout train prob diff *", SeriesRole::kMismatchProbability},
    {"train infer diff *", SeriesRole::kMismatchProbability},
    {"rollout train logprobs abs diff *", SeriesRole::kMismatch},
    {"rollout corr log ppl abs diff", SeriesRole::kMismatch},
    {"rollout correction log ppl abs diff", SeriesRole::kMismatch},
    {"behave kl", SeriesRole::kMismatchKl},
    {"rollout corr kl", SeriesRole::kMismatchKl},
    {"rollout corr k3 kl", SeriesRole::kMismatchKl},
    {"rollout correction kl", SeriesRole::kMismatchKl},
    {"rollout correction k3 kl", SeriesRole::kMismatchKl},
    {"* gen kl error", SeriesRole::kMismatchKl},
    {"gen kl error", SeriesRole::kMismatchKl},
    {"policy kl error", SeriesRole::kMismatchKl},
    {"js divergence error", SeriesRole::kMismatchKl},
    {"mismatch kl *", SeriesRole::kMismatchKl},
    {"mismatch kl", SeriesRole::kMismatchKl},
    {"* mismatch kl", SeriesRole::kMismatchKl},
    {"generation kl error", SeriesRole::kMismatchKl},
    {"* kl sample train v1", SeriesRole::kMismatchKl},
    {"* kl sample train v2", SeriesRole::kMismatchKl},
    {"kl sample train v1", SeriesRole::kMismatchKl},
    {"kl sample train v2", SeriesRole::kMismatchKl},
    {"mismatch k3 kl", SeriesRole::kMismatchKl},
    {"vllm kl", SeriesRole::kMismatchKl},
    {"vllm local reverse kl", SeriesRole::kMismatchKl},
    {"* vllm local reverse kl", SeriesRole::kMismatchKl},
    {"token mult prob error", SeriesRole::kMismatchFactor},
    {"* token mult prob error", SeriesRole::kMismatchFactor},
    {"max seq mult prob error", SeriesRole::kMismatchFactor},
    {"mean seq mult prob error", SeriesRole::kMismatchFactor},
    {"min seq mult prob error", SeriesRole::kMismatchFactor},
    {"rollout corr chi2 token", SeriesRole::kMismatchChiSquare},
    {"rollout corr chi2 seq", SeriesRole::kMismatchChiSquare},
    {"rollout correction chi2 token", SeriesRole::kMismatchChiSquare},
    {"chi2 token", SeriesRole::kMismatchChiSquare},
    {"chi2 seq", SeriesRole::kMismatchChiSquare},
    {"sampling importance sampling ratio *", SeriesRole::kImportanceRatio},
    {"* rollout is mean", SeriesRole::kImportanceRatio},
    {"* rollout is std", SeriesRole::kImportanceRatio},
    {"* rollout is eff sample size", SeriesRole::kImportanceRatio},
    {"rollout is mean", SeriesRole::kImportanceRatio},
    {"rollout is std", SeriesRole::kImportanceRatio},
    {"rollout is eff sample size", SeriesRole::kImportanceRatio},
    {"sampling importance ratio", SeriesRole::kImportanceRatio},
    {"is weight mean", SeriesRole::kImportanceRatio},
    {"* is weight mean", SeriesRole::kImportanceRatio},
    {"rollout correction ess", SeriesRole::kImportanceRatio},
    {"ois", SeriesRole::kImportanceRatio},
    {"behave imp weight", SeriesRole::kImportanceRatio},
    {"tis", SeriesRole::kImportanceRatio},
    // Distance of the policy from the policy that sampled, or from the reference.
    {"ppo kl", SeriesRole::kStepKl},
    {"approx kl", SeriesRole::kStepKl},
    {"approxkl", SeriesRole::kStepKl},
    {"policykl", SeriesRole::kStepKl},
    {"policy approxkl avg", SeriesRole::kStepKl},
    {"pg clipfrac *", SeriesRole::kClipShare},
    {"pg clipfrac", SeriesRole::kClipShare},
    {"clip frac", SeriesRole::kClipShare},
    {"clip fraction", SeriesRole::kClipShare},
    {"clipfrac", SeriesRole::kClipShare},
    {"ppo ratio clipfrac", SeriesRole::kClipShare},
    {"ppo ratio * clipfrac", SeriesRole::kClipShare},
    {"clip ratio", SeriesRole::kClipShare},
    {"cispo clip ratio", SeriesRole::kClipShare},
    {"clip ratio *", SeriesRole::kClipShare},
    {"ppo clip ratio", SeriesRole::kClipShare},
    {"policy clipfrac *", SeriesRole::kClipShare},
    {"is masked *", SeriesRole::kClipShare},
    {"dual clip ratio *", SeriesRole::kNone},
    {"kl", SeriesRole::kReferenceKl},
    {"critic kl", SeriesRole::kReferenceKl},
    {"objective kl *", SeriesRole::kReferenceKl},
    {"objective kl", SeriesRole::kReferenceKl},
    {"kl policy base", SeriesRole::kReferenceKl},
    {"kl penalty", SeriesRole::kReferenceKl},
    {"kl to ref mean", SeriesRole::kReferenceKl},
    {"kl to ref", SeriesRole::kReferenceKl},
    {"kl ref", SeriesRole::kReferenceKl},
    {"ref kl mean", SeriesRole::kReferenceKl},
    {"ref kl", SeriesRole::kReferenceKl},
    {"reference kl", SeriesRole::kReferenceKl},
    {"entropy", SeriesRole::kEntropy},
    {"objective entropy", SeriesRole::kEntropy},
    {"critic entropy mean", SeriesRole::kEntropy},
    {"approx entropy", SeriesRole::kEntropy},
    {"policy entropy avg", SeriesRole::kEntropy},
    {"entropy * mean", SeriesRole::kEntropy},
    {"entropy mean", SeriesRole::kEntropy},
    {"entropy avg", SeriesRole::kEntropy},
    {"optim entropy", SeriesRole::kEntropy},
    {"reward", SeriesRole::kReward},
    {"rewards *", SeriesRole::kReward},
    {"mean reward", SeriesRole::kReward},
    {"avg reward", SeriesRole::kReward},
    {"reward mean", SeriesRole::kReward},
    {"reward avg", SeriesRole::kReward},
    {"task reward avg", SeriesRole::kReward},
    {"final reward avg", SeriesRole::kReward},
    {"rollout reward avg", SeriesRole::kReward},
    {"reward * mean", SeriesRole::kReward},
    {"rollout raw reward", SeriesRole::kReward},
    {"scores", SeriesRole::kReward},
    {"objective scores", SeriesRole::kReward},
    {"objective verifiable correct rate", SeriesRole::kReward},
    {"objective verifiable reward", SeriesRole::kReward},
    {"task reward", SeriesRole::kReward},
    {"rollout reward", SeriesRole::kReward},
    {"reward avg raw reward", SeriesRole::kReward},
    {"loss avg final rewards", SeriesRole::kReward},
    {"total reward", SeriesRole::kReward},
    {"total reward mean", SeriesRole::kReward},
    {"reward avg pass at *", SeriesRole::kReward},
    {"pass@*", SeriesRole::kReward},
    {"pass at *", SeriesRole::kReward},
    {"env * reward total", SeriesRole::kReward},
    {"raw reward", SeriesRole::kReward},
    {"critic score *", SeriesRole::kReward},
    {"critic rewards *", SeriesRole::kReward},
    {"rollout ep rew mean", SeriesRole::kReward},
    {"ep rew mean", SeriesRole::kReward},
    {"charts episodic return", SeriesRole::kReward},
    {"episodic return", SeriesRole::kReward},
    {"episode reward mean", SeriesRole::kReward},
    {"env runners episode return mean", SeriesRole::kReward},
    {"episode return mean", SeriesRole::kReward},
    {"objective rlhf reward", SeriesRole::kReward},
    {"reward std", SeriesRole::kRewardSpread},
    {"group reward std", SeriesRole::kRewardSpread},
    {"frac reward zero std", SeriesRole::kRewardSpread},
    {"zero std count *", SeriesRole::kRewardSpread},
    {"rollout zero std count *", SeriesRole::kRewardSpread},
    {"completions mean length", SeriesRole::kResponseLength},
    {"completion length", SeriesRole::kResponseLength},
    {"completions clipped ratio", SeriesRole::kTruncatedShare},
    {"completions truncated fraction", SeriesRole::kTruncatedShare},
    {"completions *", SeriesRole::kResponseLength},
    {"response length clip ratio", SeriesRole::kTruncatedShare},
    {"response length * clip ratio", SeriesRole::kTruncatedShare},
    {"response length *", SeriesRole::kResponseLength},
    {"response length", SeriesRole::kResponseLength},
    {"tokens response length *", SeriesRole::kResponseLength},
    {"token response length *", SeriesRole::kResponseLength},
    {"rollout response lengths", SeriesRole::kResponseLength},
    {"seq len all mean", SeriesRole::kResponseLength},
    {"ppo actor seq len", SeriesRole::kResponseLength},
    {"generate * num tokens", SeriesRole::kResponseLength},
    {"response len *", SeriesRole::kResponseLength},
    {"rollout response len *", SeriesRole::kResponseLength},
    {"truncated ratio", SeriesRole::kTruncatedShare},
    {"rollout truncated ratio", SeriesRole::kTruncatedShare},
    {"rollout truncated", SeriesRole::kTruncatedShare},
    {"truncated", SeriesRole::kTruncatedShare},
    {"truncation rate", SeriesRole::kTruncatedShare},
    {"is truncated *", SeriesRole::kTruncatedShare},
    {"no eos ratios", SeriesRole::kTruncatedShare},
    {"clipped ratio", SeriesRole::kTruncatedShare},
    {"aborted ratio", SeriesRole::kTruncatedShare},
    {"sample staleness *", SeriesRole::kStaleness},
    {"trajectory staleness *", SeriesRole::kStaleness},
    {"avg trajectory age", SeriesRole::kStaleness},
    {"off policy *", SeriesRole::kStaleness},
    {"num steps off policy", SeriesRole::kStaleness},
    {"staleness", SeriesRole::kStaleness},
    {"mean staleness", SeriesRole::kStaleness},
    {"staleness mean", SeriesRole::kStaleness},
    {"version lag", SeriesRole::kStaleness},
    {"weight version lag", SeriesRole::kStaleness},
    {"policy lag", SeriesRole::kStaleness},
    // Experts.
    {"max vio", SeriesRole::kExpertLoad},
    {"max vio *", SeriesRole::kExpertLoad},
    {"* max vio", SeriesRole::kExpertLoad},
    {"rollout moe *", SeriesRole::kExpertLoad},
    {"expert utilization", SeriesRole::kExpertLoad},
    {"expert utilisation", SeriesRole::kExpertLoad},
    {"* expert utilization", SeriesRole::kExpertLoad},
    {"routing confidence mean", SeriesRole::kExpertLoad},
    {"drop rate", SeriesRole::kDropRate},
    {"moe drop rate", SeriesRole::kDropRate},
    {"* token drop rate", SeriesRole::kDropRate},
    {"router entropy", SeriesRole::kRouterEntropy},
    {"moe router entropy", SeriesRole::kRouterEntropy},
    {"* router entropy", SeriesRole::kRouterEntropy},
    // Mixed precision.
    {"grad scale", SeriesRole::kLossScale},
    {"fp16 grad scale", SeriesRole::kLossScale},
    {"amp scale", SeriesRole::kLossScale},
    {"loss scaler", SeriesRole::kLossScale},
    {"dynamic loss scale", SeriesRole::kLossScale},
    {"number of skipped iterations", SeriesRole::kSkippedSteps},
    {"skipped steps", SeriesRole::kSkippedSteps},
    {"skipped iterations", SeriesRole::kSkippedSteps},
    {"skipped", SeriesRole::kSkippedSteps},
    {"if nan skip", SeriesRole::kSkippedSteps},
    {"optim step skipped", SeriesRole::kSkippedSteps},
    {"number of nan iterations", SeriesRole::kNanCount},
    {"nan iterations", SeriesRole::kNanCount},
    {"nan count", SeriesRole::kNanCount},
    // Speed.
    {"tokens s", SeriesRole::kTokensPerSecond},
    {"tok s", SeriesRole::kTokensPerSecond},
    {"tok sec", SeriesRole::kTokensPerSecond},
    {"tokens sec", SeriesRole::kTokensPerSecond},
    {"tokens per second", SeriesRole::kTokensPerSecond},
    {"tokens per sec", SeriesRole::kTokensPerSecond},
    {"throughput tokens per sec", SeriesRole::kTokensPerSecond},
    {"throughput device tokens per sec", SeriesRole::kTokensPerSecond},
    {"throughput device tps", SeriesRole::kTokensPerSecond},
    {"throughput(tps)", SeriesRole::kTokensPerSecond},
    {"tokens per second per gpu", SeriesRole::kTokensPerSecond},
    {"wps", SeriesRole::kTokensPerSecond},
    {"words s", SeriesRole::kTokensPerSecond},
    {"tps", SeriesRole::kTokensPerSecond},
    {"tgs", SeriesRole::kTokensPerSecond},
    {"mfu", SeriesRole::kUtilisation},
    {"mfu(%)", SeriesRole::kUtilisation},
    {"perf mfu *", SeriesRole::kUtilisation},
    {"throughput device mfu", SeriesRole::kUtilisation},
    {"bf16 mfu", SeriesRole::kUtilisation},
    // Sides of a game and parts of a loss in CycleGAN, pix2pix, SPADE and BasicSR.
    {"cycle a", SeriesRole::kAuxiliaryLoss},
    {"cycle b", SeriesRole::kAuxiliaryLoss},
    {"idt a", SeriesRole::kAuxiliaryLoss},
    {"idt b", SeriesRole::kAuxiliaryLoss},
    {"d a", SeriesRole::kAuxiliaryLoss},
    {"d b", SeriesRole::kAuxiliaryLoss},
    {"g a", SeriesRole::kAuxiliaryLoss},
    {"g b", SeriesRole::kAuxiliaryLoss},
    {"g gan", SeriesRole::kAuxiliaryLoss},
    {"g gan feat", SeriesRole::kAuxiliaryLoss},
    {"g vgg", SeriesRole::kAuxiliaryLoss},
    {"g l1", SeriesRole::kAuxiliaryLoss},
    {"d real", SeriesRole::kAuxiliaryLoss},
    {"d fake", SeriesRole::kAuxiliaryLoss},
    {"l1", SeriesRole::kAuxiliaryLoss},
    {"l pix", SeriesRole::kLoss},
    {"l percep", SeriesRole::kAuxiliaryLoss},
    {"l g *", SeriesRole::kAuxiliaryLoss},
    {"l d *", SeriesRole::kAuxiliaryLoss},
    {"errd", SeriesRole::kAuxiliaryLoss},  // DCGAN
    {"errg", SeriesRole::kAuxiliaryLoss},
    {"mel spec error", SeriesRole::kAuxiliaryLoss},  // HiFi-GAN
    // Kaldi's nnet3 maximises this value.
    {"output average objective function", SeriesRole::kLikelihood},
    {"output * average objective function", SeriesRole::kLikelihood},
    {"objc", SeriesRole::kAuxiliaryLoss},  // ElegantRL: critic, actor, return of an episode
    {"obja", SeriesRole::kAuxiliaryLoss},
    {"avgr", SeriesRole::kReward},
    {"trl", SeriesRole::kLoss},  // llm.c's main.log
    {"tel", SeriesRole::kEvaluationLoss},
    {"current error", SeriesRole::kAuxiliaryLoss},  // FANN
    {"training error", SeriesRole::kAuxiliaryLoss},
    // Names whose words alone would give a wrong role.
    {"init loss", SeriesRole::kNone},
    {"initial loss", SeriesRole::kNone},
    {"l r", SeriesRole::kRate},
    {"mean token accuracy", SeriesRole::kAccuracy},
    {"token acc", SeriesRole::kAccuracy},
    {"token accuracy", SeriesRole::kAccuracy},
    {"next token accuracy", SeriesRole::kAccuracy},
    {"accuracy", SeriesRole::kAccuracy},
    {"acc", SeriesRole::kAccuracy},
    // Of CatBoost's console, which does not print the metric's name.
    {"learn", SeriesRole::kAuxiliaryLoss},
    {"test", SeriesRole::kAuxiliaryLoss},
    {"train speed(iter s)", SeriesRole::kNone},
    {"time batch", SeriesRole::kNone},  // Composer's counts
    {"time epoch", SeriesRole::kNone},
    {"time token", SeriesRole::kNone},
    {"time sample", SeriesRole::kNone},
    {"hparam *", SeriesRole::kNone},
};

// Returns the name in lower case, with one space for each run of separators.
std::string NormalName(std::string_view name) {
  std::string normal;
  for (const char c : name) {
    const bool separator =
        c == '/' || c == '_' || c == '-' || c == '.' || c == ':' || c == ' ' || c == '\t';
    if (!separator) {
      normal += absl::ascii_tolower(c);
    } else if (!normal.empty() && normal.back() != ' ') {
      normal += ' ';
    }
  }
  while (normal.ends_with(' ')) normal.pop_back();
  return normal;
}

bool Fits(std::string_view name, std::string_view pattern) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return name == pattern;
  const std::string_view before = pattern.substr(0, star), after = pattern.substr(star + 1);
  return name.size() >= before.size() + after.size() && name.starts_with(before) &&
         name.ends_with(after);
}

std::optional<SeriesRole> Find(std::string_view normal) {
  const auto* found =
      std::find_if(std::begin(kNamesOfRoles), std::end(kNamesOfRoles),
                   [&](const NameOfRole& known) { return Fits(normal, known.name); });
  return found == std::end(kNamesOfRoles) ? std::nullopt : std::optional(found->role);
}

// AReaL appends the statistic to each name of a policy's metrics.
std::optional<SeriesRole> FindWithEnding(std::string_view normal) {
  if (const std::optional<SeriesRole> role = Find(normal)) return role;
  constexpr std::string_view kEnding = " avg";
  if (!normal.ends_with(kEnding)) return std::nullopt;
  const std::optional<SeriesRole> role = Find(normal.substr(0, normal.size() - kEnding.size()));
  const bool policy = role && *role >= SeriesRole::kMismatch && *role <= SeriesRole::kStaleness;
  return policy ? role : std::nullopt;
}

// True for slime's mean score of an evaluation: "eval/aime", "eval/gsm8k", "eval/aime-2024".
bool IsEvaluationScore(std::string_view normal) {
  constexpr std::string_view kEvaluation = "eval ";
  constexpr std::string_view kBenchmarks[] = {
      "aime",     "amc", "math",          "gsm8k",   "gpqa",      "mmlu", "humaneval", "mbpp",
      "olympiad", "bbh", "livecodebench", "minerva", "dapo math", "lcb",  "ifeval"};
  if (!normal.starts_with(kEvaluation)) return false;
  const std::string_view name = normal.substr(kEvaluation.size());
  return std::any_of(std::begin(kBenchmarks), std::end(kBenchmarks), [&](std::string_view known) {
    return name.starts_with(known) &&
           name.find_first_not_of(" 0123456789", known.size()) == std::string_view::npos;
  });
}

}  // namespace

std::optional<SeriesRole> RoleInTable(std::string_view name) {
  constexpr size_t kLongest = 128;
  // AReaL's scopes are last, longer ones first.
  constexpr std::string_view kWrapping[] = {"train ",        "data ",
                                            "actor ",        "val ",
                                            "metrics ",      "eval ",
                                            "losses ",       "policy ",
                                            "loss metrics ", "ppo actor update ",
                                            "ppo actor ",    "grpo actor update ",
                                            "grpo actor "};
  if (name.size() > kLongest) return std::nullopt;
  const std::string normal = NormalName(name);
  // TensorBoard's hparams are in a folder whose name is a time.
  if (normal.find(" hparam ") != std::string::npos) return SeriesRole::kNone;
  if (IsEvaluationScore(normal)) return SeriesRole::kReward;
  std::string_view rest = normal;
  while (true) {
    if (const std::optional<SeriesRole> role = FindWithEnding(rest)) return role;
    const auto* prefix =
        std::find_if(std::begin(kWrapping), std::end(kWrapping),
                     [&](std::string_view word) { return rest.starts_with(word); });
    if (prefix == std::end(kWrapping)) return std::nullopt;
    rest.remove_prefix(prefix->size());
  }
}

}  // namespace plumbline
