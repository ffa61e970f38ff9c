// Reads tables: a header with names of columns, one of them the step, then a row per record. Such
// are Lightning's metrics.csv, exports of W&B and TensorBoard, and output of scripts.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "analysis/role/role.h"
#include "audit/readers/input/file.h"
#include "audit/readers/scalars/csv_columns.h"
#include "audit/readers/scalars/csv_long.h"
#include "audit/readers/scalars/csv_recognition.h"
#include "audit/readers/scalars/csv_row.h"
#include "audit/readers/scalars/number_text.h"
#include "audit/readers/scalars/point_file.h"
#include "audit/readers/scalars/ranked_steps.h"
#include "audit/readers/scalars/step_axes.h"
#include "audit/readers/scalars/text_file.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostRow = 16u << 20;
constexpr size_t kMostCells = 1 << 16;

class CsvFile : public TextPointFile {
 public:
  CsvFile(InputReport* report, std::unique_ptr<ByteStream> stream, const ScalarOptions& options)
      : TextPointFile(report, std::move(stream), kMostRow, LineEnds::kNewline),
        choice_(options.step) {}

 protected:
  bool CutIsDamage() const override { return true; }
  void Take(const TextLine& line, PointSink* sink) override {
    if (state_ == State::kRefused) return;
    ++line_;
    if (line.too_long) {
      Refuse(line.offset, "a row of at most " + std::to_string(kMostRow) + " bytes", "a longer one",
             true);
      return;
    }
    std::string_view text = line.text;
    if (line.offset == 0 && text.starts_with(kCsvMark)) text.remove_prefix(kCsvMark.size());
    CsvRow row;
    if (rows_of_lines_.Take({text, line.offset, line.ended}, line_, &row)) {
      if (!IsBlank(row.text)) Record(row, sink);
    } else if (rows_of_lines_.size() >= kMostRow) {
      TakeApart(sink);
    }
  }

  void Pause(PointSink* sink) override {
    if (state_ == State::kLook && !waiting_.empty()) Decide(sink);
  }

  void Finish(PointSink* sink) override {
    if (rows_of_lines_.open()) TakeApart(sink);
    Pause(sink);
    ReportNotes();
  }

 private:
  enum class State { kHeader, kLook, kRows, kRefused };
  using Row = CsvRow;

  // Handles a quote that is never closed. Drops its line as damaged, and reads the lines after it
  // as rows. In the last line it is no error, because the writer may not have finished it.
  void TakeApart(PointSink* sink) {
    const std::string lines = rows_of_lines_.Release();
    const bool ended = rows_of_lines_.ended(),
               last = !ended && !HoldsRow(lines, separator_, columns_.size());
    uint64_t at = rows_of_lines_.offset();
    report().Add(at,
                 "expected a closing quote for the one that line " +
                     std::to_string(rows_of_lines_.number()) +
                     " opens, found none: " + (last ? "the row is ignored" : "the line is ignored"),
                 !last);
    if (last) return;
    for (std::string_view rest = lines; !rest.empty();) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      if (!IsOpen(line) && !IsBlank(line)) Record({line, at, ended || !rest.empty()}, sink);
      at += line.size() + 1;  // a carriage return before the newline is not counted
    }
  }

  void ReportNotes() {
    if (comma_rows_ > 0)
      report().Note("expected " + std::to_string(columns_.size()) + " cells in each row, found " +
                    std::to_string(comma_rows_) +
                    " rows with decimal commas: they are read as decimal commas");
    for (EmptiedColumn& column : EmptiedAmong(columns_, rows_))
      report().emptied.push_back(std::move(column));
    if (odd_cells_ > 0) {
      report().Add(first_odd_,
                   "expected numbers in columns of numbers, found " + std::to_string(odd_cells_) +
                       " cells with other content, the first of them " + odd_cell_,
                   false);
    }
    if (const std::string note = steps_of_rows_.Note(step_name_); !note.empty())
      report().Note(note);
    if (const std::string note = axes_.Note(); !note.empty()) report().Note(note);
  }

  void Record(const Row& row, PointSink* sink) {
    switch (state_) {
      case State::kHeader:
        if (!row.text.starts_with('#')) TakeHeader(row);
        return;
      case State::kLook:
        Look(row);
        if (waiting_.size() == kCsvLookRows) Decide(sink);
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
      Refuse(row.offset, "columns separated by commas, tabs or semicolons", "one column",
             row.ended);
      return;
    }
    state_ = State::kLook;
    SetColumns(SplitRow(row.text, separator_));
    UseOwnStep();
    // If the first row holds only numbers, it is data, and the columns get numbers as names.
    nameless_ = NumberNameless(&columns_);
    if (!nameless_) return;
    Look(row);
  }

  void SetColumns(std::vector<std::string> names) {
    names.resize(std::min(names.size(), kMostCells));
    unnamed_first_ = !names.empty() && names[0].empty();
    if (unnamed_first_) names[0] = "Unnamed: 0";  // the name that pandas gives to its own index
    std::string twice;
    columns_ = ColumnsNamed(std::move(names), &twice);
    if (!twice.empty())
      report().Note("expected columns of different names, found two called " +
                    Quoted(PlainName(twice)) + ": the second is " +
                    Quoted(PlainName(twice) + " (2)") + " here");
  }

  // If the table lacks the step column that the user names, ignores the name: other tables have it.
  void UseOwnStep() {
    const std::string wanted = choice_.wanted();
    if (wanted.empty()) return;
    const bool has = std::any_of(columns_.begin(), columns_.end(),
                                 [&](const CsvColumn& c) { return c.name == wanted; });
    report().step_stated = has ? StepStated::kFound : StepStated::kMissing;
    if (!has) choice_ = StepChoice("");
  }

  void Look(const Row& row) {
    waiting_.push_back({std::string(row.text), row.offset, row.ended});
    const std::string points = separator_ == ',' ? WithPoints(row.text, columns_.size()) : "";
    const std::vector<std::string> cells = SplitRow(points.empty() ? row.text : points, separator_);
    for (size_t i = 0; i < std::min(cells.size(), columns_.size()); ++i) {
      const std::optional<double> value =
          CellNumber(cells[i], separator_, choice_.MayBe(columns_[i].name));
      if (value) choice_.Offer(columns_[i].name, *value);
      if (value && choice_.wanted().empty()) axes_.Look(columns_[i].name, *value);
    }
  }

  // Chooses the step's column from the rows seen so far, then reads these rows.
  void Decide(PointSink* sink) {
    std::optional<std::string> best = choice_.Best();
    if (!best && (nameless_ || unnamed_first_)) best = columns_[0].name;
    if (!best) best = UnitOf(columns_, waiting_, separator_);
    if (const std::string order = best ? "" : OrderOf(columns_, waiting_, separator_);
        !order.empty()) {
      counted_ = report().steps_are_rows = true;
      report().Note("expected a column of steps, found " + order +
                    ": rows are numbered from 1 as steps");
      best = "";
    }
    if (!best) {
      state_ = State::kRefused;
      Refuse(header_at_,
             "a column of steps (step, global_step, iteration, epoch, ...; another: --map)",
             "columns " + Quoted(ListNames(columns_)), true);
      waiting_.clear();
      return;
    }
    const std::string batch = choice_.Batch();
    step_name_ = batch.empty() ? *best : batch;
    if (step_name_ != choice_.Epoch()) epoch_name_ = choice_.Epoch();
    if (report().step_stated == StepStated::kMissing)
      report().Note("expected the column that --map declares as the step, found none: it is " +
                    Quoted(PlainName(step_name_)) + " here");
    state_ = State::kRows;
    if (!long_.Find(columns_, waiting_, separator_)) clients_.Find(columns_, waiting_, separator_);
    if (!counted_) steps_of_rows_.Look(columns_, waiting_, separator_, step_name_);
    steps_of_rows_.Decide(sink);
    if (!long_.found() && !clients_.found()) axes_.Begin(counted_ ? "" : step_name_);
    UseColumns(sink);
    for (const KeptCsvRow& row : std::exchange(waiting_, {}))
      TakeRow({row.text, row.offset, row.ended}, sink);
  }

  void UseColumns(PointSink* sink) {
    std::vector<std::string_view> names;
    for (const CsvColumn& c : columns_) names.push_back(c.name);
    const std::string run = ExportedRun(names, step_name_);
    if (!run.empty()) sink->Belongs(run, -1);
    const bool tag = IsTagExport(columns_);
    bool any_step = false, any_loss = false;
    for (CsvColumn& c : columns_) {
      c.step = !any_step && !counted_ && c.name == step_name_;
      any_step |= c.step;
      c.epoch = !epoch_name_.empty() && c.name == epoch_name_;
      c.rank = steps_of_rows_.IsRank(c.name);
      c.skipped = c.step || c.name.empty() || IsRange(c.name) || (tag && &c == &columns_[0]) ||
                  (c.rank && steps_of_rows_.several());
      c.client = clients_.found() && static_cast<size_t>(&c - columns_.data()) == clients_.column();
      c.skipped |= c.client;
      if (long_.found()) c.skipped |= !long_.IsValue(c);
      if (c.skipped || long_.found()) continue;
      c.loss = !any_loss && RoleByName(c.name) == SeriesRole::kLoss;
      c.rate = RoleByName(c.name) == SeriesRole::kRate;
      any_loss |= c.loss;
      std::string_view name = c.name;
      if (tag) name = TagOf(report().path);
      if (!run.empty()) name.remove_prefix(run.size() + 3);
      c.column = sink->Column(PlainName(name));
    }
  }

  struct Value {
    uint32_t column;
    double value;
    CsvColumn* of;
  };

  void TakeRow(const Row& row, PointSink* sink) {
    ++rows_;
    size_t cells = BeginRow(row);
    if (separator_ == ',' && columns_.size() > 1 && cells == 2 * columns_.size() - 1) {
      const std::string points = WithPoints(row.text, columns_.size());
      if (!points.empty()) {
        cells = BeginRow({points, row.offset, row.ended});
        ++comma_rows_;
      }
    }
    const bool whole = cells == columns_.size();
    if ((!whole || !step_) && IsHeaderAgain(row, sink)) return;
    CountOdd(row.offset);
    if (whole && axes_.on()) {
      AddOnAxes(sink);
    } else if (whole && step_) {
      ++report().records;
      if (long_.found() && !values_.empty()) values_[0].column = long_.Series(sink);
      steps_of_rows_.BeginPoints(*step_, sink);
      const bool as_stated = counted_ || long_.found() || clients_.found();
      const int64_t step = as_stated ? *step_ : steps_of_rows_.Of(*step_, epoch_, loss_);
      for (const Value& v : values_) {
        const bool of_client = clients_.found();
        sink->Add(step, of_client ? clients_.Series(v.of->name, sink) : v.column, v.value);
        v.of->last_step = step;
      }
    } else if (whole && !values_.empty()) {
      sink->Unplaced(values_.size());
    }
    if (!whole) {
      Refuse(row.offset, std::to_string(columns_.size()) + " cells in the row",
             std::to_string(cells), row.ended);
    } else if (cut_) {
      Refuse(row.offset, "a newline after the last row",
             "the end of the file: its last value may be incomplete and was ignored", false);
    }
  }

  // Adds a row of a table with columns such as "rollout/step" and "train/step".
  void AddOnAxes(PointSink* sink) {
    std::optional<int64_t> main;
    if (step_) {
      steps_of_rows_.BeginPoints(*step_, sink);
      axes_.Main(main.emplace(steps_of_rows_.Of(*step_, epoch_, loss_)));
    }
    uint64_t unplaced = 0;
    for (const Value& v : values_) {
      const auto step = axes_.Of(v.of->name, main, epoch_);
      unplaced += step ? 0 : 1;
      if (!step) continue;
      sink->Add(*step, v.column, v.value);
      v.of->last_step = *step;
    }
    report().records += unplaced < values_.size() ? 1 : 0;
    if (unplaced > 0) sink->Unplaced(unplaced);
  }

  size_t BeginRow(const Row& row) {
    values_.clear();
    if (axes_.on()) axes_.BeginRow();
    long_.Begin();
    clients_.Begin();
    step_.reset();
    epoch_.reset(), loss_.reset();
    odd_in_row_ = 0;
    cut_ = false;
    const size_t cells = ReadCells(row);
    if (counted_) step_ = static_cast<int64_t>(report().records) + 1;
    return cells;
  }

  void CountOdd(uint64_t offset) {
    if (odd_cells_ == 0) first_odd_ = offset;
    odd_cells_ += odd_in_row_;
  }

  // Reads the row and returns its number of cells, without empty ones after the last column.
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
          const double kept = ValueOf(columns_[cells], {at, static_cast<size_t>(end - at)}, value);
          TakeNumber(columns_[cells], kept, !row.ended && end == to);
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

  // A learning rate keeps the sign of its zero (SignedZero).
  static double ValueOf(const CsvColumn& c, std::string_view text, double value) {
    return c.rate && value == 0 ? SignedZero(text, value) : value;
  }

  void TakeNumber(CsvColumn& c, double value, bool at_end) {
    if (at_end && std::isfinite(value)) {
      cut_ = true;
      return;
    }
    if (c.epoch && IsWhole(value)) epoch_ = static_cast<int64_t>(value);
    if (c.rank) steps_of_rows_.Rank(value);
    if (c.client) clients_.Number(value);
    if (c.step) {
      if (IsWhole(value)) step_ = static_cast<int64_t>(value);
    } else if (!c.skipped && !(axes_.on() && axes_.Take(c.name, value))) {
      c.numbers = true;
      if (c.values++ == 0) c.first_row = rows_;
      c.last_row = rows_;
      values_.push_back({c.column, value, &c});
      if (c.loss) loss_ = value;
    }
  }

  void TakeText(CsvColumn& c, std::string_view cell, bool at_end) {
    if (long_.found()) long_.Text(c, CellText(cell));
    if (c.client) clients_.Text(CellText(cell));
    if (c.skipped && !c.step) return;
    const std::string text = CellText(cell);
    if (const std::optional<double> value = CellNumber(text, separator_, c.step)) {
      TakeNumber(c, ValueOf(c, text, *value), at_end && cell.back() != '"');
    } else if (!IsAbsent(text) && !at_end && c.numbers && odd_in_row_++ == 0 && odd_cells_ == 0) {
      odd_cell_ = Quoted(PlainName(text)) + " in column " + Quoted(PlainName(c.name));
    }
  }

  // Returns true for a second header. A process that appends to an existing table writes one.
  bool IsHeaderAgain(const Row& row, PointSink* sink) {
    if (nameless_ || counted_ || row.text.find(step_name_) == std::string_view::npos) return false;
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
  bool unnamed_first_ = false;  // the first column has no name, so it is an index
  bool counted_ = false;        // no column has the step, so rows are counted
  uint64_t header_at_ = 0;
  std::vector<CsvColumn> columns_;
  StepChoice choice_;
  std::string step_name_, epoch_name_;  // epoch_name_ is empty if no epoch is next to the step
  RankedSteps steps_of_rows_;
  StepAxes axes_;
  uint64_t rows_ = 0, comma_rows_ = 0;
  uint64_t odd_cells_ = 0, first_odd_ = 0;  // texts in columns of numbers; place of the first
  std::string odd_cell_;
  std::vector<KeptCsvRow> waiting_;  // rows from which the step's column is chosen
  RowJoiner rows_of_lines_;
  LongTable long_;
  ClientTable clients_;
  uint64_t line_ = 0;  // number of the newest line, from 1
  // Values of the current row.
  std::vector<Value> values_;
  std::optional<int64_t> step_, epoch_;
  std::optional<double> loss_;  // value of the first column that is a loss
  uint64_t odd_in_row_ = 0;
  bool cut_ = false;
};

std::unique_ptr<PointFile> OpenCsv(InputReport* report, const ScalarOptions& options) {
  std::unique_ptr<ByteStream> stream = OpenText(report);
  if (stream == nullptr) return nullptr;
  return std::make_unique<CsvFile>(report, std::move(stream), options);
}

}  // namespace

const PointFormat& CsvFormat() {
  static constexpr PointFormat kFormat = {"csv", IsCsv, OpenCsv};
  return kFormat;
}

}  // namespace plumbline::audit
