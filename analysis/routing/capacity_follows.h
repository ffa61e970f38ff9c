// Tests whether the capacities of calls of one size rise with the tokens that the experts were
// offered, beyond what a schedule, a draw or a table of data sources gives by chance.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace plumbline::analysis {

// Bits of evidence that a call refuses at one number. A call with fewer does not show its capacity.
inline constexpr double kCapacityShownBits = 4;

struct CapacityCall {
  int64_t capacity = 0;
  std::vector<int64_t> offered;  // most candidates of a pool, per expert, ascending
};

// Returns true if a call with these loads would show this capacity by its refusals.
bool ShowsCapacity(const std::vector<int64_t>& offered, int64_t capacity);

struct CapacityFollows {
  double bits = 0;  // minus log2 of the probability of a coincidence
  std::string how;  // the number that the capacity rises with
};

// `calls` are in the order of the run. Only orders count, among the capacities that these calls
// could have shown:
// - If the capacities have no order in time, every order of them was equally likely.
// - Otherwise only neighbours in time are exchanged, because capacities and loads may both follow a
//   schedule.
// - Calls with one capacity count once in all: they may be one source of data with a capacity of
//   its own.
// Capacities that come again after some number of calls are a schedule.
// The number of functions that are tried is subtracted.
CapacityFollows FindCapacityFollows(const std::vector<CapacityCall>& calls);

}  // namespace plumbline::analysis
