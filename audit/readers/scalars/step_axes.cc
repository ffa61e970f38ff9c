#include "audit/readers/scalars/step_axes.h"

#include <algorithm>
#include <iterator>

#include "audit/readers/input/file.h"
#include "audit/readers/scalars/number_text.h"
#include "audit/readers/scalars/text_file.h"

namespace plumbline::audit {

std::string_view StepAxes::SubjectOf(std::string_view name) {
  const size_t slash = name.rfind('/');
  if (slash == std::string_view::npos || slash == 0) return {};
  static constexpr std::string_view kSubjects[] = {"train/step", "train/global_step",
                                                   "trainer/global_step"};
  const bool known =
      std::find(std::begin(kSubjects), std::end(kSubjects), name) != std::end(kSubjects);
  return known || IsNestedStep(name) ? name.substr(0, slash) : std::string_view();
}

bool StepAxes::Holds(std::string_view subject, std::string_view series) {
  return series.size() > subject.size() && series.starts_with(subject) &&
         series[subject.size()] == '/';
}

StepAxes::Axis* StepAxes::Find(std::string_view name) {
  for (Axis& axis : axes_) {
    if (axis.name == name) return &axis;
  }
  const std::string_view subject = SubjectOf(name);
  if (subject.empty() || axes_.size() == kMostAxes) return nullptr;
  Axis& axis = axes_.emplace_back();
  axis.name = name;
  axis.subject = subject;
  return &axis;
}

void StepAxes::Count(Axis* axis, int64_t value) {
  axis->falls += value < axis->last ? 1 : 0;
  axis->moves += axis->seen > 0 && value != axis->last ? 1 : 0;
  ++axis->seen;
  axis->last = value;
}

void StepAxes::Look(std::string_view name, double value) {
  Axis* axis = name.find('/') == std::string_view::npos ? nullptr : Find(name);
  if (axis == nullptr) return;
  if (!IsWhole(value) || value < 0) {
    axis->dropped = true;
  } else {
    Count(axis, static_cast<int64_t>(value));
  }
}

void StepAxes::Begin(std::string_view main) {
  main_ = main;
  on_ = !SubjectOf(main).empty();
  uint64_t falls = 0;
  for (const Axis& axis : axes_) falls = axis.name == main ? axis.falls : falls;
  std::erase_if(axes_, [&](const Axis& axis) { return axis.name == main; });
  for (Axis& axis : axes_) {
    axis.dropped |= axis.falls > falls || (axis.seen > 1 && axis.moves == 0);
    axis.last = -1;
    axis.falls = 0;
    axis.seen = axis.moves > 0 ? axis.seen : 0;
  }
}

void StepAxes::BeginRow() {
  for (Axis& axis : axes_) axis.in_row.reset(), axis.placed.reset();
}

void StepAxes::Main(int64_t step) {
  main_falls_ += step < main_last_ ? 1 : 0;
  main_last_ = step;
}

bool StepAxes::Take(std::string_view name, double value) {
  if (!on_ || name.find('/') == std::string_view::npos) return false;
  Axis* axis = Find(name);
  if (axis == nullptr || axis->dropped || !IsWhole(value) || value < 0) return false;
  const auto step = static_cast<int64_t>(value);
  const bool still =
      axis->seen == 1 && axis->moves == 0 && step == axis->last && axis->main_at != main_last_;
  Count(axis, step);
  axis->main_at = main_last_;
  // A resume makes both fall, one of them first.
  axis->dropped = still || axis->falls > main_falls_ + 1;
  if (!axis->dropped) axis->in_row = step;
  return !axis->dropped;
}

int64_t StepAxes::StepOn(Axis* axis, std::optional<int64_t> epoch) {
  if (!axis->placed) axis->placed = axis->steps.Of(*axis->in_row, epoch, std::nullopt);
  axis->used = true;
  return *axis->placed;
}

bool StepAxes::IsHome(std::string_view series, size_t axis) {
  const auto known = homes_.find(series);
  if (known != homes_.end()) return known->second == axis;
  if (homes_.size() == kMostHomes) return axis == kMain;
  homes_.emplace(std::string(series), axis);
  return true;
}

std::optional<int64_t> StepAxes::Of(std::string_view series, std::optional<int64_t> main,
                                    std::optional<int64_t> epoch) {
  if (axes_.empty()) return main;
  size_t first = kMain;
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (!axes_[i].in_row) continue;
    if (Holds(axes_[i].subject, series)) return StepOn(&axes_[i], epoch);
    first = std::min(first, i);
  }
  if (main) return IsHome(series, kMain) ? main : std::nullopt;
  const bool grouped = series.find('/') != std::string_view::npos;
  if (first == kMain || !grouped || !IsHome(series, first)) return std::nullopt;
  return StepOn(&axes_[first], epoch);
}

std::string StepAxes::Note() const {
  std::string names;
  for (const Axis& axis : axes_) {
    if (!axis.used) continue;
    if (!names.empty()) names += ", ";
    names += Quoted(PlainName(axis.name));
  }
  if (names.empty()) return "";
  return "steps are those of " + Quoted(PlainName(main_)) +
         "; values with an axis of their own have its steps: " + names;
}

}  // namespace plumbline::audit
