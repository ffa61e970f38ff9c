// Measures how long each part of a stop took, for the log.
#pragma once

#include <chrono>
#include <string>

#include "absl/strings/str_format.h"

namespace plumbline::server {

// Not thread-safe.
class StopTimes {
 public:
  // Records that `part` took the time since the earlier one.
  void Note(const char* part) {
    const auto now = std::chrono::steady_clock::now();
    const std::chrono::duration<double> took = now - last_;
    absl::StrAppendFormat(&text_, "%s%s %.2f s", text_.empty() ? "" : ", ", part, took.count());
    last_ = now;
  }
  const std::string& text() const { return text_; }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  std::string text_;
};

}  // namespace plumbline::server
