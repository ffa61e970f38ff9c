// Whether a loss scaler skipped a step, by what a log holds of it: the scale, or a count of skipped
// steps. Not thread-safe.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "base/archive.h"

namespace plumbline::rules {

// "skipped", "number of skipped iterations", "overflow": how many steps were thrown away.
inline bool CountsThrownAway(const std::string& op) {
  const std::vector<std::string> words =
      absl::StrSplit(absl::AsciiStrToLower(op), absl::ByAnyChar("/_-. :"));
  return std::any_of(words.begin(), words.end(), [](const std::string& word) {
    return word == "skipped" || word == "overflow" || word == "overflows";
  });
}

// Megatron-LM's "number of skipped iterations": of the steps since the row before, no running
// count.
inline bool CountsOfRows(const std::string& op) {
  return op.find("number of ") != std::string::npos;
}

class ScalerWatch {
 public:
  // Its counts are those of each row.
  void OfRows() { running_ = false; }
  // The scale of a step. True: it fell to three quarters or less.
  bool TakeScale(double scale) {
    const bool falls = scale <= 0.75 * newest_;
    newest_ = scale;
    return falls;
  }
  // A count of skipped steps: a running one, or each row's own. True: it says that one was skipped.
  bool TakeCount(double count) {
    if (count < newest_) running_ = false;
    const double before = std::isnan(newest_) ? 0 : newest_;
    newest_ = count;
    return running_ ? count > before : count > 0;
  }
  void Persist(Archive& a) { a(newest_, running_); }

 private:
  double newest_ = NAN;
  bool running_ = true;  // so far
};

}  // namespace plumbline::rules
