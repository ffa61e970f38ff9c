// Tables: a header that names the columns, one of them the step, then a row a record. Lightning's
// metrics.csv, exports of W&B and TensorBoard, and what scripts write.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "audit/readers/input/line_reader.h"
#include "audit/readers/scalars/column_names.h"
#include "audit/readers/scalars/csv_row.h"
#include "audit/readers/scalars/number_text.h"
#include "audit/readers/scalars/point_file.h"
#include "audit/readers/scalars/step_name.h"
#include "audit/readers/scalars/text_file.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostRow = 16u << 20;
constexpr size_t kLookRows = 64;  // by which the step's column is told
constexpr size_t kMostCells = 1 << 16;
constexpr std::string_view kMark = "\xEF\xBB\xBF";

bool IsBlank(std::string_view text) {
  return text.find_first_not_of(" \t") == std::string_view::npos;
}

// W&B names the columns of an export "RUN - SERIES", with two that give the range within a bin.
bool IsRange(std::string_view name) { return name.ends_with("__MIN") || name.ends_with("__MAX"); }

// "run-train-tag-loss_total.csv" -> "loss_total": how TensorBoard names its exports.
std::string_view TagOf(std::string_view path) {
  path = path.substr(path.rfind('/') + 1);
  const size_t tag = path.find("tag-");
  if (tag == std::string_view::npos) return "Value";
  path.remove_prefix(tag + 4);
  return path.substr(0, path.find(".csv"));
}

class CsvFile : public TextPointFile {
 public:
  CsvFile(InputReport* report, std::unique_ptr<ByteStream> stream, const ScalarOptions& options)
      : TextPointFile(report, std::move(stream), kMostRow, LineEnds::kNewline),
        choice_(options.step) {}

 protected:
  void Take(const TextLine& line, PointSink* sink) override {
    if (state_ == State::kRefused) return;
    if (line.too_long) {
      Refuse(line.offset, "a row of at most " + std::to_string(kMostRow) + " bytes", "a longer one",
             true);
      return;
    }
    std::string_view text = line.text;
    if (line.offset == 0 && text.starts_with(kMark)) text.remove_prefix(kMark.size());
    // A row with a newline between quotes is put together first.
    if (!open_.empty() || IsOpen(text)) {
      if (open_.empty()) open_at_ = line.offset;
      open_.append(open_.empty() ? "" : "\n").append(text);
      if (IsOpen(open_) && line.ended && open_.size() < kMostRow) return;
      const std::string whole = std::exchange(open_, "");
      Record({whole, open_at_, line.ended}, sink);
    } else if (!IsBlank(text)) {
      Record({text, line.offset, line.ended}, sink);
    }
  }

  void Pause(PointSink* sink) override {
    if (state_ == State::kLook && !waiting_.empty()) Decide(sink);
  }

  void Finish(PointSink* sink) override {
    if (!open_.empty()) Refuse(open_at_, "a closing quote", "the end of the file", false);
    open_.clear();
    Pause(sink);
  }

 private:
  enum class State { kHeader, kLook, kRows, kRefused };
  struct Row {
    std::string_view text;
    uint64_t offset = 0;
    bool ended = true;
  };
  struct Waiting {
    std::string text;
    uint64_t offset;
    bool ended;
  };
  struct ColumnOf {
    std::string name;
    bool step = false, skipped = false;
    bool numbers = false;  // it had one
    uint32_t column = PointSink::kNoColumn;
  };

  void Record(const Row& row, PointSink* sink) {
    switch (state_) {
      case State::kHeader:
        if (!row.text.starts_with('#')) TakeHeader(row);
        return;
      case State::kLook:
        Look(row);
        if (waiting_.size() == kLookRows) Decide(sink);
        return;
      case State::kRows:
        TakeRow(row, sink);
        return;
      case State::kRefused:
        return;
    }
  }

  void Refuse(uint64_t offset, const std::string& expected, const std::string& found, bool error) {
    report().Add(offset, "expected " + expected + ", found " + found, error);
  }

  void TakeHeader(const Row& row) {
    header_at_ = row.offset;
    separator_ = SeparatorOf(row.text);
    if (separator_ == 0) {
      state_ = State::kRefused;
      Refuse(row.offset, "columns parted by commas, tabs or semicolons", "one column", row.ended);
      return;
    }
    state_ = State::kLook;
    SetColumns(SplitRow(row.text, separator_));
    // A table of numbers alone: its first row is one, and columns have numbers for names.
    const bool named = std::any_of(columns_.begin(), columns_.end(), [](const ColumnOf& c) {
      return !c.name.empty() && !NumberOf(c.name);
    });
    if (named) return;
    for (size_t i = 0; i < columns_.size(); ++i)
      columns_[i].name = "column " + std::to_string(i + 1);
    nameless_ = true;
    Look(row);
  }

  void SetColumns(std::vector<std::string> names) {
    columns_.clear();
    names.resize(std::min(names.size(), kMostCells));
    for (std::string& name : names) {
      columns_.push_back({});
      columns_.back().name = std::move(name);
    }
  }

  void Look(const Row& row) {
    waiting_.push_back({std::string(row.text), row.offset, row.ended});
    const std::vector<std::string> cells = SplitRow(row.text, separator_);
    for (size_t i = 0; i < std::min(cells.size(), columns_.size()); ++i) {
      const std::optional<double> value = NumberOf(cells[i]);
      if (value) choice_.Offer(columns_[i].name, *value);
    }
  }

  // The step's column is chosen by what has been seen; then those rows are read.
  void Decide(PointSink* sink) {
    std::optional<std::string> best = choice_.Best();
    if (!best && nameless_) best = columns_[0].name;
    if (!best) {
      state_ = State::kRefused;
      Refuse(header_at_,
             "a column of steps (step, global_step, iteration, epoch, ...; another: --map)",
             "columns " + Quoted(ColumnList()), true);
      waiting_.clear();
      return;
    }
    step_name_ = *best;
    state_ = State::kRows;
    UseColumns(sink);
    for (const Waiting& row : std::exchange(waiting_, {}))
      TakeRow({row.text, row.offset, row.ended}, sink);
  }

  std::string ColumnList() const {
    std::string list;
    for (const ColumnOf& c : columns_) list += (list.empty() ? "" : ", ") + PlainName(c.name);
    return list;
  }

  void UseColumns(PointSink* sink) {
    const std::string run = ExportedRun();
    if (!run.empty()) sink->Belongs(run, -1);
    const bool tag = columns_.size() == 3 && columns_[0].name == "Wall time" &&
                     columns_[1].name == "Step" && columns_[2].name == "Value";
    bool any_step = false;
    for (ColumnOf& c : columns_) {
      c.step = !any_step && c.name == step_name_;
      any_step |= c.step;
      c.skipped = c.step || c.name.empty() || IsRange(c.name) || (tag && &c == &columns_[0]);
      if (c.skipped) continue;
      std::string_view name = c.name;
      if (tag) name = TagOf(report().path);
      if (!run.empty()) name.remove_prefix(run.size() + 3);
      c.column = sink->Column(PlainName(name));
    }
  }

  // The one run whose name all columns but the step begin with; empty: no export of one run.
  std::string ExportedRun() const {
    if (step_name_ != "Step") return "";
    std::set<std::string> runs;
    for (const ColumnOf& c : columns_) {
      if (c.name == step_name_) continue;
      const size_t at = c.name.rfind(" - ");
      if (at == std::string::npos || at == 0) return "";
      runs.insert(c.name.substr(0, at));
    }
    return runs.size() == 1 ? PlainName(*runs.begin()) : "";
  }

  struct Value {
    uint32_t column;
    double value;
  };

  void TakeRow(const Row& row, PointSink* sink) {
    values_.clear();
    step_.reset();
    unplaced_ = 0;
    cut_ = false;
    const size_t cells = ReadCells(row);
    const bool whole = cells == columns_.size();
    if ((!whole || !step_) && IsHeaderAgain(row, sink)) return;
    if (whole && step_) {
      ++report().records;
      for (const Value& v : values_) sink->Add(*step_, v.column, v.value);
    } else {
      unplaced_ += values_.size();
    }
    if (unplaced_ > 0) sink->Unplaced(unplaced_);
    if (!whole) {
      Refuse(row.offset, std::to_string(columns_.size()) + " cells in the row",
             std::to_string(cells), row.ended);
    } else if (cut_) {
      Refuse(row.offset, "a newline behind the last row",
             "the end of the file: its last value may be cut and was left out", false);
    }
  }

  // One pass over the row; how many cells it has. Empty ones behind the last column do not count.
  size_t ReadCells(const Row& row) {
    const char* at = row.text.data();
    const char* to = at + row.text.size();
    size_t cells = 0;
    while (true) {
      double value = 0;
      const char* end = ScanNumber(at, to, &value);
      const bool number = end != at && (end == to || *end == separator_);
      if (!number) end = CellEnd(at, to, separator_);
      if (cells < columns_.size()) {
        if (number) {
          TakeNumber(columns_[cells], value, !row.ended && end == to);
        } else if (end != at) {
          TakeText(columns_[cells], {at, static_cast<size_t>(end - at)}, !row.ended && end == to);
        }
        ++cells;
      } else if (end != at) {
        ++cells;
      }
      if (end == to) return cells;
      at = end + 1;
    }
  }

  void TakeNumber(ColumnOf& c, double value, bool at_end) {
    if (at_end && std::isfinite(value)) {
      cut_ = true;
      return;
    }
    if (c.step) {
      if (IsWhole(value)) step_ = static_cast<int64_t>(value);
    } else if (!c.skipped) {
      c.numbers = true;
      values_.push_back({c.column, value});
    }
  }

  void TakeText(ColumnOf& c, std::string_view cell, bool at_end) {
    if (c.skipped && !c.step) return;
    std::string text = CellText(cell);
    // Where semicolons part the cells, a comma is the decimal point.
    if (separator_ == ';' && std::count(text.begin(), text.end(), ',') == 1)
      std::replace(text.begin(), text.end(), ',', '.');
    if (const std::optional<double> value = NumberOf(text)) {
      TakeNumber(c, *value, at_end && cell.back() != '"');
    } else if (!IsAbsent(text) && !at_end && c.numbers) {
      ++unplaced_;
    }
  }

  // Whoever appends to a table of an earlier process writes the header again.
  bool IsHeaderAgain(const Row& row, PointSink* sink) {
    if (nameless_ || row.text.find(step_name_) == std::string_view::npos) return false;
    std::vector<std::string> cells = SplitRow(row.text, separator_);
    if (std::find(cells.begin(), cells.end(), step_name_) == cells.end()) return false;
    if (!row.ended) return true;
    SetColumns(std::move(cells));
    UseColumns(sink);
    sink->Resumed();
    return true;
  }

  State state_ = State::kHeader;
  char separator_ = 0;
  bool nameless_ = false;
  uint64_t header_at_ = 0;
  std::vector<ColumnOf> columns_;
  StepChoice choice_;
  std::string step_name_;
  std::vector<Waiting> waiting_;  // rows by which the step's column is chosen
  std::string open_;              // the beginning of a row whose quote is open
  uint64_t open_at_ = 0;
  // Of the row that is read.
  std::vector<Value> values_;
  std::optional<int64_t> step_;
  uint64_t unplaced_ = 0;
  bool cut_ = false;
};

// ---- recognition ---------------------------------------------------------------------------

struct FirstRows {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
};

// The header and the rows that are whole; nothing where the text is no table.
std::optional<FirstRows> RowsOf(std::string_view text, bool all) {
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  if (text.find('\0') != std::string_view::npos) return std::nullopt;
  FirstRows table;
  char separator = 0;
  while (!text.empty() && table.rows.size() < kLookRows) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos && !all) break;
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (IsBlank(line) || (separator == 0 && line.starts_with('#'))) continue;
    if (separator == 0) {
      if (line.starts_with('{') || line.starts_with('[') || IsOpen(line)) return std::nullopt;
      separator = SeparatorOf(line);
      if (separator == 0) return std::nullopt;
      table.header = SplitRow(line, separator);
    } else {
      table.rows.push_back(SplitRow(line, separator));
    }
  }
  return separator == 0 ? std::nullopt : std::optional(std::move(table));
}

bool LooksLikeScalars(const FirstRows& table) {
  StepChoice choice("");
  size_t fitting = 0, valued = 0;
  bool named = false, training = false;
  for (const std::string& name : table.header) {
    if (name.size() > 200 || NumberOf(name)) return false;
    named |= choice.MayBe(name) && !IsEpochName(name);
    training |= HasTrainingWord(name);
  }
  if (table.rows.empty()) return named && training;  // it has just begun
  for (const std::vector<std::string>& row : table.rows) {
    bool other = false;
    for (size_t i = 0; i < std::min(row.size(), table.header.size()); ++i) {
      const std::optional<double> value = NumberOf(row[i]);
      if (value) choice.Offer(table.header[i], *value);
      other |= value && !choice.MayBe(table.header[i]);
    }
    fitting += row.size() == table.header.size() ? 1 : 0;
    valued += other ? 1 : 0;
  }
  const std::optional<std::string> best = choice.Best();
  if (!best || (IsEpochName(*best) && !training)) return false;
  return valued > 0 && 2 * fitting >= table.rows.size();
}

bool RecogniseCsv(std::string_view path, std::string_view head) {
  constexpr size_t kLook = 256 << 10;
  std::string more;
  const bool full = head.size() >= Reader::kHeadBytes;
  if (IsCompressed(head) || (full && std::count(head.begin(), head.end(), '\n') < 2)) {
    more = FirstBytes(path, head, kLook);
    const std::optional<FirstRows> table = RowsOf(more, more.size() < kLook);
    return table && LooksLikeScalars(*table);
  }
  const std::optional<FirstRows> table = RowsOf(head, !full);
  return table && LooksLikeScalars(*table);
}

std::unique_ptr<PointFile> OpenCsv(InputReport* report, const ScalarOptions& options) {
  std::unique_ptr<ByteStream> stream = OpenText(report);
  if (stream == nullptr) return nullptr;
  return std::make_unique<CsvFile>(report, std::move(stream), options);
}

}  // namespace

const PointFormat& CsvFormat() {
  static constexpr PointFormat kFormat = {"csv", RecogniseCsv, OpenCsv};
  return kFormat;
}

}  // namespace plumbline::audit
