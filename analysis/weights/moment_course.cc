#include "analysis/weights/moment_course.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/sample/sample.h"
#include "analysis/weights/kept_state.h"
#include "base/half.h"

namespace plumbline::analysis {
namespace {

constexpr std::string_view kMoment = "exp_avg_sq", kBeta2 = "held.beta2";
constexpr double kCustomaryBeta2 = 0.999;
// An average of decay b has 98 % of its final value after 4 / (1 - b) steps. Until then it rises in
// any dtype.
constexpr double kFilled = 4;
constexpr size_t kMostCourses = size_t{1} << 16;

}  // namespace

bool MomentCourses::ReadsScalar(const v1::Site& site) {
  return site.op() == kBeta2 || (site.layer().empty() && site.op() == kOptimizerStep);
}

void MomentCourses::Take(const SiteStep& step) {
  for (const Item& item : step.items) {
    const v1::Evidence& evidence = *item.evidence;
    if (evidence.has_scalar() && ReadsScalar(step.site)) {
      const double value = evidence.scalar().value();
      if (step.site.op() == kOptimizerStep) {
        optimizer_step_ = std::max(optimizer_step_.value_or(0), std::isfinite(value) ? value : 0);
      } else {
        open_[{item.source->rank(), step.site.layer()}].beta2 = value;
      }
    }
    if (!evidence.has_tensor() || step.site.op() != kMoment || !evidence.tensor().has_sample())
      continue;
    const auto sample = DecodeTensor(evidence.tensor());
    if (!sample.ok() || sample->offsets.size() != sample->values.size()) continue;
    Open& open = open_[{item.source->rank(), step.site.layer()}];
    open.dtype = sample->dtype;
    open.values.assign(sample->values.begin(), sample->values.end());
    for (const double value : sample->values) open.poisoned |= !std::isfinite(value);
  }
}

void MomentCourses::Close(const StepEnd& step, VerdictSink& out) {
  for (auto& [place, open] : open_) {
    if (open.values.empty() && !open.poisoned) continue;
    const Key key{step.role, place.first, place.second};
    if (!courses_.contains(key) && courses_.size() >= kMostCourses) continue;
    MomentCourse& course = courses_[key];
    Compare(step, open, course);
    const Counts counts = Count(course);
    if (course.reported || course.checkpoints < kCheckpoints || counts.moved < elements_) continue;
    if (!Few(counts) || !CannotDecay(course)) continue;
    course.reported = true;
    v1::Verdict found = Found(course, counts, place.second);
    SetPlace(found, place.second, std::string(kMoment), course.step_first, course.step_last,
             std::vector<uint32_t>{place.first});
    out.Add(std::move(found));
  }
  open_.clear();
  optimizer_step_.reset();
}

void MomentCourses::Compare(const StepEnd& step, const Open& open, MomentCourse& course) const {
  course.step_last = step.step;
  if (open.poisoned) {
    if (course.checkpoints == 0) course.step_first = step.step;
    ++course.poisoned;
    return;
  }
  if (open.beta2) course.beta2 = *open.beta2 > 0 && *open.beta2 < 1 ? *open.beta2 : 0;
  const double beta2 = course.beta2 > 0 ? course.beta2 : kCustomaryBeta2;
  const double steps = optimizer_step_.value_or(static_cast<double>(step.step));
  const bool anew = course.last.size() != open.values.size() || course.dtype != open.dtype;
  // The average is still filling, or the tensor is another one, so start again with it.
  if (anew || course.checkpoints == 0 || !(steps >= kFilled / (1 - beta2))) {
    if (!(steps >= kFilled / (1 - beta2))) ++course.early;
    course.checkpoints = steps >= kFilled / (1 - beta2) ? 1 : 0;
    course.dtype = open.dtype;
    course.last = open.values;
    course.rose.assign(open.values.size(), 0);
    course.fell.assign(open.values.size(), 0);
    course.step_first = step.step;
    return;
  }
  // Record for each element whether it ever rose or fell.
  for (size_t i = 0; i < open.values.size(); ++i) {
    if (open.values[i] > course.last[i]) course.rose[i] = 1;
    if (open.values[i] < course.last[i]) course.fell[i] = 1;
  }
  course.last = open.values;
  ++course.checkpoints;
}

// Elements that no step moved (frozen, rows that no token uses) show nothing.
MomentCourses::Counts MomentCourses::Count(const MomentCourse& course) {
  Counts counts;
  for (size_t i = 0; i < course.rose.size(); ++i) {
    counts.moved += (course.rose[i] | course.fell[i]) != 0 ? 1 : 0;
    counts.fell += course.fell[i];
  }
  return counts;
}

// Returns true if almost none of the moved elements ever fell.
bool MomentCourses::Few(const Counts& counts) const {
  return static_cast<double>(counts.fell) < share_ * static_cast<double>(counts.moved);
}

// Returns true if the largest decay is below half of the spacing, at least for some mantissas.
bool MomentCourses::CannotDecay(const MomentCourse& course) {
  const double beta2 = course.beta2 > 0 ? course.beta2 : kCustomaryBeta2;
  return 1 - beta2 < std::ldexp(1.0, -FormatOf(course.dtype).precision);
}

v1::Verdict MomentCourses::Found(const MomentCourse& course, const Counts& counts,
                                 const std::string& who) const {
  const double beta2 = course.beta2 > 0 ? course.beta2 : kCustomaryBeta2;
  FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_HEURISTIC);
  found.Title(absl::StrFormat("the second moment in %s never falls", DTypeName(course.dtype)))
      .Explain(absl::StrFormat(
          "%s: of %d sampled elements that changed over %d checkpoints (steps %d to %d), %d fell. "
          "With beta2 = %g a moment loses at most %.3g of its value per step, less than half of "
          "the spacing of %s: the decay is rounded away.",
          who, counts.moved, course.checkpoints, course.step_first, course.step_last, counts.fell,
          beta2, 1 - beta2, DTypeName(course.dtype)))
      .Cause("low-precision-moment", 0.9)
      .Measured("elements that fell",
                static_cast<double>(counts.fell) / static_cast<double>(counts.moved), "share")
      .Threshold(share_, "option share")
      .Fix(
          "Keep the second moment in fp32 (step fp32 masters; Transformer Engine "
          "exp_avg_sq_dtype=torch.float32; Megatron-LM --exp-avg-sq-dtype fp32), or lower beta2.")
      .Samples(counts.moved)
      .Witness("checkpoints", static_cast<double>(course.checkpoints))
      .Assume("the update rounds to nearest");
  if (!(course.beta2 > 0)) found.Assume("beta2 is 0.999 (not recorded)");
  Put(*found.verdict().mutable_details(), "dtype", DTypeName(course.dtype));
  Put(*found.verdict().mutable_details(), "beta2", beta2);
  return found.Take();
}

// Returns the reason for having no verdict, in the order in which the user can fix it.
v1::Verdict MomentCourses::Judge(const MomentCourse& course, const Counts& counts) const {
  if (course.checkpoints < kCheckpoints && course.poisoned > 0)
    return Inconclusive("poisoned: moments that are NaN or infinite");
  if (course.checkpoints < kCheckpoints && course.early > 0) {
    return Inconclusive(
        "early: the average is still in its start phase in all but the last checkpoints (fewer "
        "than 4 / (1 - beta2) steps)");
  }
  if (course.checkpoints < kCheckpoints)
    return Inconclusive(absl::StrCat("few-checkpoints: fewer than ", kCheckpoints));
  if (counts.moved > 0 && !Few(counts)) return Pass("second moments fall between checkpoints");
  if (counts.moved == 0) {
    return Inconclusive(absl::StrFormat(
        "still: none of %d sampled elements changed between checkpoints: no step was made, or the "
        "tensor is frozen%s",
        course.last.size(),
        CannotDecay(course) ? absl::StrCat(", or its moment is stuck: the change per step is less "
                                           "than half of the spacing of ",
                                           DTypeName(course.dtype))
                            : ""));
  }
  if (counts.moved < elements_) {
    return Inconclusive(absl::StrCat("few-elements: fewer than ", elements_,
                                     " sampled elements changed between checkpoints"));
  }
  return Inconclusive(
      "rising: no moment fell, though its dtype can hold its decay (gradients that grow)");
}

void MomentCourses::Rest(VerdictSink& out) const {
  // Tensors that are too small alone are judged together, by rank and dtype.
  std::map<std::tuple<v1::Role, uint32_t, DType>, std::pair<MomentCourse, Counts>> small;
  std::map<std::tuple<v1::Role, uint32_t, DType>, std::vector<const Key*>> members;
  for (const auto& [key, course] : courses_) {
    if (course.reported) continue;
    const Counts counts = Count(course);
    const auto& [role, rank, layer] = key;
    if (course.checkpoints >= kCheckpoints && counts.moved < elements_ && counts.moved > 0 &&
        Few(counts) && CannotDecay(course)) {
      // The first of them represents all in the output.
      auto& [shown, sum] = small[{role, rank, course.dtype}];
      const bool first = sum.moved == 0;
      sum.moved += counts.moved;
      sum.fell += counts.fell;
      if (first) shown = course;
      members[{role, rank, course.dtype}].push_back(&key);
      continue;
    }
    v1::Verdict verdict = Judge(course, counts);
    SetPlace(verdict, layer, std::string(kMoment), course.step_first, course.step_last,
             std::vector<uint32_t>{rank});
    out.Add(std::move(verdict));
  }
  for (const auto& [key, sums] : small) {
    const auto& [course, counts] = sums;
    const std::string who = absl::StrCat(members[key].size(), " small tensors");
    v1::Verdict verdict =
        counts.moved >= elements_ ? Found(course, counts, who) : Judge(course, counts);
    SetPlace(verdict, "small tensors", std::string(kMoment), course.step_first, course.step_last,
             std::vector<uint32_t>{std::get<1>(key)});
    out.Add(std::move(verdict));
  }
}

}  // namespace plumbline::analysis
