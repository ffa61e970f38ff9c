#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/series/series.h"
#include "calculators/plan/plan.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# performance/comms-crossover

A GPU gets too few tokens per step to hide the network transfers.

**Why.** A sharded model transfers its weights and gradients once per step, for any batch. 100 B parameters on 64 H100
in domains of 8, at 50 GB/s per GPU out of the domain, need 1.5 s
for that, and 40 % of the peak computes 989 tokens per GPU in 1.5 s: at 500 tokens per GPU, each GPU waits for the
network for half of each step, even if the code overlaps as much as possible.

**Bad.** `a GPU gets 500 tokens per step; below 989 the network takes longer than the computation`.

**Good.** `a GPU gets 4,096 tokens per step, 4.1 times the number that hides the network`.

**How to fix it.** A larger batch or fewer GPUs; weights gathered once per step instead of for each micro-batch;
fewer bytes (fp8 gathers, bf16 gradients); zero2 if the weights fit; a pipeline, in which each GPU holds and transfers
only a part. `plumb plan` with the same figures gives a table of these.

**What it checks.** The tokens of a step, summed over its ranks (the series `tokens`, which `run.watch` records), over
the GPUs, median of the newest 64 steps, against

    critical tokens a GPU = T_comm · F · MFU / (6 · P_active),   T_comm = P · (2·b_w·m + b_g·r) / (D·BW)

with the options' model and cluster, as `plumb plan` has them: b_w and b_g bytes a weight and a gradient, m
micro-batches that gather the weights again, r reductions a step, D·BW what leaves a
domain (the link times its GPUs, never above the domain's own link). A finding where a GPU gets fewer. It lists
what moves the crossover, and the effect of a pipeline.

**Strength.** `bounded`: the network cannot be faster than its link; that computing reaches the share `mfu` of the
peak, and that all ranks are data parallel, are assumptions.

**Inconclusive when** fewer than 8 steps have tokens above 0 of all ranks. Without `parameters`, `peak_tflops` and `link_gb` it gives no verdict.

**What it cannot see.** Latency, congestion, and how much is overlapped in fact (`performance/exposed-communication`
on a trace); tokens that tensor-parallel ranks count twice.

**Cost.** 64 numbers.

**Sources.** Austin et al., "How to Scale Your Model", 2025; Rajbhandari et al., "ZeRO", 2020.
)page";

constexpr OptionInfo PlanFact(const char* name, const char* unit, const char* default_value,
                              const char* reason, double low, double high) {
  return {.name = name,
          .type = OptionInfo::Type::kNumber,
          .unit = unit,
          .default_value = default_value,
          .reason = reason,
          .low = low,
          .high = high};
}

constexpr const char* kNotDeclared = "0: not declared, and nothing is judged";
constexpr OptionInfo kOptions[] = {
    PlanFact("parameters", "of the model", "0", kNotDeclared, 0, 1e18),
    PlanFact("active", "parameters that a token uses", "0", "0: all", 0, 1e18),
    PlanFact("peak_tflops", "of one GPU, dense", "0", kNotDeclared, 0, 1e9),
    PlanFact("mfu", "of the peak", "0.4", "well-tuned training reaches this", 0.001, 1),
    PlanFact("gpus", "of the job", "0", "0: as many as there are ranks", 0, 1e9),
    PlanFact("domain", "GPUs", "8", "one host", 1, 1e6),
    PlanFact("link_gb", "GB/s of one GPU to other NVLink domains", "0", kNotDeclared, 0, 1e9),
    PlanFact("domain_link_gb", "GB/s of one GPU within its NVLink domain", "450",
             "NVLink of an H100", 0.001, 1e9),
    PlanFact("gathers", "micro-batches that gather the weights again", "1",
             "weights are kept for the whole step", 1, 1e6),
    PlanFact("weight_bytes", "each, as gathered", "2", "bf16", 0.1, 16),
    PlanFact("gradient_bytes", "each, as reduced", "2", "bf16", 0.1, 16),
};

constexpr RuleInfo kInfo = {"performance/comms-crossover",
                            "too few tokens per GPU for the network",
                            v1::LEVEL_NOTE,
                            "0.1.0",
                            kPage,
                            kOptions};

constexpr size_t kKeptSteps = 64, kFewestTokenSteps = 8;

class CommsCrossover : public ScalarRule {
 public:
  explicit CommsCrossover(const Options& options) : gpus_(options.Number("gpus")) {
    plan_.model.parameters = options.Number("parameters");
    plan_.model.active = std::min(options.Number("active"), plan_.model.parameters);
    plan_.cluster.peak = 1e12 * options.Number("peak_tflops");
    plan_.cluster.mfu = options.Number("mfu");
    plan_.cluster.domain = options.Number("domain");
    plan_.cluster.link = 1e9 * options.Number("link_gb");
    plan_.cluster.domain_link = 1e9 * options.Number("domain_link_gb");
    plan_.layout.gathers = options.Number("gathers");
    plan_.layout.weight_bytes = options.Number("weight_bytes");
    plan_.layout.gradient_bytes = options.Number("gradient_bytes");
    reported_ = plan_.model.parameters > 0 && plan_.cluster.peak > 0 && plan_.cluster.link > 0;
  }

  bool ReadsScalar(const v1::Site& site) const override { return reported_ && IsTokens(site.op()); }

  void Judge(const SiteStep& step, VerdictSink& /*out*/) override {
    if (!reported_ || !IsTokens(step.site.op()) || step.world_size == 0) return;
    double tokens = 0;
    size_t ranks = 0;
    for (const Item& item : step.items) {
      if (!item.evidence->has_scalar()) continue;
      tokens += item.evidence->scalar().value();
      ++ranks;
    }
    any_ |= ranks > 0;
    // If some ranks do not report a step, its tokens are not known.
    if (ranks != step.world_size || !(tokens > 0) || !(tokens < 1e18)) return;
    if (tokens_.empty()) first_ = step.step;
    last_ = step.step;
    world_ = step.world_size;
    tokens_.push_back(tokens);
    if (tokens_.size() > kKeptSteps) tokens_.pop_front();
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    if (!any_) return;
    v1::Verdict verdict = JudgeTokens();
    SetPlace(verdict, "", "tokens", first_, std::max(first_, last_), std::vector<uint32_t>{});
    out.Add(std::move(verdict));
  }

  void Persist(Archive& archive) override {
    archive.Version(1);
    archive(tokens_, first_, last_, world_, any_);
  }

 private:
  static bool IsTokens(const std::string& op) { return op == "tokens" || op.ends_with("/tokens"); }

  v1::Verdict JudgeTokens() const {
    if (tokens_.size() < kFewestTokenSteps)
      return Inconclusive(
          absl::StrFormat("few-steps: %d steps contain the tokens of all ranks; the rule needs %d",
                          tokens_.size(), kFewestTokenSteps));
    plan::Input plan = plan_;
    plan.cluster.gpus = gpus_ >= 1 ? gpus_ : world_;
    std::vector<double> newest(tokens_.begin(), tokens_.end());
    plan.layout.batch_tokens = MedianOf(newest);
    const double tokens = plan.layout.batch_tokens / plan.cluster.gpus;
    const double critical = plan::CriticalTokens(plan);
    google::protobuf::Struct details;
    Put(details, "tokens_per_gpu", tokens);
    Put(details, "critical_tokens", critical);
    if (!(critical > 0) || !std::isfinite(critical))
      return Pass("a single GPU exchanges no data", std::move(details));
    if (tokens >= critical)
      return Pass(
          absl::StrFormat(
              "a GPU gets %.4g tokens per step, %.3g times the number that hides the network",
              tokens, tokens / critical),
          std::move(details));
    FindingBuilder found(v1::LEVEL_NOTE, v1::STRENGTH_BOUNDED);
    found.Title(kInfo.title)
        .Explain(absl::StrFormat(
            "A GPU gets %.4g tokens per step. Below %.4g the network takes longer (%.3g s) than "
            "the computation (%.3g s). Critical numbers of tokens:%s.",
            tokens, critical, plan::NetworkSeconds(plan), plan::ComputeSeconds(plan),
            LeverWords(plan)))
        .Cause("below-crossover", 0.8)
        .Measured("tokens per GPU and step", tokens, "tokens")
        .Threshold(critical, "6 FLOPs per token and parameter, compared with the bytes of a step")
        .Samples(tokens_.size())
        .Assume("the computation reaches the share of the peak that option mfu declares")
        .Assume("all ranks are data parallel")
        .Witness("network_seconds", plan::NetworkSeconds(plan))
        .Witness("compute_seconds", plan::ComputeSeconds(plan))
        .Fix(
            "Use a larger batch or fewer GPUs, gather weights once per step, send fewer bytes, or "
            "use a pipeline; plumb plan with the same figures computes the gain of each.");
    *found.verdict().mutable_details() = std::move(details);
    return found.Take();
  }

  // Returns a text with changes that would move the crossover: " 494 with weights gathered in one
  // byte, ...".
  static std::string LeverWords(const plan::Input& plan) {
    constexpr size_t kMostLevers = 3;
    const double now = plan::CriticalTokens(plan);
    std::string words;
    size_t shown = 0;
    for (const plan::Lever& lever : plan::Levers(plan)) {
      if (!(lever.critical_tokens < now) || shown == kMostLevers) continue;
      absl::StrAppend(&words, shown == 0 ? "" : ",",
                      absl::StrFormat(" %.4g with %s", lever.critical_tokens, lever.what));
      ++shown;
    }
    return words.empty() ? " these, regardless of other changes" : words;
  }

  const double gpus_;
  plan::Input plan_;
  bool reported_ = false;
  std::deque<double> tokens_;  // tokens of complete steps, summed over all ranks
  int64_t first_ = 0, last_ = 0;
  uint32_t world_ = 0;
  bool any_ = false;
};

}  // namespace

CatalogueEntry comms_crossover() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<CommsCrossover>(options);
          }};
}

}  // namespace plumbline::rules
