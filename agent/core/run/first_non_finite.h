// Prints one line on standard error when a training loss is non-finite for the first time.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "agent/core/shared/options.h"
#include "agent/core/sites/site_table.h"

namespace plumbline::agent {

// Returns the line, without the end of line. `command` shows what the user runs next; may be empty.
std::string NonFiniteLine(const std::string& series, int64_t step, double value, uint32_t rank,
                          const std::string& command);

// Returns the path as one word of a shell's command.
std::string ShellPath(const std::string& path);

// Used by the drain thread only.
class FirstNonFinite {
 public:
  explicit FirstNonFinite(const AgentOptions& options) : options_(options) {}

  void Value(const Site* site, int64_t step, double value) {
    if (!std::isfinite(value) && !printed_) Print(*site, step, value);
  }

 private:
  void Print(const Site& site, int64_t step, double value);

  const AgentOptions& options_;
  bool printed_ = false;
};

}  // namespace plumbline::agent
