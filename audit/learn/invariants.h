// Invariants of healthy runs, and their file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "audit/learn/meter.h"

namespace plumbline::audit {

// A subject's number lies between `low` and `high`, both included.
struct Invariant {
  Subject subject;
  double low = 0, high = 0;
  uint64_t support = 0;  // numbers of healthy runs

  bool Holds(double value) const { return value >= low && value <= high; }
};

struct Invariants {
  std::vector<Invariant> list;
  uint64_t runs = 0;       // healthy runs from which they were learned
  uint64_t held_back = 0;  // runs that were held back, one at a time, from the whole procedure
  uint64_t alarms = 0;     // of these, runs that violated some invariant learned from the others
  uint64_t dropped = 0;    // relations that some held-back run did not confirm

  // Share of held-back healthy runs with an alarm.
  double false_alarms() const {
    return static_cast<double>(alarms) / static_cast<double>(held_back);
  }
  // Upper limit of that share, at 95 % confidence (Clopper and Pearson).
  double false_alarm_limit() const;
};

// Returns the file's text (TOML).
std::string InvariantsText(const Invariants& invariants);
// Parses it. `name` is for messages. Returns InvalidArgument with line and expected content.
absl::StatusOr<Invariants> ParseInvariants(std::string_view text, const std::string& name);

}  // namespace plumbline::audit
