// Tables that trainers print: a header and rows of numbers in columns, and boxes of names and
// values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plumbline::audit {

// One row, or one box.
struct LogRow {
  struct Value {
    std::string name;
    double value;
  };
  bool epoch = false;     // the step is an epoch
  bool batches = false;   // it counts batches of an epoch
  int64_t of_epoch = -1;  // that the step is of; -1: not stated
  int64_t step = 0;
  std::vector<Value> values;
  bool above = false;  // the step is that of a line above the box
  size_t texts = 0;    // cells that are no numbers: times, words
};

// "epoch  train_loss  valid_loss  time" and rows below it (fastai, skorch, scikit-learn, YOLO, a
// notebook's table), Vowpal Wabbit's; "| train/   |   |", "|    loss | 2.5 |" between rules
// (Stable-Baselines3, Spinning Up). Not thread-safe.
class LogTable {
 public:
  // A header was read, so that rows may follow.
  bool active() const { return !columns_.empty(); }
  bool in_drawn_box() const { return drawn_; }
  // The line belongs to a table. *whole: a row or a box ended with it, in row().
  bool Take(std::string_view line, bool* whole);
  const LogRow& row() const { return row_; }
  // A line without values states this step: a box below it may have none of its own.
  void StepAbove(int64_t step) { step_above_ = step; }

 private:
  static constexpr size_t kMostColumns = 64;
  static constexpr size_t kMostBox = 512;  // rows

  bool TakeHeader(std::string_view line);
  bool TakeVowpal(std::string_view line);
  bool TakeRow(std::string_view line);
  bool TakeBox(std::string_view line, bool* whole);
  bool TakeDrawnRule(std::string_view line, bool* whole);
  bool TakePairs(const std::vector<std::string_view>& cells);
  bool EndBox();

  bool TakeHeaderAgain(const std::vector<std::string_view>& cells);
  bool SetColumns(std::vector<std::string> names);

  std::vector<std::string> columns_;
  int vowpal_ = 0;                  // lines of its header that were read
  std::vector<std::string> heads_;  // of the line before, which may be the first of a header
  bool epoch_ = false;
  bool batches_ = false;
  size_t step_at_ = 0;  // column
  LogRow row_;
  int64_t step_above_ = -1;         // -1: none
  std::vector<LogRow::Value> box_;  // since its first row
  std::string group_;               // "train/"
  bool drawn_ = false;              // below the rule that begins a drawn box
};

}  // namespace plumbline::audit
