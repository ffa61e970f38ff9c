// The content of a goodbye: how the process ends, and the newest values of its first series.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "agent/agent_table.h"
#include "agent/core/sites/site_table.h"
#include "base/mutex.h"
#include "plumbline/v1/batch.pb.h"

namespace plumbline::agent {

class ExitReport {
 public:
  // Notes an ending. The first ending that is not only of a thread counts, until a step begins or
  // null cancels it. Thread-safe.
  void Note(const plumbline_ending_t* ending);
  // A step begins, so the process continues: forgets the noted ending. Costs one load if nothing
  // was noted.
  void GoesOn() {
    if (noted_.load(std::memory_order_relaxed)) Forget(false);
  }

  // Called by the drain thread with the values of series.
  void Value(const Site* site, int64_t step, double value);
  // Fills *out. Returns false if there is nothing to report.
  bool Take(v1::Ending* out);

 private:
  struct Newest {
    const Site* site = nullptr;
    int64_t step = 0;
    double value = 0;
  };
  void Forget(bool thread);

  Mutex mutex_;
  v1::Ending ending_ PLUMB_GUARDED_BY(mutex_);
  std::atomic<bool> noted_{false};
  std::array<Newest, 8> newest_;
  size_t series_ = 0;
};

}  // namespace plumbline::agent
