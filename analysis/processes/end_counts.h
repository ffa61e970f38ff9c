// Finds which of a run's processes ended first, and classifies each end for health/run-died
// (died_verdict.cc has the texts).
#pragma once

#include <array>
#include <cstdint>

#include "analysis/processes/process_end.h"

namespace plumbline::analysis {

// Classification of an end. Kinds that indicate a cause more strongly come first.
enum Kind { kOwn, kGoneKind, kFollower, kRequested, kThread, kKinds };

using Firsts = std::array<const ProcessEnd*, kKinds>;

struct EndCounts {
  std::array<uint64_t, kKinds> bad{};
  Firsts first{};
  uint64_t well = 0, open = 0, unreachable = 0;

  uint64_t all_bad() const {
    uint64_t n = 0;
    for (const uint64_t count : bad) n += count;
    return n;
  }
};

struct Cause {
  const char* id;
  v1::Level level;
  const char* fix;
};

Kind KindOf(const ProcessEnd& end);
// Infers the ends of processes without a known one: incomplete records, and rollout workers that
// are not needed.
void ConcludeEnds(RunEnds* run);
// The result points into `run`.
EndCounts CountEnds(const RunEnds& run);
// Returns the process that ended first, if any ended badly.
const ProcessEnd* FirstOf(const Firsts& of);
// `together` is true if all ended without a report, `alone` if no other process followed.
Cause CauseOf(const ProcessEnd& first, bool together, bool alone);

}  // namespace plumbline::analysis
