// Keeps rows of a log that are used only if there are no other rows: rows of a printed literal, and
// bars of an epoch that did not end. Not thread-safe.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "audit/readers/trainer_log/log_line.h"

namespace plumbline::audit {

inline bool HasLoss(const LogRecord& record) {
  return std::any_of(record.values.begin(), record.values.end(),
                     [](const LogRecord::Value& v) { return v.name == "loss"; });
}

// Returns the epoch that the row states.
inline std::optional<double> EpochOf(const LogRecord& record) {
  std::optional<double> epoch;
  for (const LogRecord::Value& v : record.values) {
    if (v.name == "epoch" && std::isfinite(v.value)) epoch = v.value;
  }
  return epoch;
}

// Keeps the rows of the newest literal (log_text/log_literal.h). A growing history is printed
// repeatedly. If literals of the same length differ, they are not a history.
class HeldLiteral {
 public:
  void Offer(std::vector<std::string> rows) {
    if (rows.empty()) return;
    count_ += rows.size();
    differs_ |= rows.size() <= rows_.size() && rows != rows_;
    rows_ = std::move(rows);
  }
  // Returns the number of rows in all literals so far.
  uint64_t count() const { return count_; }
  // Returns the rows of the history, and removes them. If there is none, returns an empty list.
  std::vector<std::string> Release() {
    return std::exchange(differs_, false) ? std::vector<std::string>() : std::exchange(rows_, {});
  }

 private:
  std::vector<std::string> rows_;
  uint64_t count_ = 0;
  bool differs_ = false;
};

// Keeps the bars that Keras redraws until the epoch has ended.
class HeldBars {
 public:
  struct Bar {
    int64_t batch = 0;
    std::vector<std::pair<std::string, double>> values;
  };

  // Returns true if the bar is of another epoch than the kept bars.
  bool IsOfNext(const LogRecord& record) const {
    return !bars_.empty() && record.mark.step != epoch_;
  }
  void Keep(const LogRecord& record) {
    epoch_ = record.mark.step;
    if (bars_.size() == kMost) {  // drops every second bar
      for (size_t i = 0; 2 * i < kMost; ++i) bars_[i] = std::move(bars_[2 * i]);
      bars_.resize(kMost / 2);
    }
    Bar& bar = bars_.emplace_back();
    bar.batch = record.mark.batch;
    for (const LogRecord::Value& v : record.values) bar.values.emplace_back(v.name, v.value);
  }
  // Ends an epoch. Drops its bars, because its last line has its values.
  void Ended(int64_t epoch) {
    if (epoch >= epoch_) bars_.clear();
  }
  int64_t epoch() const { return epoch_; }
  std::vector<Bar> Release() { return std::exchange(bars_, {}); }

 private:
  static constexpr size_t kMost = 4096;
  int64_t epoch_ = -1;
  std::vector<Bar> bars_;
};

}  // namespace plumbline::audit
