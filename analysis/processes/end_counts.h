// Who of a run's processes went first, and how each end is to be read: what health/run-died rests
// on (died_verdict.cc has its words).
#pragma once

#include <array>
#include <cstdint>

#include "analysis/processes/process_end.h"

namespace plumbline::rules {

// How an end is to be read. Those that say more of a cause come first.
enum Kind { kOwn, kGoneKind, kFollower, kAsked, kThread, kKinds };

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
// What the facts say of those of whom nothing is known: records that break off, and rollout workers
// that nobody misses.
void ConcludeEnds(RunEnds* run);
// Points into `run`.
EndCounts CountEnds(const RunEnds& run);
// Who went first, where anybody ended badly.
const ProcessEnd* FirstOf(const Firsts& of);
// `together`: all ended without a word. `alone`: nobody followed it.
Cause CauseOf(const ProcessEnd& first, bool together, bool alone);

}  // namespace plumbline::rules
