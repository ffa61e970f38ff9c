#include "audit/readers/rollout/file.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "audit/readers/input/file.h"
#include "audit/readers/rollout/torch_samples.h"

namespace plumbline::audit {
namespace {

using Column = RolloutColumn;

constexpr int kPeekLines = 64;
constexpr std::string_view kRolloutMark = "\xEF\xBB\xBF";

bool IsDecimal(char c) { return c >= '0' && c <= '9'; }

std::string_view BaseName(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// Returns 12 for "train_data_step12.jsonl.gz": the last number of the name without its extensions.
std::optional<int64_t> StepInName(std::string_view path) {
  std::string_view name = BaseName(path);
  const size_t dot = name.find('.', 1);
  name = name.substr(0, dot);
  size_t end = name.size();
  while (end > 0 && !IsDecimal(name[end - 1])) --end;
  size_t begin = end;
  while (begin > 0 && IsDecimal(name[begin - 1])) --begin;
  int64_t step = 0;
  const auto parsed = std::from_chars(name.data() + begin, name.data() + end, step);
  return parsed.ec == std::errc() ? std::optional(step) : std::nullopt;
}

bool SameSequence(const RolloutColumns& a, const RolloutColumns& b) {
  return At(a, Column::kStep).integer == At(b, Column::kStep).integer &&
         At(a, Column::kSequenceId).text == At(b, Column::kSequenceId).text;
}

}  // namespace

RolloutFile::RolloutFile(const ColumnMap& map, InputReport* report) : map_(map), report_(report) {
  if (map.step_from_name) named_step_ = StepInName(report->path);
}

bool RolloutFile::Open() {
  absl::StatusOr<InputFile> file = InputFile::Open(report_->path);
  if (!file.ok()) {
    report_->Add(0, std::string(file.status().message()));
    ended_ = true;
    return false;
  }
  const absl::StatusOr<std::string> head = file->Head(Reader::kHeadBytes);
  work_ = std::make_unique<Work>(map_, head.ok() && MayHoldSamples(*head)
                                           ? OpenTorchSamples(report_->path, std::move(*file))
                                           : ByteStream::Open(std::move(*file)));
  return true;
}

void RolloutFile::Close() {
  bytes_read_ = bytes_read();
  ended_ = true;
  work_.reset();
}

uint64_t RolloutFile::bytes_read() const {
  return work_ == nullptr ? bytes_read_ : work_->lines.stream().file_bytes_read();
}

bool RolloutFile::Peek() {
  if (!Open()) return false;
  Line line;
  LineProblem problem;
  for (int i = 0; i < kPeekLines && work_->lines.Next(&line); ++i) {
    if (!Usable(line, &problem)) continue;
    run_ = At(work_->record, Column::kRun).text;
    run_known_ = true;
    step_ = At(work_->record, Column::kStep).integer;
    break;
  }
  work_.reset();
  return true;
}

// Parses and checks a line into work_->record.
bool RolloutFile::Usable(const Line& line, LineProblem* problem) {
  std::string_view text = line.text;
  const size_t skipped = line.number == 1 && text.starts_with(kRolloutMark) ? 3 : 0;
  text.remove_prefix(skipped);
  *problem = {};
  if (line.too_long) {
    *problem = {0, "a line of at most " + std::to_string(LineReader::kMaxLine) + " bytes",
                "a longer one", false};
    return false;
  }
  bool usable = UsableText(text, problem);
  // A column of a batch is a list of lists. Then the line's first row is the record.
  if (!usable && problem->found == "a list" && work_->batch.Take(text, map_)) {
    work_->batch.Next(&work_->row);
    usable = UsableText(work_->row, problem);
    problem->offset = 0;
  }
  problem->offset += skipped;
  return usable;
}

// Parses and checks the text of one record into work_->record.
bool RolloutFile::UsableText(std::string_view text, LineProblem* problem) {
  *problem = {};
  bool usable = work_->parser.Parse(text, &work_->record, problem);
  if (usable) {
    ColumnValue& step = At(work_->record, Column::kStep);
    if (!step.present && named_step_) {
      step.present = true;
      step.integer = *named_step_;
    }
    usable = CheckRecord(map_, text, &work_->record, &shape_, problem);
  }
  if (usable && run_known_ && At(work_->record, Column::kRun).text != run_) {
    *problem = {At(work_->record, Column::kRun).offset,
                "run " + Quoted(run_) + ", as in earlier records",
                Quoted(At(work_->record, Column::kRun).text), false};
    usable = false;
  }
  return usable;
}

std::string RolloutFile::Place(const Line& line) const {
  const std::string text = "line " + std::to_string(line.number);
  const size_t row = work_->batch.row();
  return row == 0 ? text : "row " + std::to_string(row) + " of " + text;
}

void RolloutFile::Report(const Line& line, const LineProblem& problem) {
  if (problem.no_values) return void(++without_values_);
  std::string text =
      "expected " + problem.expected + " in " + Place(line) + ", found " + problem.found;
  // A program may still be writing the file, so an unfinished last line that more bytes could
  // complete is not an error.
  const bool unfinished = !line.ended && problem.cut;
  report_->Add(line.offset + problem.offset, std::move(text), !unfinished);
}

// Reads the next row of a batch, or else the next line, into work_->record. Sets `usable`. Returns
// false at the end.
bool RolloutFile::NextRow(bool* usable, LineProblem* problem) {
  if (work_->batch.Next(&work_->row)) {
    *usable = UsableText(work_->row, problem);
    problem->offset = 0;
    return true;
  }
  work_->batch = BatchRows();
  Line& line = work_->line;
  do {
    if (!work_->lines.Next(&line)) return false;
  } while (line.text.find_first_not_of(" \t\r") == std::string_view::npos && !line.too_long);
  line_offset_ = line.offset;
  line_number_ = line.number;
  *usable = Usable(line, problem);
  return true;
}

bool RolloutFile::NextRecord() {
  LineProblem problem;
  const Line& line = work_->line;
  for (bool usable = false; !drained_ && NextRow(&usable, &problem);) {
    if (usable) {
      run_ = At(work_->record, Column::kRun).text;
      run_known_ = true;
      ++report_->records;
      return true;
    }
    // If the stream has a problem, this problem also covers the rest of the last line.
    if (line.ended || !work_->lines.stream().problem()) Report(line, problem);
  }
  const std::optional<Problem>& broken = work_->lines.stream().problem();
  if (broken && !drained_) report_->Add(broken->offset, broken->text, broken->error);
  if (without_values_ > 0 && !drained_) {
    report_->Note(std::to_string(without_values_) +
                  (without_values_ == 1 ? " record has" : " records have") +
                  " null in place of log-probabilities");
  }
  drained_ = true;
  return false;
}

// Reads the tokens of a sequence, up to the first token of another sequence.
bool RolloutFile::NextSequence() {
  if (!has_waiting_ && !NextRecord()) return false;
  if (has_waiting_) std::swap(work_->record, work_->waiting);
  has_waiting_ = false;
  for (ColumnValue& value : work_->sequence) value.Clear();
  size_t tokens = 0;
  AppendToken(work_->record, tokens++, &work_->sequence);
  while (NextRecord()) {
    if (!SameSequence(work_->record, work_->sequence)) {
      std::swap(work_->record, work_->waiting);
      has_waiting_ = true;
      break;
    }
    AppendToken(work_->record, tokens++, &work_->sequence);
  }
  shape_ = {};
  shape_.tokens = tokens;
  return true;
}

bool RolloutFile::Next() {
  if (ended_ || (work_ == nullptr && !Open())) return false;
  if (map_.token_records ? !NextSequence() : !NextRecord()) {
    Close();
    return false;
  }
  step_ = At(columns(), Column::kStep).integer;
  return true;
}

std::string RolloutFile::DefaultId() const {
  const size_t row = work_->batch.row();
  return report_->path + ":" + std::to_string(line_number_) +
         (row == 0 ? "" : ":" + std::to_string(row));
}

void RolloutFile::Refuse(const std::string& expected, const std::string& found) {
  --report_->records;
  report_->Add(line_offset_, "expected " + expected + " in line " + std::to_string(line_number_) +
                                 ", found " + found);
}

}  // namespace plumbline::audit
