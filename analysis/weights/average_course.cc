#include "analysis/weights/average_course.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/sample/sample.h"
#include "base/half.h"

namespace plumbline::analysis {
namespace {

constexpr char kAverage[] = "average";
constexpr size_t kMostAverages = size_t{1} << 16;

}  // namespace

bool AverageCourses::ReadsScalar(const v1::Site& site) {
  return site.layer().empty() && site.op() == "optimizer.step";
}

// Collects a step's averages and their weights.
void AverageCourses::Take(const SiteStep& step) {
  const bool average = step.site.op() == kAverage;
  for (const Item& item : step.items) {
    const v1::Evidence& evidence = *item.evidence;
    if (evidence.has_scalar() && ReadsScalar(step.site)) {
      const double value = evidence.scalar().value();
      optimizer_step_ = std::max(optimizer_step_.value_or(0), std::isfinite(value) ? value : 0);
    }
    if (!evidence.has_tensor() || !evidence.tensor().has_sample()) continue;
    if (!average && (evidence.tensor().role() != "weight" || step.site.op() != "weight")) continue;
    const auto sample = DecodeTensor(evidence.tensor());
    if (!sample.ok() || sample->offsets.empty()) continue;
    const auto place = std::pair(item.source->rank(), step.site.layer());
    if (!average && !open_.contains(place)) continue;
    Open& open = open_[place];
    for (const double value : sample->values) open.poisoned |= !std::isfinite(value);
    open.Take(average, *sample);
  }
}

// Compares each average with its previous state, and reports one that does not move.
void AverageCourses::Close(const StepEnd& step, VerdictSink& out) {
  for (const auto& [place, open] : open_) {
    const Key key{step.role, place.first, place.second};
    if (open.weight.empty() || !IsFloating(open.dtype)) continue;
    if (!courses_.contains(key) && courses_.size() >= kMostAverages) continue;
    AverageCourse& course = courses_[key];
    Compare(step, open, course);
    if (course.reported || course.checkpoints < kCheckpoints) continue;
    const Counts counts = Count(course);
    const bool wide = course.dtype == DType::kF32 || course.dtype == DType::kF64;
    if (wide || !Stalls(course, counts)) continue;
    course.reported = true;
    v1::Verdict found = Found(course, counts);
    SetPlace(found, place.second, kAverage, course.step_first, course.step_last,
             std::vector<uint32_t>{place.first});
    out.Add(std::move(found));
  }
  open_.clear();
  optimizer_step_.reset();
}

void AverageCourses::Compare(const StepEnd& step, const Open& open, AverageCourse& course) const {
  course.step_last = step.step;
  if (course.checkpoints == 0) course.step_first = step.step;
  if (open.poisoned) {
    ++course.poisoned;
    return;
  }
  const double updates = optimizer_step_.value_or(static_cast<double>(step.step));
  const size_t n = open.average.size();
  // If the size or dtype differs, or the run went back, nothing can be compared.
  const bool anew = course.checkpoints == 0 || course.last.size() != n ||
                    course.dtype != open.dtype || updates < course.updates_last;
  if (anew) {
    course.dtype = open.dtype;
    course.moved.assign(n, 0);
    course.least.assign(n, 0);
    course.checkpoints = 0;
    course.step_first = step.step;
    course.updates_first = updates;
  }
  for (size_t i = 0; i < n; ++i) {
    // The smallest distance of the weight so far. If it was on both sides, it met its average.
    const auto gap = static_cast<float>(open.weight[i] - open.average[i]);
    float& least = course.least[i];
    if (anew) {
      least = gap;
    } else {
      if (course.last[i] != static_cast<float>(open.average[i])) course.moved[i] = 1;
      least = std::signbit(gap) != std::signbit(least) ? 0
              : std::fabs(gap) < std::fabs(least)      ? gap
                                                       : least;
    }
  }
  course.last.assign(open.average.begin(), open.average.end());
  course.updates_last = updates;
  ++course.checkpoints;
}

AverageCourses::Counts AverageCourses::Count(const AverageCourse& course) const {
  Counts counts;
  // The share of the distance that an average with the slowest decay moves in these updates.
  const double part = -std::expm1((course.updates_last - course.updates_first) * std::log(decay_));
  for (size_t i = 0; i < course.last.size(); ++i) {
    counts.moved += course.moved[i];
    if (!(part * std::fabs(course.least[i]) >= UlpOf(course.last[i], course.dtype))) continue;
    ++counts.due;
    counts.due_moved += course.moved[i];
    if (course.moved[i] == 0 && !counts.shown) counts.shown = i;
  }
  return counts;
}

bool AverageCourses::Stalls(const AverageCourse& course, const Counts& counts) const {
  return course.checkpoints >= kCheckpoints && counts.due >= elements_ &&
         static_cast<double>(counts.due_moved) < share_ * static_cast<double>(counts.due);
}

v1::Verdict AverageCourses::Found(const AverageCourse& course, const Counts& counts) const {
  const double share = static_cast<double>(counts.due_moved) / static_cast<double>(counts.due);
  const size_t i = counts.shown.value_or(0);
  FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_HEURISTIC);
  found.Title(absl::StrFormat("a moving average in %s does not follow", DTypeName(course.dtype)))
      .Explain(absl::StrFormat(
          "%d sampled elements of the average were so far from their weights, on one side, in all "
          "%d checkpoints (steps %d to %d) that an average with decay %g had to change; %d did. In "
          "%s each step towards the weights is rounded back to the old value.",
          counts.due, course.checkpoints, course.step_first, course.step_last, decay_,
          counts.due_moved, DTypeName(course.dtype)))
      .Cause("low-precision-average", 0.9)
      .Measured("elements that changed", share, "share")
      .Threshold(share_, "option share")
      .Fix(
          "Keep the average in fp32 and cast it when it is used (EMAModel or AveragedModel over an "
          "fp32 copy), or update it every k steps with decay d^k.")
      .Samples(counts.due)
      .Witness("average", course.last[i])
      .Witness("least_distance", course.least[i])
      .Witness("spacing", UlpOf(course.last[i], course.dtype))
      .Assume("the average is updated with a decay of at most option decay");
  Put(*found.verdict().mutable_details(), "dtype", DTypeName(course.dtype));
  Put(*found.verdict().mutable_details(), "due", static_cast<double>(counts.due));
  Put(*found.verdict().mutable_details(), "moved", static_cast<double>(counts.due_moved));
  return found.Take();
}

v1::Verdict AverageCourses::Judge(const AverageCourse& course) const {
  const Counts counts = Count(course);
  if (course.checkpoints < kCheckpoints && course.poisoned > 0)
    return Inconclusive("poisoned: averages or weights that are NaN or infinite");
  if (course.checkpoints < kCheckpoints)
    return Inconclusive(absl::StrCat("few-checkpoints: fewer than ", kCheckpoints));
  // A wide dtype does not round such a step away.
  if (Stalls(course, counts)) {
    return Inconclusive(
        "not-rounding: it does not change, though its dtype could follow; check that it is "
        "updated");
  }
  const auto all = static_cast<double>(course.moved.size());
  if (static_cast<double>(counts.moved) >= share_ * all && counts.moved > 0)
    return Pass("the average moves");
  return Inconclusive(absl::StrCat("few-elements: fewer than ", elements_,
                                   " sampled elements of the average had to change"));
}

void AverageCourses::Rest(VerdictSink& out) const {
  for (const auto& [key, course] : courses_) {
    if (course.reported) continue;
    v1::Verdict verdict = Judge(course);
    SetPlace(verdict, std::get<2>(key), kAverage, course.step_first, course.step_last,
             std::vector<uint32_t>{std::get<1>(key)});
    out.Add(std::move(verdict));
  }
}

}  // namespace plumbline::analysis
