// Runs a short-lived helper program and keeps what it prints.
#pragma once

#include <string>
#include <vector>

namespace plumbline::audit {

struct ChildResult {
  bool started = false;  // false: there is no such program
  bool timed_out = false;
  int exit_status = -1;  // of a program that ended by itself
  int signal = 0;        // that killed it
  std::string output;    // standard output and standard error, as they came
};

// Waits at most `timeout_seconds`, then kills it. `environment`: "NAME=VALUE" added to ours.
ChildResult RunChild(const std::vector<std::string>& command,
                     const std::vector<std::string>& environment, double timeout_seconds);

}  // namespace plumbline::audit
