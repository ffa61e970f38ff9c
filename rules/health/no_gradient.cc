#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/frame/frame.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/no-gradient

Parameters that the optimizer holds have never had a gradient: they keep the values that they began with.

**Why.** A LoRA adapter under reentrant checkpointing gets no gradient if the embedding's output requires none: the loss is
printed, the run ends with exit status 0, and the adapter still has its initial values. The published MoE runs of a well-known optimizer had the
same fault in their experts, and it was not seen for months.

**Bad.** `8 of 9 trained parameters have had no gradient in 3 optimizer steps, since step 0: blocks.0.lora_A.weight, ...`

**Good.** Each trained parameter had a gradient at least once. Experts that few tokens reach have one sooner or later.

**How to fix it.**
- LoRA with gradient checkpointing: `model.enable_input_require_grads()`, or `gradient_checkpointing_kwargs={"use_reentrant": False}`.
- Look for `.detach()`, `.item()`, `torch.no_grad()` and `torch.tensor(loss)` between the parameters and the loss, and for
  `zero_grad()` between `backward()` and `step()`.
- If an optimizer holds none: make it after the model is whole (after `from_pretrained`, `fully_shard`, or a new head).
- What is frozen on purpose: `requires_grad_(False)`.

**What it checks.** `run.watch` counts, at a step's end, the parameters that require a gradient and are held by a watched optimizer
(`trained/held`), and those whose `.grad` was None at each optimizer step so far (`trained/never`). From the third optimizer step on:
- all of them, or all of an adapter or of a layer's experts: error;
- some, although their module's forward pass ran: warning;
- some, and their module never ran (an unused head, LayerDrop): note.

An optimizer that never stepped, while the others made 64 steps and its parameters had gradients in each
(`trained/unstepped`): a warning. None that stepped by the run's end, after
16 backward passes or more (`trained/passes`), and no weight that changed: error.

An optimizer that holds none of the model's trained parameters is an error, if no weight has changed. Parameters that
were replaced or made trainable after `run.watch`, have gradients and are held by no optimizer (`trained/replaced`) are a warning.

**Strength.** `proved`: `.grad` was None at each step; this is not a threshold.

**Inconclusive when** fewer than 3 optimizer steps were seen, a count is NaN or infinite, or the optimizer holds copies of the weights
(then weights change although it holds none of them).

**What it cannot see.** A gradient that is there and zero (`health/all-zero`, `health/gradient-vanish`); a part of the loss that is
detached while another part reaches the same parameters; parameters that no optimizer holds next to some that it holds
(`health/unchanged-tensor`).

**Cost.** In `run.watch` one look at `.grad` a parameter in the first steps, and at ever rarer ones.

**Sources.** transformers #26969 and peft #1142 (LoRA without gradients under reentrant checkpointing).
)page";

constexpr RuleInfo kInfo = {"health/no-gradient",
                            "trained parameters never get a gradient",
                            v1::LEVEL_ERROR,
                            "0.2.0",
                            kPage,
                            {}};

constexpr std::string_view kTrainedPrefix = "trained/",
                           kNeverPrefix = "trained/never:", kUnsteppedPrefix = "trained/unstepped:";
constexpr double kStepsWithoutGradient = 3;
constexpr double kStepsOfOthers = 64;
constexpr double kFewestPasses = 16;
constexpr size_t kMostUntrainedNames = 6;

// Values that one rank reports in one step.
struct TrainedCounts {
  std::map<std::string, double> values;  // the key is the series' name without kTrainedPrefix
  std::vector<std::string> names;

  std::optional<double> Of(const std::string& name) const {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional<double>(found->second);
  }
  double Or(const std::string& name, double fallback) const { return Of(name).value_or(fallback); }
  bool usable() const {
    return std::all_of(values.begin(), values.end(), [](const auto& value) {
      return std::isfinite(value.second) && value.second >= 0;
    });
  }
};

class NoGradient : public ScalarRule {
 public:
  explicit NoGradient(const Options& /*options*/) {}

  bool ReadsScalar(const v1::Site& site) const override {
    return site.op().starts_with(kTrainedPrefix);
  }

  void Judge(const SiteStep& step, VerdictSink& /*out*/) override {
    const std::string& op = step.site.op();
    if (!op.starts_with(kTrainedPrefix)) return;
    for (const Item& item : step.items) {
      if (!item.evidence->has_scalar()) continue;
      TrainedCounts& counts = open_[item.source->rank()];
      if (op.starts_with(kNeverPrefix) || op.starts_with(kUnsteppedPrefix)) {
        counts.names.push_back(op.substr(op.find(':') + 1));
      } else {
        counts.values[op.substr(kTrainedPrefix.size())] = item.evidence->scalar().value();
      }
    }
  }

  bool judges_unseen_steps() const override { return false; }
  void JudgeStep(const StepEnd& step, VerdictSink& out) override {
    for (const auto& [rank, counts] : open_) {
      counted_ |= counts.Of("steps").has_value();
      if (counts.Of("passes") && counts.usable()) {
        stuck_ = counts.Or("moved", 1) == 0 && counts.Or("passes", 0) >= kFewestPasses
                     ? std::optional(counts.Or("passes", 0))
                     : std::nullopt;
        stuck_rank_ = rank;
      }
      if (counts.Or("unstepped", 0) > 0 && counts.usable())
        DescribeUnstepped(step, rank, counts, out);
      if (counts.Of("steps") && counts.Of("held")) JudgeRank(step, rank, counts, out);
    }
    open_.clear();
  }

  void JudgeRun(const RunSummary& run, VerdictSink& out) override {
    if (reported_ < static_cast<uint64_t>(v1::LEVEL_ERROR) && stuck_ && !counted_) {
      reported_ = static_cast<uint64_t>(v1::LEVEL_ERROR);
      DescribeStuck(run, out);
    }
    if (reported_ > 0 || (judged_ == 0 && few_ == 0 && unusable_ == 0 && copies_ == 0)) return;
    v1::Verdict verdict =
        judged_ > 0   ? Pass("each trained parameter had a gradient")
        : copies_ > 0 ? Inconclusive(
                            "copies: the optimizer holds copies of the weights, and their "
                            "gradients are not those of the parameters")
        : unusable_ > 0 ? Inconclusive("poisoned: a count is NaN or infinite")
                        : Inconclusive("few-steps: fewer than 3 optimizer steps were observed");
    SetPlace(verdict, "", "gradient", run.step_first, run.step_last, std::vector<uint32_t>{});
    out.Add(std::move(verdict));
  }

  // open_ is not stored, because it is empty between steps.
  void Persist(Archive& archive) override {
    archive.Version(2, 2);
    archive(reported_, judged_, few_, unusable_, copies_, reported_unstepped_, counted_, stuck_,
            stuck_rank_);
  }

 private:
  void JudgeRank(const StepEnd& step, uint32_t rank, const TrainedCounts& counts,
                 VerdictSink& out) {
    if (!counts.usable()) {
      ++unusable_;
    } else if (counts.Or("steps", 0) < kStepsWithoutGradient) {
      ++few_;
    } else if (counts.Or("held", 0) == 0) {
      if (counts.Or("moved", 1) > 0) {
        ++copies_;
      } else {
        Report(step, rank, counts, v1::LEVEL_ERROR, out);
      }
    } else if (const double never = counts.Or("never", 0); never > 0) {
      const bool all = never >= counts.Or("held", 0) || counts.Or("whole", 0) > 0;
      Report(step, rank, counts,
             all                           ? v1::LEVEL_ERROR
             : counts.Or("ran", never) > 0 ? v1::LEVEL_WARNING
                                           : v1::LEVEL_NOTE,
             out);
    } else if (counts.Or("replaced", 0) > 0) {
      Report(step, rank, counts, v1::LEVEL_WARNING, out);
    } else {
      ++judged_;
    }
  }

  // Describes an optimizer that was registered but is never stepped.
  void DescribeUnstepped(const StepEnd& step, uint32_t rank, const TrainedCounts& counts,
                         VerdictSink& out) {
    if (std::exchange(reported_unstepped_, true)) return;
    reported_ = std::max<uint64_t>(reported_, v1::LEVEL_WARNING);
    const double parameters = counts.Or("unstepped", 0), others = counts.Or("others", 0);
    const int64_t first = std::max<int64_t>(0, step.step + 1 - static_cast<int64_t>(others));
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_PROVED);
    found.Title("an optimizer never steps")
        .Explain(absl::StrFormat(
            "%s made no step while the other optimizers made %.0f. Its %.0f parameters had "
            "gradients in these steps, but keep their initial values.",
            counts.names.empty() ? "An optimizer" : absl::StrJoin(counts.names, ", "), others,
            parameters))
        .Cause("no-step", 0.9)
        .Measured("parameters of optimizers that never stepped", parameters, "parameters")
        .Threshold(kStepsOfOthers, "steps of the other optimizers")
        .Samples(static_cast<uint64_t>(others))
        .Witness("unstepped", parameters)
        .Witness("others", others)
        .Fix(
            "Call its step() in the loop. If it starts later on purpose, pass it to run.watch at "
            "that time.")
        .At("", "gradient", first, step.step, std::vector<uint32_t>{rank});
    out.Add(found.Take());
  }

  void DescribeStuck(const RunSummary& run, VerdictSink& out) const {
    FindingBuilder found(v1::LEVEL_ERROR, v1::STRENGTH_PROVED);
    found.Title("no optimizer step was made")
        .Explain(absl::StrFormat("The run ended after %.0f backward passes: no watched optimizer "
                                 "made a step, and no weight changed.",
                                 *stuck_))
        .Cause("no-step", 0.95)
        .Measured("backward passes without a step", *stuck_, "passes")
        .Threshold(kFewestPasses, "backward passes")
        .Samples(static_cast<uint64_t>(*stuck_))
        .Witness("passes", *stuck_)
        .Fix(
            "Call optimizer.step() after backward(), with the optimizer that holds the "
            "parameters of this model.")
        .At("", "gradient", run.step_first, run.step_last, std::vector<uint32_t>{stuck_rank_});
    out.Add(found.Take());
  }

  // Returns the series that counts the parameters of the finding.
  static std::string Counted(const TrainedCounts& counts) {
    if (counts.Or("held", 0) == 0) return "unheld";
    return counts.Or("never", 0) > 0 ? "never" : "replaced";
  }

  // Reports each level once, and no lower level after a higher one.
  void Report(const StepEnd& step, uint32_t rank, const TrainedCounts& counts, v1::Level level,
              VerdictSink& out) {
    if (reported_ >= static_cast<uint64_t>(level)) return;
    reported_ = static_cast<uint64_t>(level);
    const std::string counted = Counted(counts);
    const bool unheld = counted == "unheld", replaced = counted == "replaced";
    const double steps = counts.Or("steps", 0), never = counts.Or(counted, 0);
    const int64_t first = std::max<int64_t>(0, step.step + 1 - static_cast<int64_t>(steps));
    std::vector<std::string> names = counts.names;
    if (names.size() > kMostUntrainedNames) names.resize(kMostUntrainedNames);
    const std::string more =
        never > static_cast<double>(names.size())
            ? absl::StrFormat(" and %.0f more", never - static_cast<double>(names.size()))
            : "";
    const bool unused = level == v1::LEVEL_NOTE, nowhere = unheld || replaced;
    FindingBuilder found(level, v1::STRENGTH_PROVED);
    found
        .Title(unheld     ? "the optimizer holds no parameter of the model"
               : replaced ? "parameters that no optimizer holds were added after run.watch"
               : unused   ? "trained parameters belong to modules that never run"
                          : kInfo.title)
        .Explain(Explanation(counts, steps, never, first, absl::StrJoin(names, ", ") + more))
        .Cause(nowhere  ? "not-in-optimizer"
               : unused ? "unused"
                        : "no-path",
               0.9)
        .Measured(nowhere ? "parameters that no optimizer holds" : "parameters without a gradient",
                  never, "parameters")
        .Threshold(kStepsWithoutGradient, "optimizer steps")
        .Samples(static_cast<uint64_t>(steps))
        .Witness("held", counts.Or("held", 0))
        .Witness(counted, never)
        .Fix(Remedy(nowhere, level))
        .At(counts.names.empty() ? "" : counts.names.front(), "gradient", first, step.step,
            std::vector<uint32_t>{rank});
    out.Add(found.Take());
  }

  static std::string Explanation(const TrainedCounts& counts, double steps, double never,
                                 int64_t first, const std::string& names) {
    if (counts.Or("held", 0) == 0) {
      return absl::StrFormat(
          "The optimizer holds none of the %.0f trained parameters, and no weight changed in %.0f "
          "optimizer steps, since step %d: %s.",
          never, steps, first, names);
    }
    if (counts.Or("never", 0) == 0) {
      return absl::StrFormat(
          "%.0f parameters have gradients, but no optimizer holds them; they were replaced or made "
          "trainable after run.watch: %s.",
          never, names);
    }
    const double ran = counts.Or("ran", never);
    return absl::StrFormat(
        "%.0f of %.0f trained parameters had no gradient in %.0f optimizer steps, since step %d%s: "
        "%s.",
        never, counts.Or("held", 0), steps, first,
        ran > 0 ? "" : ", because their modules never ran in a forward pass", names);
  }

  static std::string Remedy(bool unheld, v1::Level level) {
    if (unheld)
      return "Create the optimizer from the parameters of the trained model, after the model is "
             "complete, wrapped and on its device.";
    if (level == v1::LEVEL_NOTE) return "Freeze unused parameters with requires_grad_(False).";
    return "Look for detach(), item(), no_grad() or zero_grad() between these parameters and the "
           "loss. LoRA under gradient checkpointing: model.enable_input_require_grads(), or "
           "use_reentrant=False.";
  }

  std::map<uint32_t, TrainedCounts> open_;  // by rank, of this step
  uint64_t reported_ = 0;                   // the highest level so far
  uint64_t judged_ = 0, few_ = 0, unusable_ = 0, copies_ = 0;
  bool reported_unstepped_ = false, counted_ = false;
  std::optional<double> stuck_;  // number of backward passes, if no step used their gradients
  uint32_t stuck_rank_ = 0;
};

}  // namespace

CatalogueEntry no_gradient() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<NoGradient>(options);
          }};
}

}  // namespace plumbline::rules
