#include "analysis/weights/left_course.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"

namespace plumbline::analysis {
namespace {

constexpr double kOpposedCosine = -0.3;   // a separate loss usually opposes the task's loss by less
constexpr double kLeastLeftShare = 0.05;  // less changes the update little
constexpr uint64_t kFewestLeftLooks = 8;
constexpr double kMostlyOpposed = 0.9;  // share of the looks

}  // namespace

bool LeftCourse::Reads(std::string_view series) {
  return series == kLeftCosine || series == kLeftShare;
}

void LeftCourse::Take(int64_t step, std::string_view series, double value) {
  if (series == kLeftCosine) {
    cosine_ = value;
    return;
  }
  const std::optional<double> cosine = std::exchange(cosine_, std::nullopt);
  if (!cosine) return;
  if (!std::isfinite(*cosine) || !std::isfinite(value)) {
    ++poisoned_;
    return;
  }
  if (looks_++ == 0) step_first_ = step;
  step_last_ = step;
  sum_ += *cosine;
  opposed_ += *cosine <= kOpposedCosine && value >= kLeastLeftShare ? 1 : 0;
}

std::optional<v1::Verdict> LeftCourse::Judge(uint32_t rank) {
  const double share = static_cast<double>(opposed_) / static_cast<double>(looks_);
  if (judged_ || looks_ < kFewestLeftLooks || !(share >= kMostlyOpposed)) return std::nullopt;
  judged_ = true;
  FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_HEURISTIC);
  found.Title("an optimizer gets the gradients of another one's loss")
      .Explain(absl::StrFormat(
          "In %d of %d steps that were looked at, an optimizer's gradients held what the loss of "
          "another optimizer's update had left there, and its own loss points the other way "
          "(cosine %.2f on average): one side of a game is trained against itself.",
          opposed_, looks_, sum_ / static_cast<double>(looks_)))
      .Cause("sides-not-apart", 0.7)
      .Samples(looks_)
      .Measured("share of the steps", share, "share")
      .Threshold(kMostlyOpposed, "losses that are added on purpose seldom oppose each other so")
      .Witness("mean_cosine", sum_ / static_cast<double>(looks_))
      .Fix(
          "Clear the gradients in front of each side's backward pass, or freeze the other side in "
          "it (requires_grad_(False); Lightning: toggle_optimizer).")
      .At("", kLeftCosine, step_first_, step_last_, std::vector<uint32_t>{rank});
  return found.Take();
}

std::optional<v1::Verdict> LeftCourse::Rest(uint32_t rank) const {
  if (judged_ || looks_ + poisoned_ == 0) return std::nullopt;
  v1::Verdict verdict =
      looks_ >= kFewestLeftLooks
          ? Pass("gradients that another optimizer's loss has left do not oppose those added")
      : poisoned_ > 0 ? Inconclusive("poisoned: gradients that are NaN or infinite")
                      : Inconclusive("few-steps: fewer than 8 steps were looked at");
  SetPlace(verdict, "", kLeftCosine, step_first_, step_last_, std::vector<uint32_t>{rank});
  return verdict;
}

}  // namespace plumbline::analysis
