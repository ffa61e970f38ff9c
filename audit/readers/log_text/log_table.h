// Reads tables that trainers print: a header and rows of numbers in columns, and boxes of names and
// values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "audit/readers/log_text/log_aligned.h"
#include "audit/readers/log_text/log_panel.h"

namespace plumbline::audit {

// One row, or one box.
struct LogRow {
  using Value = NamedNumber;
  bool epoch = false;     // the step is an epoch
  bool batches = false;   // the step counts batches of an epoch
  int64_t of_epoch = -1;  // epoch of the step; -1 if not stated
  int64_t step = 0;
  std::vector<Value> values;
  bool above = false;  // the step comes from a line above the box
  size_t texts = 0;    // cells that are not numeric: times, words
};

// Reads "epoch  train_loss  valid_loss  time" and the rows below it (fastai, skorch, scikit-learn,
// YOLO, a notebook's table), tables of Vowpal Wabbit, and boxes between rules, "| train/   |   |",
// "|    loss | 2.5 |" (Stable-Baselines3, Spinning Up), and panels with a title (open-instruct).
// Not thread-safe.
class LogTable {
 public:
  // True if a header was read, so that rows may follow.
  bool active() const { return !columns_.empty(); }
  bool in_drawn_box() const { return drawn_ || panel_.open(); }
  // Returns true if the line belongs to a table. If it ends a row or a box, sets *whole; see row().
  bool Take(std::string_view line, bool* whole);
  const LogRow& row() const { return row_; }
  // Records the step of a line without values. A box below it that has no step uses this one.
  void StepAbove(int64_t step) { step_above_ = step; }

 private:
  static constexpr size_t kMostColumns = 64;
  static constexpr size_t kMostBox = 512;  // limit of rows in a box

  bool TakeHeader(std::string_view line);
  bool TakeWideHeader(std::string_view line);
  bool TakeVowpal(std::string_view line);
  bool TakeRow(std::string_view line);
  bool TakeBox(std::string_view line, bool* whole);
  bool TakeDrawnRule(std::string_view line, bool* whole);
  bool TakePairs(const std::vector<std::string_view>& cells);
  bool TakeAligned(std::string_view line, bool* whole);
  bool EndBox();

  bool TakeHeaderAgain(const std::vector<std::string_view>& cells);
  bool SetColumns(std::vector<std::string> names);

  std::vector<std::string> columns_;
  int vowpal_ = 0;                  // number of lines of Vowpal Wabbit's header that were read
  std::vector<std::string> heads_;  // cells of the previous line, a possible start of a header
  bool epoch_ = false;
  bool batches_ = false;
  size_t step_at_ = 0;  // column of the step
  LogRow row_;
  int64_t step_above_ = -1;         // step of a line above; -1 if there is none
  std::vector<LogRow::Value> box_;  // values since the box's first row
  std::string group_;               // group of the next rows: "train/"
  bool drawn_ = false;              // true below the first rule of a drawn box
  LogPanel panel_;
  LogAligned aligned_;
};

}  // namespace plumbline::audit
