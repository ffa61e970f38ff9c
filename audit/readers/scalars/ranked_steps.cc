#include "audit/readers/scalars/ranked_steps.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "audit/readers/input/file_places.h"
#include "audit/readers/scalars/number_text.h"

namespace plumbline::audit {
namespace {

bool NamesRank(std::string_view name) {
  constexpr std::string_view kNames[] = {"rank",         "global_rank",   "rank_id",
                                         "process_rank", "process_index", "dist_rank"};
  const size_t slash = name.rfind('/');
  std::string last(slash == std::string_view::npos ? name : name.substr(slash + 1));
  for (char& c : last) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  return std::find(std::begin(kNames), std::end(kNames), last) != std::end(kNames);
}

bool MayBeRank(double value) {
  return IsWhole(value) && value >= 0 && value <= FilePlace::kMostRank;
}

}  // namespace

void RankedSteps::Offer(std::string_view name, double value, std::string_view step_name) {
  if (name == step_name) {
    row_step_ = value;
  } else if (IsRank(name) || (name_.empty() && NamesRank(name))) {
    name_ = name;
    row_rank_ = value;
  }
}

void RankedSteps::EndRow() {
  const auto step = std::exchange(row_step_, std::nullopt);
  const auto rank = std::exchange(row_rank_, std::nullopt);
  if (!rank) return;
  if (!MayBeRank(*rank)) odd_ = true;
  if (!step || odd_) return;
  const auto value = static_cast<int64_t>(*rank);
  if (any_ && value != now_) {
    ++changes_;
    without_rise_ += *step <= highest_step_ ? 1 : 0;
  }
  if (!any_) rank_ = *rank;
  highest_step_ = any_ ? std::max(highest_step_, *step) : *step;
  any_ = true;
  now_ = value;
}

void RankedSteps::Look(const std::vector<CsvColumn>& columns, const std::vector<KeptCsvRow>& rows,
                       char separator, std::string_view step_name) {
  const bool ranks = std::any_of(columns.begin(), columns.end(),
                                 [](const CsvColumn& c) { return NamesRank(c.name); });
  if (!ranks) return;
  for (const KeptCsvRow& row : rows) {
    const std::vector<std::string> cells = SplitRow(row.text, separator);
    for (size_t i = 0; i < std::min(cells.size(), columns.size()); ++i) {
      const bool step = columns[i].name == step_name;
      const std::optional<double> value = CellNumber(cells[i], separator, step);
      if (value) Offer(columns[i].name, *value, step_name);
    }
    EndRow();
  }
}

void RankedSteps::Decide(PointSink* sink) {
  if (!any_ || odd_ || 2 * without_rise_ < changes_) name_.clear();
  if (name_.empty()) return;
  several_ = changes_ > 0;
  now_ = static_cast<int64_t>(*std::exchange(rank_, std::nullopt));
  newest_ = INT64_MAX;
  sink->Belongs("", now_);
}

void RankedSteps::BeginPoints(int64_t step, PointSink* sink) {
  const auto rank = std::exchange(rank_, std::nullopt);
  if (name_.empty()) return;
  if (rank && MayBeRank(*rank)) {
    const auto value = static_cast<int64_t>(*rank);
    // If only one rank was seen at first, another one must begin at an earlier step.
    if (value != now_ && (several_ || step <= newest_)) {
      several_ = true;
      now_ = value;
    }
  }
  newest_ = step;
  sink->ForRank(static_cast<uint32_t>(now_));
}

std::string RankedSteps::Note(std::string_view step_name) const {
  for (const auto& [rank, steps] : steps_) {
    if (std::string note = steps.Note(step_name); !note.empty()) return note;
  }
  return "";
}

}  // namespace plumbline::audit
