// Shows the progress of a long command on one line of the terminal.
#pragma once

#include <chrono>

#include "audit/session/audit.h"

namespace plumbline::audit {

// Prints nothing if standard error is not a terminal, or if `quiet`. Not thread-safe.
class ProgressLine {
 public:
  explicit ProgressLine(bool quiet);
  ~ProgressLine();  // erases the line
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void Show(const AuditProgress& progress);

 private:
  using Clock = std::chrono::steady_clock;
  bool enabled_;
  bool shown_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = start_;
};

}  // namespace plumbline::audit
