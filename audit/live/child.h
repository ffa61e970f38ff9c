// Runs a short-lived helper program and returns its output.
#pragma once

#include <string>
#include <vector>

namespace plumbline::audit {

struct ChildResult {
  bool started = false;  // false if there is no such program
  bool timed_out = false;
  int exit_status = -1;  // of a program that exited
  int signal = 0;        // the signal that killed it
  std::string output;    // standard output and standard error, interleaved
};

// Runs a program. After `timeout_seconds`, kills it. `environment`: "NAME=VALUE", added to ours.
ChildResult RunChild(const std::vector<std::string>& command,
                     const std::vector<std::string>& environment, double timeout_seconds);

}  // namespace plumbline::audit
