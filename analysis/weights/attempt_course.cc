#include "analysis/weights/attempt_course.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"

namespace plumbline::analysis {
namespace {

constexpr double kLearnt = 4;  // standard deviations by which the loss must have fallen in the
                               // previous attempt
constexpr double kKept = 0.5;  // share of that fall that the new attempt must keep

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
    verdict = Pass("the optimizer's state was restored with its step count");
  } else {
    FindingBuilder found(v1::LEVEL_ERROR, v1::STRENGTH_PROVED);
    found.Title("the optimizer's state was reset within a run")
        .Explain(
            absl::StrFormat("The trainer continues after %.0f steps, and the optimizer's first "
                            "update (step %d) found no state: its moments restarted at zero.",
                            resumed, step))
        .Cause("optimizer-not-loaded", 0.9)
        .Measured("lost optimizer steps", resumed, "steps")
        .Threshold(0, "a resumed run has its optimizer's state")
        .Witness("steps_before", resumed)
        .Fix(
            "Resume from a checkpoint with the optimizer's state (transformers: optimizer.pt and "
            "scheduler.pt; if one is missing, neither is loaded). For a new run from these "
            "weights, load them into the model, and do not resume.");
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
        "little-learnt: the loss of the previous attempt had hardly fallen, so it is not known "
        "whether the weights were restored");
  } else if (!(kept >= kKept)) {
    verdict = Pass("the attempt starts with new weights and a new optimizer");
  } else {
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_HEURISTIC);
    found.Title("the weights were restored, but the optimizer's state was not")
        .Explain(absl::StrFormat(
            "Attempt %d starts with a loss of %.4g. The previous attempt started with %.4g and "
            "reached %.4g, so the weights keep %.0f %% of the progress. The optimizer's first "
            "update found no state: its moments restarted at zero.",
            now_->number, *now_->first, *before_->first, *before_->recent, 100 * kept))
        .Cause("optimizer-not-loaded", 0.8)
        .Measured("share of the fall of the loss that was kept", kept, "share")
        .Threshold(kKept, "new weights start with the loss of the first attempt")
        .Witness("first_loss", *now_->first)
        .Witness("first_loss_before", *before_->first)
        .Witness("recent_loss_before", *before_->recent)
        .Fix(
            "Load the optimizer's state together with the weights (optimizer.load_state_dict). If "
            "a new run starts from these weights on purpose, give it its own name.");
    verdict = found.Take();
  }
  SetPlace(verdict, "", kAnew, step, step, std::vector<uint32_t>{rank});
  return verdict;
}

}  // namespace plumbline::analysis
