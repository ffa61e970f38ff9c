#include "audit/readers/scalars/file_sink.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/string_view.h"
#include "audit/readers/input/json_cursor.h"
#include "base/printable.h"

namespace plumbline::audit {

PointLane* FileSink::Lane() {
  if (lane_ != nullptr || no_lane_) return lane_;
  lane_ = runs_->Lane(place_.run, place_.rank);
  no_lane_ = lane_ == nullptr;
  if (no_lane_) return nullptr;
  run_ = &runs_->runs.at(place_.run);
  part_ = &lane_->parts[place_.prefix];
  later_file_ = part_->files++ > 0;
  // Another file of the run that was begun before has told of a restart.
  const uint32_t attempt = run_->AttemptAt(begun_);
  if (attempt > part_->attempt) {
    part_->attempt = attempt;
    part_->attempt_points = 0;
  }
  return lane_;
}

uint32_t FileSink::FindColumn(std::string_view name) {
  if (name.empty()) return kNoColumn;
  auto found = columns_.find(absl::string_view(name.data(), name.size()));
  if (found == columns_.end()) {
    std::string full = IsUtf8(name) ? std::string(name) : Printable(name);
    if (!place_.prefix.empty()) full = place_.prefix + "/" + full;
    PointLane* lane = Lane();
    PointSeries* series = lane == nullptr || full.size() > runs_->limits.name_bytes
                              ? nullptr
                              : runs_->Series(lane, full);
    if (series == nullptr) return kNoColumn;
    const auto column = static_cast<uint32_t>(slots_.size());
    slots_.push_back({std::string(name), series});
    found = columns_.emplace(std::string(name), column).first;
  }
  if (last_ < slots_.size()) slots_[last_].next = found->second;
  return last_ = found->second;
}

void FileSink::Add(int64_t step, uint32_t column, double value) {
  if (column >= slots_.size()) {
    ++left_out_;
    ++beyond_names_;
    return;
  }
  if (step < 0) {
    ++unplaced_;
    return;
  }
  Slot& slot = slots_[column];
  if (slot.series->MayRepeat(part_->attempt, step) && slot.series->Repeats(part_->attempt, step))
    BeginAttempt();
  if (runs_->points >= runs_->limits.points) {
    ++left_out_;
    return;
  }
  const bool more = slot.series->Add(part_->attempt, step, value);
  runs_->points += more ? 1 : 0;
  ++part_->attempt_points;
  ++slot.points;
}

void FileSink::BeginAttempt() {
  if (part_->attempt + 1 >= runs_->limits.attempts) {
    ++merged_attempts_;
    return;
  }
  ++part_->attempt;
  part_->attempt_points = 0;
  // A restart within a file came at a time that nobody knows; the first of a later file with it.
  const bool with_file = later_file_ && !std::exchange(began_an_attempt_, true);
  if (part_->attempt > run_->begun.size())
    run_->begun.resize(part_->attempt, std::numeric_limits<double>::quiet_NaN());
  double& begun = run_->begun[part_->attempt - 1];
  if (with_file && !(begun <= begun_)) begun = begun_;
}

void FileSink::Resumed() {
  if (Lane() != nullptr && part_->attempt_points > 0) BeginAttempt();
}

void FileSink::Belongs(std::string_view run, int64_t rank) {
  if (lane_ != nullptr) return;  // too late: its points have gone there
  const bool usable = !run.empty() && run.size() <= runs_->limits.name_bytes;
  if (usable && !place_.run_said)
    place_.run = place_.within.empty() ? std::string(run) : place_.within + "/" + std::string(run);
  if (rank >= 0 && rank <= FilePlace::kMostRank && !place_.rank_said)
    place_.rank = static_cast<uint32_t>(rank);
}

void FileSink::Ended(int32_t status) {
  if (Lane() != nullptr) lane_->exit_status = status;
}

void FileSink::Finish() {
  const auto say = [&](const std::string& text, bool error) { report_->Add(0, text, error); };
  const PointLimits& limits = runs_->limits;
  if (beyond_names_ > 0) {
    say("expected at most " + std::to_string(limits.names) + " series with names of at most " +
            std::to_string(limits.name_bytes) +
            " bytes, found more: " + std::to_string(beyond_names_) + " points are left out",
        true);
  }
  if (left_out_ > beyond_names_) {
    say("expected at most " + std::to_string(limits.points) + " points, found more: " +
            std::to_string(left_out_ - beyond_names_) + " points are left out",
        true);
  }
  if (merged_attempts_ > 0) {
    say("expected at most " + std::to_string(limits.attempts) +
            " attempts, found more restarts: they are taken for one attempt, of which repeated "
            "steps are left out",
        true);
  }
  if (unplaced_ > 0) {
    say("expected a step for each number, found " + std::to_string(unplaced_) + " without", false);
  }
  std::vector<SeriesSeen> series;
  for (const Slot& slot : slots_) {
    if (slot.points > 0) series.push_back({slot.series->name(), slot.points});
  }
  std::sort(series.begin(), series.end(),
            [](const SeriesSeen& a, const SeriesSeen& b) { return a.name < b.name; });
  report_->series = std::move(series);
}

}  // namespace plumbline::audit
