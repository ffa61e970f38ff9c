// The text behind plumbline_last_error.
#pragma once

#include "agent/agent_table.h"

namespace plumbline::facade {

// This thread's text; the agent writes into it directly. Thread-local, never null.
plumbline_error_t* ThreadError();

// Formats the text and returns `status`.
[[gnu::format(printf, 2, 3)]] plumbline_status_t Fail(plumbline_status_t status, const char* format,
                                                      ...);

// One line on standard error, prefixed "plumbline: ".
[[gnu::format(printf, 1, 2)]] void Warn(const char* format, ...);

// Keeps the caller's errno over whatever we call.
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
