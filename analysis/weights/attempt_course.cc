#include "analysis/weights/attempt_course.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"

namespace plumbline::rules {
namespace {

constexpr double kLearnt = 4;  // standard deviations by which the loss must have fallen before
constexpr double kKept = 0.5;  // share of that fall that the new attempt still has

}  // namespace

bool AttemptCourse::Reads(std::string_view series) {
  return series == kAnew || series == kResumed || series == kFirstLoss || series == kRecentLoss ||
         series == kRecentSpread;
}

void AttemptCourse::Take(uint32_t attempt, std::string_view series, double value) {
  if (!std::isfinite(value) || (now_ && attempt < now_->number)) return;
  if (!now_ || attempt > now_->number) {
    // If an attempt did not complete its report, it is not used for comparison.
    if (now_ && now_->first && now_->recent && now_->spread) before_ = now_;
    now_ = Attempt{};
    now_->number = attempt;
    judged_ = false;
  }
  if (series == kAnew) now_->anew = value;
  if (series == kResumed) resumed_ = value;
  if (series == kFirstLoss) now_->first = value;
  if (series == kRecentLoss) now_->recent = value;
  if (series == kRecentSpread) now_->spread = value;
}

std::optional<v1::Verdict> AttemptCourse::JudgeResume(uint32_t rank, int64_t step) {
  const double resumed = std::exchange(resumed_, std::nullopt).value_or(0);
  if (judged_ || !(resumed > 0) || !now_ || !now_->anew) return std::nullopt;
  judged_ = true;
  v1::Verdict verdict;
  if (*now_->anew == 0) {
    verdict = Pass("the optimizer's state was restored with the count of steps");
  } else {
    FindingBuilder found(v1::LEVEL_ERROR, v1::STRENGTH_PROVED);
    found.Title("the optimizer begins anew within a run")
        .Explain(absl::StrFormat(
            "The trainer goes on after %.0f steps, and the optimizer's first update (step %d) "
            "found no state: its moments began anew.",
            resumed, step))
        .Cause("optimizer-not-loaded", 0.9)
        .Measured("optimizer's steps lost", resumed, "steps")
        .Threshold(0, "a run that goes on has its optimizer's state")
        .Witness("steps_before", resumed)
        .Fix(
            "Go on from a checkpoint that has the optimizer's state (transformers: optimizer.pt "
            "and "
            "scheduler.pt; without either of them both are left out). A new run from these "
            "weights: "
            "load them into the model, and do not resume.");
    verdict = found.Take();
  }
  SetPlace(verdict, "", kAnew, step, step, std::vector<uint32_t>{rank});
  return verdict;
}

std::optional<v1::Verdict> AttemptCourse::Judge(uint32_t rank, int64_t step) {
  if (auto verdict = JudgeResume(rank, step)) return verdict;
  if (judged_ || !before_ || !now_ || !now_->anew || !now_->first) return std::nullopt;
  judged_ = true;
  v1::Verdict verdict;
  const double fall = *before_->first - *before_->recent;
  const double kept = (*before_->first - *now_->first) / fall;
  const bool learnt = fall > kLearnt * *before_->spread && fall > 0;
  if (*now_->anew == 0) {
    verdict = Pass("the optimizer's state was restored in this attempt");
  } else if (!learnt) {
    verdict = Inconclusive(
        "little-learnt: the loss of the attempt before had hardly fallen, so whether the weights "
        "went on is not known");
  } else if (!(kept >= kKept)) {
    verdict = Pass("the attempt begins with fresh weights and a fresh optimizer");
  } else {
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_HEURISTIC);
    found.Title("the optimizer begins anew, the weights go on")
        .Explain(absl::StrFormat(
            "Attempt %d begins with a loss of %.4g. The attempt before began with %.4g and had "
            "come to %.4g, so %.0f %% of what was learnt is in the weights. The optimizer's first "
            "update found no state: its moments began anew.",
            now_->number, *now_->first, *before_->first, *before_->recent, 100 * kept))
        .Cause("optimizer-not-loaded", 0.8)
        .Measured("share of the fall of the loss that is kept", kept, "share")
        .Threshold(kKept, "fresh weights begin where the first attempt began")
        .Witness("first_loss", *now_->first)
        .Witness("first_loss_before", *before_->first)
        .Witness("recent_loss_before", *before_->recent)
        .Fix(
            "Load the optimizer's state with the weights (optimizer.load_state_dict). Weights that "
            "a new run begins with on purpose: give that run a name of its own.");
    verdict = found.Take();
  }
  SetPlace(verdict, "", kAnew, step, step, std::vector<uint32_t>{rank});
  return verdict;
}

}  // namespace plumbline::rules
