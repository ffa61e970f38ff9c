// Gaps that come again and again: the teeth of a comb.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plumbline/v1/evidence.pb.h"

namespace plumbline::timeline {

// Gaps are grouped by the GPU operation that ends them; between two of a group lie so many
// operations of that name. A group recurs where at least 3 of its gaps are at least 3 % of a step
// (without step marks: of the median time between its gaps), three quarters of the distances
// between these are within 2 % of their median, and from the first to the last, one period more,
// they reach over half of the window.
struct Comb {
  size_t gaps = 0;         // that recur, of all groups
  int64_t time_ns = 0;     // theirs
  int64_t longest_ns = 0;  // of them; without any, of all gaps
  int64_t period_ns = 0;   // of the group that takes most time: median time between ends
  v1::TimelineGap::Cause cause = v1::TimelineGap::CAUSE_UNKNOWN;  // holds half of the time
  double cause_share = 0;                    // of the time, of the cause that holds most of it
  size_t groups = 0;                         // that recur
  const v1::TimelineGap* longest = nullptr;  // within the timeline
};

// Steps that lie within the window; 0: none is marked.
size_t StepsWithin(const v1::Timeline& timeline);

// The first of the longest gaps with this cause; nullptr: none has it. Of its host span a
// v1::TimelineWait of the same cause has the name.
const v1::TimelineGap* LongestGap(const v1::Timeline& timeline, v1::TimelineGap::Cause cause);

// The timeline outlives what is found. Whatever it holds, memory and time are those of its gaps.
Comb FindComb(const v1::Timeline& timeline);

}  // namespace plumbline::timeline
