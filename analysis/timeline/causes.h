// What the host did while nothing ran on the GPU.
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

// The launch of a GPU event; nullptr: none is recorded. Launches are sorted by correlation.
const Launch* FindLaunch(const Columns& columns, const GpuWork& work);

// Threads that launch, and what they spent their time with. The columns are sorted (Reduce) and
// outlive it.
class HostSide {
 public:
  explicit HostSide(const Columns& columns);

  size_t threads() const { return launches_.size(); }  // that launch kernels

  // `ender`: the index of the GPU event that ends the gap. The thread asked is that which launched
  // the first kernel after the gap; without its launch record, the one with most launches. The
  // first class whose spans there, as a union, cover half of the gap; else synchronisation, where a
  // synchronising call was open as the gap began and ended within max(0.2 ms, a tenth of the gap).
  v1::TimelineGap::Cause CauseOfGap(const Interval& gap, size_t ender) const;

  // How long of the gap the event that ends it was not even launched; 0 where that is not known.
  static int64_t Overlap(const Interval& gap, const Launch& launch);
  int64_t WaitedForLaunch(const Interval& gap, const GpuWork& ender) const;

  // The spans of class `i` on launching threads, within [first, last), and the name of the one that
  // covers most of `gap`; of the longest, where none covers any of it.
  struct Class {
    Intervals all;
    uint32_t name = 0;
  };
  Class OfClass(int i, int64_t first, int64_t last, const Interval& gap) const;

 private:
  struct Thread {
    std::array<Intervals, kHostClasses> classes;
    // Synchronising calls as they are, by start; `open_until` is the latest end up to each.
    std::vector<Interval> synchronising;
    std::vector<int64_t> open_until;
  };

  const Thread* ThreadAfter(size_t ender) const;
  static bool Synchronised(const Thread& thread, const Interval& gap);

  const Columns& in_;
  std::map<uint32_t, uint64_t> launches_;  // kernels' launches, by thread
  std::map<uint32_t, Thread> threads_;
  std::vector<uint32_t> next_kernel_;  // by GPU event: the first kernel from it on
  uint32_t busiest_ = 0;
};

}  // namespace plumbline::timeline
