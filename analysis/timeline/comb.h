// Finds gaps that recur at regular intervals, like the teeth of a comb.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plumbline/v1/evidence.pb.h"

namespace plumbline::timeline {

// Gaps are grouped by the name of the GPU operation that ends them. The distance of two gaps of a
// group is the number of operations of that name between them. A group recurs if three conditions
// hold. At least 3 of its gaps are at least 3 % of a step (without step marks: of the median time
// between its gaps). Three quarters of the distances between these are within 2 % of their median.
// From the first to the last, plus one period, they cover over half of the window.
struct Comb {
  size_t gaps = 0;         // number of recurring gaps, over all groups
  int64_t time_ns = 0;     // their total time
  int64_t longest_ns = 0;  // the longest recurring gap; if none recurs, the longest gap
  int64_t period_ns = 0;   // median time between the ends of gaps, for the group that takes most
                           // time
  v1::TimelineGap::Cause cause =
      v1::TimelineGap::CAUSE_UNKNOWN;        // the cause with at least half of the time
  double cause_share = 0;                    // share of the time of the most frequent cause
  size_t groups = 0;                         // number of recurring groups
  const v1::TimelineGap* longest = nullptr;  // points into the timeline
};

// Returns the number of steps within the window. If none is marked, returns 0.
size_t StepsWithin(const v1::Timeline& timeline);

// Returns the first of the longest gaps with this cause. If there is none, returns nullptr. A
// v1::TimelineWait of the same cause has the name of its host span.
const v1::TimelineGap* LongestGap(const v1::Timeline& timeline, v1::TimelineGap::Cause cause);

// The timeline must outlive the result. For any content, memory and time are proportional to its
// gaps.
Comb FindComb(const v1::Timeline& timeline);

}  // namespace plumbline::timeline
