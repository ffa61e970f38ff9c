#include "audit/readers/scalars/file_sink.h"

#include <charconv>
#include <cstdio>
#include <limits>
#include <utility>

#include "absl/strings/string_view.h"
#include "audit/readers/input/json_cursor.h"
#include "audit/readers/scalars/text_file.h"
#include "base/printable.h"

namespace plumbline::audit {

// Removes the rank and the slash from "rank3/loss", and returns the rank; -1 if there is none.
int64_t FileSink::TakeRank(std::string_view* name) {
  constexpr std::string_view kWord = "rank";
  const size_t slash = name->find('/');
  if (!name->starts_with(kWord) || slash == std::string_view::npos || slash + 1 == name->size())
    return -1;
  std::string_view digits = name->substr(kWord.size(), slash - kWord.size());
  if (digits.starts_with('_') || digits.starts_with('-')) digits.remove_prefix(1);
  int64_t rank = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  if (!whole || rank < 0 || rank > FilePlace::kMostRank) return -1;
  name->remove_prefix(slash + 1);
  return rank;
}

FileSink::OfRank* FileSink::Rank(uint32_t rank) {
  const auto known = ranks_.find(rank);
  if (known != ranks_.end()) return known->second.lane == nullptr ? nullptr : &known->second;
  OfRank& of = ranks_[rank];
  of.lane = runs_->Lane(place_.run, rank);
  if (of.lane == nullptr) return nullptr;
  run_ = &runs_->runs.at(place_.run);
  report_->runs.insert(place_.run);
  of.part = &of.lane->parts[place_.prefix];
  of.later_file = of.part->files++ > 0;
  // An earlier file of the run may have recorded a restart at a time before this file began.
  const uint32_t attempt = run_->AttemptAt(begun_);
  if (attempt > of.part->attempt) {
    of.part->attempt = attempt;
    of.part->attempt_points = 0;
  }
  return &of;
}

uint32_t FileSink::FindColumn(std::string_view name) {
  if (name.empty()) return kNoColumn;
  auto found = columns_.find(absl::string_view(name.data(), name.size()));
  if (found == columns_.end()) {
    std::string_view plain = name;
    // If the path states the rank, a rank in the series' names means something else.
    const int64_t stated = place_.rank_stated ? -1 : TakeRank(&plain);
    std::string full = IsUtf8(plain) ? std::string(plain) : Printable(plain);
    if (!place_.prefix.empty()) full = place_.prefix + "/" + full;
    const size_t most = runs_->limits.name_bytes;
    if (full.size() > most && most > kCutMark) full = CutName(full);
    OfRank* of = Rank(stated < 0 ? place_.rank : static_cast<uint32_t>(stated));
    PointSeries* series =
        of == nullptr || full.size() > most ? nullptr : runs_->Series(of->lane, full);
    if (series == nullptr) return kNoColumn;
    const auto column = static_cast<uint32_t>(slots_.size());
    slots_.push_back({std::string(name), series, of});
    found = columns_.emplace(std::string(name), column).first;
  }
  if (last_ < slots_.size()) slots_[last_].next = found->second;
  return last_ = found->second;
}

// Truncates a name, and adds a mark that distinguishes names with equal beginnings.
std::string FileSink::CutName(const std::string& name) {
  ++cut_names_;
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  char mark[24];
  std::snprintf(mark, sizeof mark, "...#%08x", static_cast<unsigned>(hash ^ (hash >> 32)));
  size_t keep = runs_->limits.name_bytes - kCutMark;
  // Cuts at a boundary of a UTF-8 character.
  while (keep > 0 && (name[keep] & 0xC0) == 0x80) --keep;
  return name.substr(0, keep) + mark;
}

void FileSink::ForRank(uint32_t rank) {
  rank_ = place_.rank_stated || rank == place_.rank ? std::nullopt : std::optional(rank);
}

// Returns the column of the current row's rank for the file's column.
uint32_t FileSink::ColumnOfRank(uint32_t column) {
  if (column >= slots_.size()) return kNoColumn;
  const std::pair key(*rank_, column);
  const auto known = columns_of_ranks_.find(key);
  if (known != columns_of_ranks_.end()) return known->second;
  const uint32_t of_rank = FindColumn("rank" + std::to_string(*rank_) + "/" + slots_[column].name);
  if (of_rank != kNoColumn) columns_of_ranks_.emplace(key, of_rank);
  return of_rank;
}

void FileSink::Take(int64_t step, uint32_t column, double value) {
  if (rank_) column = ColumnOfRank(column);
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
  PointPart& part = *slot.of->part;
  if (slot.series->MayRepeat(part.attempt, step) && slot.series->Repeats(part.attempt, step))
    BeginAttempt(slot.of);
  if (runs_->points >= runs_->limits.points) {
    ++left_out_;
    return;
  }
  const bool more = slot.series->Add(part.attempt, step, value);
  runs_->points += more ? 1 : 0;
  // The host's own metrics (W&B) have many samples per step.
  repeated_ += more || slot.name.starts_with("system/") ? 0 : 1;
  ++part.attempt_points;
  ++slot.points;
}

void FileSink::BeginAttempt(OfRank* of) {
  PointPart& part = *of->part;
  if (part.attempt + 1 >= runs_->limits.attempts) {
    ++merged_attempts_;
    return;
  }
  ++part.attempt;
  part.attempt_points = 0;
  // The time of a restart within a file is unknown. But the first restart in a later file happened
  // when that file began.
  const bool with_file = of->later_file && !std::exchange(of->began_an_attempt, true);
  if (part.attempt > run_->begun.size())
    run_->begun.resize(part.attempt, std::numeric_limits<double>::quiet_NaN());
  double& begun = run_->begun[part.attempt - 1];
  if (with_file && !(begun <= begun_)) begun = begun_;
}

void FileSink::Setting(std::string_view name, std::string_view value) {
  constexpr size_t kMostSettings = 4096, kMostBytes = 1024;
  if (value.empty() || value.size() > kMostBytes || report_->settings.size() >= kMostSettings)
    return;
  report_->settings["config: " + PlainName(name)] = PlainName(value);
}

void FileSink::Resumed() {
  Rank(place_.rank);
  for (auto& [rank, of] : ranks_) {
    if (of.lane != nullptr && of.part->attempt_points > 0) BeginAttempt(&of);
  }
}

void FileSink::Belongs(std::string_view run, int64_t rank) {
  if (!ranks_.empty()) return;  // too late, because points were already added
  const bool usable = !run.empty() && run.size() <= runs_->limits.name_bytes;
  if (usable && !place_.run_stated)
    place_.run = place_.within.empty() ? std::string(run) : place_.within + "/" + std::string(run);
  if (rank >= 0 && rank <= FilePlace::kMostRank && !place_.rank_stated)
    place_.rank = static_cast<uint32_t>(rank);
}

void FileSink::Ended(int32_t status) {
  if (OfRank* of = Rank(place_.rank); of != nullptr) of->lane->exit_status = status;
}

void FileSink::Finish() {
  const auto report = [&](const std::string& text, bool error) { report_->Add(0, text, error); };
  const PointLimits& limits = runs_->limits;
  if (beyond_names_ > 0) {
    report("expected at most " + std::to_string(limits.names) +
               " series, found more: " + std::to_string(beyond_names_) + " points are ignored",
           true);
  }
  if (left_out_ > beyond_names_) {
    report("expected at most " + std::to_string(limits.points) + " points, found more: " +
               std::to_string(left_out_ - beyond_names_) + " points are ignored",
           true);
  }
  if (merged_attempts_ > 0) {
    report(
        "expected at most " + std::to_string(limits.attempts) +
            " attempts, found more restarts: these are treated as one attempt, and repeated steps "
            "are ignored",
        true);
  }
  if (unplaced_ > 0) {
    report("expected a step for each number, found " + std::to_string(unplaced_) + " without",
           false);
  }
  if (cut_names_ > 0) {
    report_->Note("expected names of at most " + std::to_string(limits.name_bytes) +
                  " bytes, found " + std::to_string(cut_names_) +
                  " longer ones: they are truncated and marked");
  }
  if (repeated_ > 0) {
    report_->Note("expected one value per series and step, found " + std::to_string(repeated_) +
                  " more values for steps that already had one: the last value of a step counts, "
                  "but a NaN or infinite value is kept");
  }
  for (const Slot& slot : slots_) {
    const auto& fell = slot.series->fell_back();
    if (fell && report_->fall_backs.insert(*fell).second)
      report_->Note("expected rising steps, found that they go back from " +
                    std::to_string(fell->first) + " to " + std::to_string(fell->second) +
                    " and repeat: a resume, if the run was restarted there");
  }
  std::vector<SeriesSeen> series;
  std::map<std::string, uint64_t> points;  // series -> number of points over all ranks
  for (const Slot& slot : slots_) {
    if (slot.points > 0) points[slot.series->name()] += slot.points;
  }
  for (const auto& [name, count] : points) series.push_back({name, count});
  report_->series = std::move(series);
}

}  // namespace plumbline::audit
