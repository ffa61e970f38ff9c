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

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/frame/frame.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/eval-mode

Dropout or batch norm of a trained module stays in eval mode after it was in train mode: the model is trained as it is evaluated.

**Why.** A validation calls `model.eval()`, and the `model.train()` after it is missing, or only reached on one path. From then on dropout drops
nothing, and batch norm normalises with statistics that no longer follow the weights (in train mode, at momentum 0.1, half of a running mean is
newer than 7 steps). The loss even falls a little, so nothing looks wrong.

**Bad.** `3 of 3 modules with dropout or batch norm are in eval mode since step 500: layer1.dropout, ...`

**Good.** A pretrained base whose norms were never in train mode; an evaluation within a step that ends with `train()`.

**How to fix it.**
- Call `model.train()` at the begin of each step or epoch, or restore `was_training = model.training` in a `finally` after each evaluation.
- If it is on purpose from a step on: suppress the finding.

**What it checks.** `run.watch` looks at each step's first backward pass whether modules with dropout (p > 0) or batch
norm, of parts that are trained, are
in eval mode (`trained/eval`, their number) although they were in train mode before. Three consecutive optimizer steps: a warning, with the first
of them. If the watched model itself is in train mode and only batch norm is not: a note, since statistics are frozen so on purpose.

**Strength.** `proved`: `module.training` is read.

**Inconclusive when** fewer than 3 optimizer steps were seen, or a count is NaN or infinite.

**What it cannot see.** `torch.nn.functional.dropout` with a flag of the caller's; a module that never was in train mode after `run.watch`; fused
kernels that take a dropout rate as a number.

**Cost.** In `run.watch` one flag per such module and step, at most 256 modules.

**Sources.** PyTorch documentation, `torch.nn.Module.eval`; Karpathy, "A Recipe for Training Neural Networks", 2019
("you forgot to toggle train/eval mode").
)page";

constexpr RuleInfo kInfo = {
    "health/eval-mode", "the model is trained in eval mode", v1::LEVEL_WARNING, "0.2.0", kPage, {}};

constexpr std::string_view kModes = "trained/modes", kEval = "trained/eval",
                           kEvalWhole = "trained/eval_whole", kEvalPrefix = "trained/eval:";
constexpr uint64_t kEvalSteps = 3;
constexpr size_t kMostEvalNames = 6;

// Values that one rank reports in one step.
struct ModesOfStep {
  std::optional<double> modes, eval;
  double whole = 1;  // 1: the model or a dropout layer is in eval mode; 0: only batch norm is
  std::vector<std::string> names;
};

struct EvalCourse {
  double modes = 0;
  uint64_t steps = 0, in_a_row = 0, reported = 0;  // reported: the highest level that was reported
  int64_t onset = 0;
  std::vector<std::string> names;
  void Persist(Archive& a) { a(modes, steps, in_a_row, reported, onset, names); }
};

class EvalMode : public ScalarRule {
 public:
  explicit EvalMode(const Options& /*options*/) {}

  bool ReadsScalar(const v1::Site& site) const override {
    return site.op() == kModes || site.op() == kEval || site.op() == kEvalWhole ||
           site.op().starts_with(kEvalPrefix);
  }

  void Judge(const SiteStep& step, VerdictSink& /*out*/) override {
    const std::string& op = step.site.op();
    if (!ReadsScalar(step.site)) return;
    for (const Item& item : step.items) {
      if (!item.evidence->has_scalar()) continue;
      const double value = item.evidence->scalar().value();
      ModesOfStep& open = open_[item.source->rank()];
      if (op == kModes) {
        open.modes = value;
      } else if (op == kEval) {
        open.eval = value;
      } else if (op == kEvalWhole) {
        open.whole = value;
      } else {
        open.names.push_back(op.substr(kEvalPrefix.size()));
      }
    }
  }

  bool judges_unseen_steps() const override { return false; }
  void JudgeStep(const StepEnd& step, VerdictSink& out) override {
    for (auto& [rank, open] : open_) Take(step, rank, open, out);
    open_.clear();
  }

  void JudgeRun(const RunSummary& run, VerdictSink& out) override {
    uint64_t steps = 0, reported = 0;
    for (const auto& [rank, course] : courses_) {
      steps = std::max(steps, course.steps);
      reported = std::max(reported, course.reported);
    }
    if (courses_.empty() || reported > 0) return;
    v1::Verdict verdict =
        unusable_ > 0 ? Inconclusive("poisoned: a count is NaN or infinite")
        : run.step_last - run.step_first + 1 < static_cast<int64_t>(kEvalSteps)
            ? Inconclusive("few-steps: fewer than 3 optimizer steps were observed")
            : Pass("no module with dropout or batch norm was in eval mode during training");
    SetPlace(verdict, "", "training", run.step_first, run.step_last, std::vector<uint32_t>{});
    out.Add(std::move(verdict));
  }

  // open_ is not stored, because it is empty between steps.
  void Persist(Archive& archive) override {
    archive.Version(1);
    archive(courses_, unusable_);
  }

 private:
  void Take(const StepEnd& step, uint32_t rank, ModesOfStep& open, VerdictSink& out) {
    EvalCourse& course = courses_[rank];
    for (const std::optional<double>& value : {open.modes, open.eval}) {
      if (!value || (std::isfinite(*value) && *value >= 0)) continue;
      ++unusable_;
      return;
    }
    if (open.modes) course.modes = *open.modes;
    if (!open.names.empty()) course.names = std::move(open.names);
    if (!open.eval) return;
    ++course.steps;
    if (!(*open.eval > 0)) {
      course.in_a_row = 0;
      return;
    }
    if (course.in_a_row++ == 0) course.onset = step.step;
    const v1::Level level = open.whole > 0 ? v1::LEVEL_WARNING : v1::LEVEL_NOTE;
    if (course.in_a_row < kEvalSteps || course.reported >= static_cast<uint64_t>(level)) return;
    course.reported = static_cast<uint64_t>(level);
    Report(step, rank, course, *open.eval, level, out);
  }

  static void Report(const StepEnd& step, uint32_t rank, const EvalCourse& course, double eval,
                     v1::Level level, VerdictSink& out) {
    std::vector<std::string> names = course.names;
    if (names.size() > kMostEvalNames) names.resize(kMostEvalNames);
    const double more = eval - static_cast<double>(names.size());
    const bool whole = level == v1::LEVEL_WARNING;
    FindingBuilder found(level, v1::STRENGTH_PROVED);
    found
        .Title(whole ? "the model is trained in eval mode"
                     : "batch norm is in eval mode while the model trains")
        .Explain(absl::StrFormat(
            "%.0f of %.0f modules with dropout or batch norm are in eval mode since step %d, in %d "
            "optimizer steps, and were in train mode before: %s%s.",
            eval, std::max(course.modes, eval), course.onset, course.in_a_row,
            absl::StrJoin(names, ", "), more > 0 ? absl::StrFormat(" and %.0f more", more) : ""))
        .Cause(whole ? "left-in-eval" : "frozen-statistics", whole ? 0.9 : 0.6)
        .Measured("modules in eval mode", eval, "modules")
        .Threshold(static_cast<double>(kEvalSteps), "consecutive optimizer steps")
        .Samples(course.in_a_row)
        .Witness("modules", std::max(course.modes, eval))
        .Witness("in_eval_mode", eval)
        .Fix(whole ? "Call model.train() after each evaluation, on every code path."
                   : "If the statistics are frozen on purpose, do nothing. Otherwise call "
                     "model.train() after each evaluation.")
        .At(names.empty() ? "" : names.front(), "training", course.onset, step.step,
            std::vector<uint32_t>{rank});
    out.Add(found.Take());
  }

  std::map<uint32_t, ModesOfStep> open_;  // by rank, of this step
  std::map<uint32_t, EvalCourse> courses_;
  uint64_t unusable_ = 0;
};

}  // namespace

CatalogueEntry eval_mode() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<EvalMode>(options);
          }};
}

}  // namespace plumbline::rules
