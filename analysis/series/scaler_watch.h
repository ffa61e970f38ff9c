// Detects whether a loss scaler skipped a step, from the scale or from a count of skipped steps in
// a log. Not thread-safe.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "base/archive.h"

namespace plumbline::analysis {

// Returns true if `op` names a count of skipped steps: "skipped", "number of skipped iterations",
// "overflow".
inline bool CountsThrownAway(const std::string& op) {
  const std::vector<std::string> words =
      absl::StrSplit(absl::AsciiStrToLower(op), absl::ByAnyChar("/_-. :"));
  return std::any_of(words.begin(), words.end(), [](const std::string& word) {
    return word == "skipped" || word == "overflow" || word == "overflows";
  });
}

// Returns true for Megatron-LM's "number of skipped iterations", which is not a running count but
// counts the steps since the previous row.
inline bool CountsOfRows(const std::string& op) {
  return op.find("number of ") != std::string::npos;
}

class ScalerWatch {
 public:
  // Declares that the counts are per row.
  void OfRows() { running_ = false; }
  // Takes the scale of a step. Returns true if it fell to three quarters or less.
  bool TakeScale(double scale) {
    const bool falls = scale <= 0.75 * newest_;
    newest_ = scale;
    return falls;
  }
  // Takes a count of skipped steps, running or per row. Returns true if a step was skipped.
  bool TakeCount(double count) {
    if (count < newest_) running_ = false;
    const double before = std::isnan(newest_) ? 0 : newest_;
    newest_ = count;
    return running_ ? count > before : count > 0;
  }
  void Persist(Archive& a) { a(newest_, running_); }

 private:
  double newest_ = NAN;
  bool running_ = true;  // as far as known, the count is a running count
};

}  // namespace plumbline::analysis
