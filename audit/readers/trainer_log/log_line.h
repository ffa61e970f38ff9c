// A line of a trainer's log as a record: its step, and the names and numbers behind it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "audit/readers/trainer_log/log_dictionary.h"
#include "audit/readers/trainer_log/log_pairs.h"
#include "audit/readers/trainer_log/log_words.h"

namespace plumbline::audit {

// What one line says.
struct LogRecord {
  enum class Step { kSaid, kCounted, kBar };
  struct Value {
    std::string_view name;
    double value;
  };

  Step how = Step::kSaid;
  LogMark mark;
  std::string_view line;    // without colours
  std::string_view prefix;  // of it, before the mark
  bool evaluation = false;
  std::vector<Value> values;
  bool cut = false;  // a last value was left out

  void Clear() {
    values.clear();
    line = prefix = {};
    evaluation = cut = false;
    how = Step::kSaid;
  }
};

// Lines into records. Keeps the line that continues an earlier one. Not thread-safe.
class LogParser {
 public:
  // `ended`: the line is whole. The record is valid until the next call and as long as the line.
  bool Parse(std::string_view line, bool ended, LogRecord* record);

 private:
  bool Continue(std::string_view line, bool ended, LogRecord* record);
  bool ParseStep(std::string_view line, bool ended, LogRecord* record);
  bool ParseDictionary(std::string_view text, bool ended, LogRecord* record);
  bool ParseKeras(std::string_view line, bool ended, LogRecord* record);
  bool IsSample() const;
  bool ParseBar(std::string_view line, bool ended, LogRecord* record);
  void TakePairs(std::string_view text, bool ended, LogRecord* record);
  void TakeDictionary(std::string_view text, bool ended, LogRecord* record);

  std::string plain_;
  LogNames names_;
  LogDictionary dictionary_;
  int64_t epoch_ = -1;  // that Keras began last; -1: none
  bool continued_ = false;
  LogMark continued_mark_;
  std::string continued_prefix_;
};

}  // namespace plumbline::audit
