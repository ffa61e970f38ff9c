// Parses lines of a log that are rows of a table.
#include <algorithm>
#include <optional>

#include "audit/readers/log_text/log_bytes.h"
#include "audit/readers/scalars/number_text.h"
#include "audit/readers/trainer_log/log_line.h"

namespace plumbline::audit {

bool LogParser::ParseTable(std::string_view line, LogRecord* record) {
  bool whole = false;
  if (!table_.Take(line, &whole)) return false;
  if (!whole) return true;
  TakeRow(table_.row(), record);
  boxed_steps_ |= !table_.row().above && !table_.row().epoch;
  if (table_.row().above) {
    record->mark = mark_above_;
    record->prefix = prefix_above_;
  }
  return true;
}

// Takes a row of a drawn box. Its name may be a word of a step: "| train_step | 12 |".
bool LogParser::ParseInBox(std::string_view line, LogRecord* record) {
  return table_.in_drawn_box() && !continued_ && line.starts_with('|') && ParseTable(line, record);
}

void LogParser::TakeRow(const LogRow& row, LogRecord* record) {
  record->mark.step = row.step;
  if (row.epoch) record->how = LogRecord::Step::kEpoch;
  record->mark.batches = row.batches;
  record->mark.epoch = row.of_epoch;
  for (const LogRow::Value& v : row.values) record->values.push_back({v.name, v.value});
}

bool LogParser::Finish(LogRecord* record) {
  record->Clear();
  record->mark = {};
  again_ = false;
  if (!result_.End()) return false;
  TakeResult(record);
  return true;
}

void LogParser::TakeResult(LogRecord* record) {
  TakeRow(result_.row(), record);
  record->summary = result_.row_is_summary();
}

// Takes AllenNLP's "Training |  Validation" after a logger's words, and below it "loss | 3.05
// | 3.15", the means of an epoch.
bool LogParser::ParseSides(std::string_view line, LogRecord* record) {
  constexpr std::string_view kTraining = "Training", kValidation = "Validation";
  const size_t pipe = line.rfind('|');
  if (pipe == std::string_view::npos) return sides_ = false;
  std::string_view before = line.substr(0, pipe), last = line.substr(pipe + 1);
  Trim(&before, kSpaces, kSpaces);
  Trim(&last, kSpaces, kSpaces);
  if (last == kValidation && before.ends_with(kTraining)) {
    before.remove_suffix(kTraining.size());
    Trim(&before, kSpaces, kSpaces);
    sides_heading_.Keep(before);
    return sides_ = true;
  }
  if (!sides_) return false;
  std::string_view name = line.substr(sides_heading_.EndIn(line));
  const size_t first = name.find('|');
  if (first == std::string_view::npos || name.data() + first == line.data() + pipe)
    return sides_ = false;
  std::string_view training = name.substr(first + 1);
  training = training.substr(0, training.find('|'));
  name = name.substr(0, first);
  Trim(&training, kSpaces, kSpaces);
  Trim(&name, kSpaces, kSpaces);
  if (name.empty() || name.size() > kMostNameBytes) return sides_ = false;
  record->how = LogRecord::Step::kEpoch;
  record->mark.step = record->mark.epoch = std::max<int64_t>(0, epoch_);
  if (const std::optional<double> value = NumberOf(training))
    record->values.push_back({name, *value});
  if (const std::optional<double> value = NumberOf(last))
    record->values.push_back({name, *value, {}, true});
  return true;
}

}  // namespace plumbline::audit
