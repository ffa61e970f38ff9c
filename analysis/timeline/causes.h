// Finds what the host did while nothing ran on the GPU.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "analysis/timeline/columns.h"
#include "analysis/timeline/intervals.h"
#include "analysis/timeline/names.h"

namespace plumbline::timeline {

// Returns the launch of a GPU event. If none is recorded, returns nullptr. Launches are sorted by
// correlation.
const Launch* FindLaunch(const Columns& columns, const GpuWork& work);

// The threads that launch work, and how they spent their time. The columns must be sorted (Reduce)
// and must outlive this object.
class HostSide {
 public:
  explicit HostSide(const Columns& columns);

  size_t threads() const { return launches_.size(); }  // threads that launch kernels

  // Returns the cause of a gap. `ender` is the index of the GPU event that ends it. Uses the thread
  // that launched the first kernel after the gap; if its launch is not recorded, the thread with
  // most launches. Returns the first class whose spans there, as a union, cover half of the gap. If
  // none does, but a synchronising call was open when the gap began and ended within max(0.2 ms, a
  // tenth of the gap), returns synchronisation.
  v1::TimelineGap::Cause CauseOfGap(const Interval& gap, size_t ender) const;

  // Returns the part of the gap during which the event that ends the gap was not launched yet. If
  // this is not known, returns 0.
  static int64_t Overlap(const Interval& gap, const Launch& launch);
  int64_t WaitedForLaunch(const Interval& gap, const GpuWork& ender) const;

  // Returns the spans of class `i` on launching threads, within [first, last), and the name of the
  // one that covers most of `gap`. If no span overlaps `gap`, returns the name of the longest.
  struct Class {
    Intervals all;
    uint32_t name = 0;
  };
  Class OfClass(int i, int64_t first, int64_t last, const Interval& gap) const;

 private:
  struct Thread {
    std::array<Intervals, kHostClasses> classes;
    // Synchronising calls, sorted by start; `open_until` is the latest end up to each.
    std::vector<Interval> synchronising;
    std::vector<int64_t> open_until;
  };

  const Thread* ThreadAfter(size_t ender) const;
  static bool Synchronised(const Thread& thread, const Interval& gap);

  const Columns& in_;
  std::map<uint32_t, uint64_t> launches_;  // number of kernel launches, by thread
  std::map<uint32_t, Thread> threads_;
  std::vector<uint32_t> next_kernel_;  // by GPU event: index of the first kernel at or after the
                                       // event
  uint32_t busiest_ = 0;
};

}  // namespace plumbline::timeline
