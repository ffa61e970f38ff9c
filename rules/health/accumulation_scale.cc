#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/accumulation-scale

With several micro-batches per step, the gradients of their mean losses are added up: no code divides by their number.

**Why.** With 4 micro-batches the gradient is 4 times the one that the batch of all of them has. Clipping hides a part of it, Adam
most of it, and the logged loss is 4 times too large. In transformers 5.24 this is true of each class whose `forward` takes
`**kwargs` and computes its own loss (BERT, T5, BART, Whisper, ...): the trainer takes the loss for one that is divided already.

**Bad.** `backward gets the whole mean of each of 4 micro-batches (5.31 of 5.31), and nothing divides the sum`

**Good.** A share of 1/k; of n/N for n of the step's N labels; a sum that is divided before the optimizer's step.

**How to fix it.**
- Divide in `compute_loss` by `args.gradient_accumulation_steps`, or set `trainer.loss_is_scaled_for_ga = False`
  (before transformers 5.24 `model_accepts_loss_kwargs`): then the Trainer divides.
- In a loop of one's own: `(loss / k).backward()`.

**What it checks.** In steps that are due `run.watch` computes the mean cross-entropy of one micro-batch from the model's own logits
and labels, and compares it with the loss that `backward` gets (`trained/share`, their ratio), for k micro-batches (`trained/micro`).
It also compares the gradient that the optimizer reads with the one that was accumulated (`trained/kept`, their ratio before a clip).
In a loop of one's own with three micro-batches or more the mean is that of torch's cross-entropy in the loss's graph; then the finding is a
warning, because losses that are summed on purpose look the same. If the product is 1 in three such steps in a row,
nothing was divided. It must be 1/k, or the micro-batch's share of the step's labels.

**Strength.** `proved`: one micro-batch is recomputed, to a part in a thousand.

**Inconclusive when** fewer than 3 such steps were seen, the ratio is NaN, infinite or above 1, or the loss of several
micro-batches holds no cross-entropy (`no-labels`): then nothing states by what a mean would be divided.

**What it cannot see.** Losses other than cross-entropy of logits and labels; micro-batches weighted unequally among each other.

**Cost.** One cross-entropy of one micro-batch in a step that is due.

**Sources.** transformers, `Trainer.training_step` and `model_accepts_loss_kwargs`; Unsloth, "Bugs in LLM training: gradient accumulation", 2024.
)page";

constexpr RuleInfo kInfo = {"health/accumulation-scale",
                            "the loss is not divided by the number of micro-batches",
                            v1::LEVEL_ERROR,
                            "0.2.0",
                            kPage,
                            {}};

constexpr std::string_view kShareMicro = "trained/micro", kShareOfMean = "trained/share",
                           kShareKept = "trained/kept", kShareOwnLoop = "trained/own_loop";
constexpr double kShareTolerance = 1e-3;
constexpr double kShareLoose = 5e-3;   // rounding a loss to bf16 changes it by up to 4e-3
constexpr double kShareDivided = 0.9;  // upper limit: two micro-batches with 9 labels to 1
constexpr uint64_t kSharesInARow = 3;

class AccumulationScale : public ScalarRule {
 public:
  explicit AccumulationScale(const Options& /*options*/) {}

  bool ReadsScalar(const v1::Site& site) const override {
    return site.op() == kShareMicro || site.op() == kShareOfMean || site.op() == kShareKept ||
           site.op() == kShareOwnLoop;
  }

  void Judge(const SiteStep& step, VerdictSink& /*out*/) override {
    for (const Item& item : step.items) {
      if (!item.evidence->has_scalar() || !ReadsScalar(step.site)) continue;
      open_[item.source->rank()][step.site.op()] = item.evidence->scalar().value();
    }
  }

  bool judges_unseen_steps() const override { return false; }
  void JudgeStep(const StepEnd& step, VerdictSink& out) override {
    for (const auto& [rank, values] : open_) {
      const auto micro = values.find(std::string(kShareMicro)),
                 share = values.find(std::string(kShareOfMean));
      if (micro == values.end()) continue;
      if (share == values.end()) {
        unshared_ += micro->second > 1 ? 1 : 0;
        continue;
      }
      const auto kept = values.find(std::string(kShareKept));
      own_loop_ = values.contains(std::string(kShareOwnLoop));
      Take(step, rank, micro->second, share->second, kept == values.end() ? 1 : kept->second, out);
    }
    open_.clear();
  }

  void JudgeRun(const RunSummary& run, VerdictSink& out) override {
    if (reported_ || (points_ == 0 && unshared_ < kSharesInARow)) return;
    v1::Verdict verdict =
        points_ == 0
            ? Inconclusive(
                  "no-labels: no cross-entropy was observed in the loss of several micro-batches, "
                  "so the rule cannot check whether the loss is divided by their number")
        : divided_ > 0  ? Pass("the loss is divided by the number of micro-batches")
        : unusable_ > 0 ? Inconclusive("poisoned: a ratio is NaN or infinite")
        : other_ > 0
            ? Inconclusive("another-loss: the loss is not the mean over these labels")
            : Inconclusive("few-steps: the rule recomputed fewer than 3 steps; it needs 3");
    SetPlace(verdict, "", "loss", run.step_first, run.step_last, std::vector<uint32_t>{});
    out.Add(std::move(verdict));
  }

  // open_ is not stored, because it is empty between steps.
  void Persist(Archive& archive) override {
    archive.Version(3, 3);
    archive(own_loop_, reported_, points_, divided_, unusable_, other_, unshared_, whole_,
            whole_first_);
  }

 private:
  void Take(const StepEnd& step, uint32_t rank, double micro, double share, double kept,
            VerdictSink& out) {
    const double part = share * kept;
    if (!(micro > 1)) return;
    ++points_;
    if (!std::isfinite(part) || !(part > 0)) {
      ++unusable_;
      whole_ = 0;
      return;
    }
    if (std::abs(part - 1) <=
        (std::abs(share - 1) <= kShareTolerance ? kShareTolerance : kShareLoose)) {
      if (whole_++ == 0) whole_first_ = step.step;
      if (whole_ >= kSharesInARow && !reported_) Report(step, rank, micro, share, kept, out);
      return;
    }
    whole_ = 0;
    ++(part <= kShareDivided ? divided_ : other_);
  }

  void Report(const StepEnd& step, uint32_t rank, double micro, double share, double kept,
              VerdictSink& out) {
    reported_ = true;
    FindingBuilder found(own_loop_ ? v1::LEVEL_WARNING : v1::LEVEL_ERROR, v1::STRENGTH_PROVED);
    if (own_loop_)
      found.Assume("the losses of the step belong to micro-batches, and their sum is not intended");
    found.Title(kInfo.title)
        .Explain(absl::StrFormat(
            "backward() gets the undivided mean loss of each of %.0f micro-batches (%.4f times the "
            "mean over the labels of the micro-batch) in %d recomputed steps, %d to %d. Nothing "
            "divides the gradient afterwards, so it is %.0f times the gradient of the whole batch.",
            micro, share, whole_, whole_first_, step.step, micro))
        .Cause("not-divided", 0.95)
        .Measured("loss over the mean loss of the micro-batch", share * kept)
        .Threshold(1 / micro, "1 / number of micro-batches")
        .Samples(whole_)
        .Witness("micro_batches", micro)
        .Witness("share", share)
        .Witness("kept", kept)
        .Fix(
            "Divide the loss by the number of micro-batches before backward(). Trainer: divide in "
            "compute_loss, or set trainer.loss_is_scaled_for_ga = False.")
        .At("", "loss", whole_first_, step.step, std::vector<uint32_t>{rank});
    out.Add(found.Take());
  }

  std::map<uint32_t, std::map<std::string, double>> open_;  // rank -> series, for this step
  // True if the newest step has the series kShareOwnLoop.
  bool own_loop_ = false;
  bool reported_ = false;
  uint64_t points_ = 0, divided_ = 0, unusable_ = 0, other_ = 0;
  uint64_t unshared_ = 0;  // steps of several micro-batches whose share could not be computed
  uint64_t whole_ = 0;     // number of consecutive such steps
  int64_t whole_first_ = 0;
};

}  // namespace

CatalogueEntry accumulation_scale() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<AccumulationScale>(options);
          }};
}

}  // namespace plumbline::rules
