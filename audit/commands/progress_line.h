// One line on a terminal's standard error that says how far a long command has come.
#pragma once

#include <chrono>

#include "audit/session/audit.h"

namespace plumbline::audit {

// Silent when standard error is no terminal, or when asked to be. Not thread-safe.
class ProgressLine {
 public:
  explicit ProgressLine(bool quiet);
  ~ProgressLine();  // wipes the line
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
