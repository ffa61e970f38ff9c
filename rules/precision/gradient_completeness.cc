#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/collective/case/case.h"
#include "analysis/completeness/completeness.h"
#include "analysis/frame/frame.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# precision/gradient-completeness

The gradient that an optimizer applies is not one weighted sum of the ranks' own gradients, with the same weights for all parameters.

**Why.** Each kind of parallelism sums other gradients over other ranks. If one parameter is left out of one sum, summed over the wrong group, or summed twice, the loss still falls and nothing
fails: the parameter learns from a part of the batch, or too fast. At least 20 such faults of released frameworks are public: norms under sequence parallelism, router weights under expert parallelism, expert
biases, tied embeddings over pipeline stages.

**Bad.** `layers.3.norm.weight: rank 1 has weight 0 in the applied gradient; in 41 other parameters all ranks have weight 0.5`

**Good.** One set of weights explains all parameters.

**How to fix it.**
- A rank left out: the parameter is missing in the bucket, the group or the hook that sums the others (PyTorch DDP: created after wrapping, or ignored; Megatron-LM: its mark `sequence_parallel`, `allreduce`).
- Counted twice: two hooks sum it, or it is in two parameter groups with tied weights.
- Another parameter's gradients: the group of the sum; experts need the group of their copies.
- The number of ranks as a factor: a sum where the others have a mean, or a division twice.
- Not summed: `no_sync()` left open, or the wrapper is bypassed (call the wrapper, not `model.module`).

**What it checks.** Reductions of algorithm `applied-gradient`: for one parameter `inputs` (m elements of the rank's own gradient before any reduction) and `output` (what its optimizer read, after
reduction, unscaling and clipping). Ranks that report one name and the same elements hold copies; shards need names of their own. In each step, the weights of the ranks are fitted for each
parameter (least squares). The weights on which at least 3 parameters and 60 % of those over the same ranks agree, within the larger of 0.2 % and five standard errors, are the reference. A
parameter that differs is explained by the simplest relation: ranks with weight 0 (the others as before, or with the share of those left out), ranks with twice their weight, the number of ranks as
a factor, or the own gradients of another parameter of the same size.

**Strength.** `proved`: every element that is not zero agrees with the explanation within four times the largest error that the complete sums of that step show (at least 8 unit roundoffs), and a quarter
of them or more violate the reference by twice that. Two steps must show it. The number of ranks as a factor is a warning: a trainer may scale gradients on purpose. In simulation (2 to 16 ranks; `PLUMB_LONG=1 training_faults_test`) none of 4,500
trainers of nine kinds that change gradients on purpose, or compress them, was accused; of 500 faults each 466 (another parameter), 477, 491, 492 and 499 were found, all with the right parameter.

**Inconclusive when** fewer than 3 parameters agree (`no-majority`, `no-gradients`), gradients hold NaN or infinities (`poisoned`), a rank reported no elements, others or twice (`no-sample`,
`other-elements`, `reported-twice`, `malformed`), no rank reported an applied gradient (`not-applied`), there are fewer elements than distinct own gradients + 2 (`few-elements`), no other
parameter is summed over these ranks (`other-ranks`), each rank applies its own gradient and nothing declares a sum (`not-declared`), the applied gradient is zero (`masked`), it is no weighted sum
of own gradients (`not-a-sum`: weight decay, noise, a clip by element), all of its weights have another factor (`scaled`), no simple relation explains it (`unexplained`), or only one step shows it
(`one-step`).

**What it cannot see.** A gradient that is wrong before any reduction on every rank; elements that were not sampled; parameters that are not reported; a fault that most parameters share.
**Known alarms:** a trainer that leaves one rank out of one parameter on purpose.

**Cost.** 4,096 parameters of a step and 4 Mi values are judged; what is beyond is counted (`left_out`). Fitting takes O(elements x ranks^2) for each parameter.

**Sources.** Golub and Van Loan, "Matrix Computations", 5.3.2 (least squares by QR factorisation).
)page";

constexpr RuleInfo kInfo = {"precision/gradient-completeness",
                            "an applied gradient is not one sum of the ranks' gradients",
                            v1::LEVEL_ERROR,
                            "0.2.0",
                            kPage,
                            {}};

constexpr uint64_t kStepsShown = 2;
constexpr size_t kMostGradients = 4096;
constexpr size_t kMostGradientValues = size_t{4} << 20;

// One parameter over the steps.
struct GradientCourse {
  uint64_t faulty = 0;
  int kind = 0;  // of the newest fault
  int64_t step_first = 0, step_last = 0;
  bool reported = false;
  std::string reason;  // of the newest step that could not be judged
  void Persist(Archive& a) { a(faulty, kind, step_first, step_last, reported, reason); }
};

const char* CauseOf(GradientFault::Kind kind) {
  switch (kind) {
    case GradientFault::Kind::kLeftOut:
      return "rank-left-out";
    case GradientFault::Kind::kDoubled:
      return "rank-doubled";
    case GradientFault::Kind::kScaled:
      return "scaled-by-ranks";
    case GradientFault::Kind::kOtherParameter:
      return "other-parameter";
    default:
      return "not-summed";
  }
}

const char* FixOf(GradientFault::Kind kind) {
  switch (kind) {
    case GradientFault::Kind::kLeftOut:
      return "Put this parameter into the reduction of the others: look for a parameter that was "
             "made after the "
             "wrapper, is ignored by it, or lacks a mark of its framework.";
    case GradientFault::Kind::kDoubled:
      return "Remove one of the two reductions of this parameter.";
    case GradientFault::Kind::kScaled:
      return "Compare how this parameter's gradient is divided by the number of ranks with the "
             "others.";
    case GradientFault::Kind::kOtherParameter:
      return "Look at the process group over which this parameter is summed.";
    default:
      return "Call the data-parallel wrapper, not the module within it, and leave no_sync() before "
             "the last backward "
             "pass.";
  }
}

class GradientCompleteness : public Rule {
 public:
  explicit GradientCompleteness(const Options& /*options*/) {}

  void Judge(const SiteStep& step, VerdictSink& /*out*/) override {
    std::optional<AppliedGradient> gradient = DecodeApplied(step);
    if (!gradient) return;
    size_t values = 0;
    for (const auto& row : gradient->own) values += 2 * row.size();
    if (now_.size() >= kMostGradients || values_ + values > kMostGradientValues) {
      ++left_out_;
      return;
    }
    values_ += values;
    now_.push_back(*std::move(gradient));
  }

  void JudgeStep(const StepEnd& step, VerdictSink& out) override {
    if (now_.empty()) return;
    const std::vector<AppliedGradient> parameters = std::exchange(now_, {});
    values_ = 0;
    ++steps_;
    step_first_ = steps_ == 1 ? step.step : step_first_;
    step_last_ = std::max(step_last_, step.step);
    const GradientJudgement judged = JudgeGradients(parameters);
    reason_ = judged.reason;
    complete_ += judged.complete;
    for (const auto& [number, why] : judged.unknown) CourseOf(parameters[number]).reason = why;
    for (const GradientFault& fault : judged.faults) {
      const AppliedGradient& parameter = parameters[fault.parameter];
      GradientCourse& course = CourseOf(parameter);
      if (course.faulty > 0 && step.step <= course.step_last) continue;  // a restart repeats it
      const int kind = static_cast<int>(fault.kind);
      if (course.faulty == 0 || course.kind != kind) {
        course.kind = kind;
        course.faulty = 0;
        course.step_first = step.step;
      }
      ++course.faulty;
      course.step_last = step.step;
      if (course.faulty < kStepsShown || course.reported) continue;
      course.reported = true;
      out.Add(Found(parameter, fault, judged, course));
    }
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    if (steps_ == 0) return;
    bool reported = false;
    for (const auto& [key, course] : courses_) {
      reported = reported || course.reported;
      if (course.reported || (course.faulty == 0 && course.reason.empty())) continue;
      v1::Verdict verdict = Inconclusive(
          course.faulty > 0 ? "one-step: only one step shows the deviation" : course.reason);
      SetPlace(verdict, key.first, key.second, step_first_, step_last_, std::vector<uint32_t>());
      out.Add(std::move(verdict));
    }
    if (reported) return;
    v1::Verdict verdict =
        complete_ == 0
            ? Inconclusive(reason_.empty() ? "no-majority: no parameter could be compared"
                                           : reason_)
            : Pass("the applied gradients are sums of the ranks' own with the same weights");
    Put(*verdict.mutable_details(), "steps", static_cast<double>(steps_));
    Put(*verdict.mutable_details(), "complete", static_cast<double>(complete_));
    if (left_out_ > 0) Put(*verdict.mutable_details(), "left_out", static_cast<double>(left_out_));
    SetPlace(verdict, "", "gradients", step_first_, step_last_, std::vector<uint32_t>());
    out.Add(std::move(verdict));
  }

  // now_ and values_ are empty between steps.
  void Persist(Archive& archive) override {
    archive.Version(1);
    archive(courses_, steps_, complete_, left_out_, step_first_, step_last_, reason_);
  }

 private:
  using Key = std::pair<std::string, std::string>;

  GradientCourse& CourseOf(const AppliedGradient& parameter) {
    return courses_[{parameter.layer, parameter.op}];
  }

  static std::string Explanation(const AppliedGradient& parameter, const GradientFault& fault,
                                 const GradientJudgement& judged) {
    const std::string& name = parameter.layer.empty() ? parameter.op : parameter.layer;
    const std::string ranks = RankWords(fault.ranks);
    const std::string others =
        absl::StrFormat("%d other parameters agree on the weights of the ranks.", judged.complete);
    switch (fault.kind) {
      case GradientFault::Kind::kLeftOut:
        return absl::StrFormat(
            "The gradient that %s applied to %s does not contain that of %s: its weight is 0%s. %s",
            RankWords(fault.holders), name, ranks,
            fault.factor == 1
                ? ""
                : absl::StrFormat(", and the others have %.4g times their weight", fault.factor),
            others);
      case GradientFault::Kind::kDoubled:
        return absl::StrFormat("The gradient that %s applied to %s contains that of %s twice. %s",
                               RankWords(fault.holders), name, ranks, others);
      case GradientFault::Kind::kScaled:
        return absl::StrFormat(
            "The gradient that %s applied to %s is %.4g times the sum that the other parameters "
            "have, for %d ranks. %s",
            RankWords(fault.holders), name, fault.factor, parameter.ranks.size(), others);
      case GradientFault::Kind::kOtherParameter:
        return absl::StrFormat(
            "The gradient that %s applied to %s contains that of %s on %s, with %s times its "
            "weight. %s",
            RankWords(fault.holders), name, fault.other, RankWords(fault.of_ranks),
            absl::StrJoin(
                fault.weights, ", ",
                [](std::string* out, double w) { absl::StrAppendFormat(out, "%.3g", w); }),
            others);
      default:
        if (judged.complete > 0) {
          return absl::StrFormat("%s applied its own gradient alone to %s, without that of %s. %s",
                                 Capitalised(RankWords(fault.holders)), name, ranks, others);
        }
        return absl::StrFormat(
            "Each of %s applied its own gradient alone to %s and to most parameters.",
            RankWords(fault.holders), name);
    }
  }

  static v1::Verdict Found(const AppliedGradient& parameter, const GradientFault& fault,
                           const GradientJudgement& judged, const GradientCourse& course) {
    const bool scaled = fault.kind == GradientFault::Kind::kScaled;
    FindingBuilder found(scaled ? v1::LEVEL_WARNING : v1::LEVEL_ERROR,
                         scaled ? v1::STRENGTH_BOUNDED : v1::STRENGTH_PROVED);
    found.Title(kInfo.title)
        .Explain(Explanation(parameter, fault, judged))
        .Cause(CauseOf(fault.kind), 1)
        .Measured("elements that agree with this explanation and not with the sum of all ranks",
                  static_cast<double>(fault.compared), "elements")
        .Threshold(GradientJudgement::kFewElements, "elements, in two steps")
        .Witness("element", static_cast<double>(fault.element))
        .Witness("applied", fault.applied)
        .Witness("sum_of_all_ranks", fault.expected)
        .Fix(FixOf(fault.kind))
        .Samples(fault.compared)
        .At(parameter.layer, parameter.op, course.step_first, course.step_last, fault.holders);
    if (scaled) found.Assume("the trainer does not scale this parameter's gradient on purpose");
    if (fault.kind != GradientFault::Kind::kNotSummed)
      found.Assume("ranks that report this name and these elements hold copies of one parameter");
    return found.Take();
  }

  std::vector<AppliedGradient> now_;       // of the step that is being judged
  size_t values_ = 0;                      // in them
  std::map<Key, GradientCourse> courses_;  // of parameters that deviated or could not be judged
  uint64_t steps_ = 0, complete_ = 0, left_out_ = 0;
  int64_t step_first_ = 0, step_last_ = 0;
  std::string reason_;  // why the newest step could not be judged
};

}  // namespace

CatalogueEntry gradient_completeness() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<GradientCompleteness>(options);
          }};
}

}  // namespace plumbline::rules
