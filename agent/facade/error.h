// The text that plumbline_last_error returns.
#pragma once

#include "agent/agent_table.h"

namespace plumbline::facade {

// Returns this thread's text; the agent writes into it directly. Thread-local, never null.
plumbline_error_t* ThreadError();

// Formats the text and returns `status`.
[[gnu::format(printf, 2, 3)]] plumbline_status_t Fail(plumbline_status_t status, const char* format,
                                                      ...);

// Prints one line on standard error, prefixed "plumbline: ".
[[gnu::format(printf, 1, 2)]] void Warn(const char* format, ...);

// Restores the caller's errno after our calls.
class ErrnoKeeper {
 public:
  ErrnoKeeper();
  ~ErrnoKeeper();
  ErrnoKeeper(const ErrnoKeeper&) = delete;
  ErrnoKeeper& operator=(const ErrnoKeeper&) = delete;

 private:
  int saved_;
};

}  // namespace plumbline::facade
