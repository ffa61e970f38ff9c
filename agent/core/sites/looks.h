// Steps that are measured outside of the cadence because something was noticed in one of them. A
// fault that the screening of every step finds is then reported in the step in which it began. This
// applies to kinds that one rank measures alone; kinds that ranks must measure together stay with
// their common cadence.
//
// A site's first call is measured too, in any step.
//
// A look may use the bytes that the run was allowed to send so far and that earlier looks did not
// use: half of the traffic budget of every step, plus that of 512 steps for a new run. At most one
// step in 32 is looked at, after the first 16.
#pragma once

#include <atomic>
#include <cstdint>

#include "agent/core/sites/site_table.h"

namespace plumbline::agent {

// Thread-safe. If two threads call at once, one may get a smaller result.
class Looks {
 public:
  static constexpr int64_t kOpening = 16;
  static constexpr int64_t kOneIn = 32;

  explicit Looks(uint64_t traffic_bytes) : traffic_bytes_(traffic_bytes) {}

  // Requests `steps` steps from the open one on, each of `step_bytes`. Steps that are already
  // requested do not count again. Returns the last step that is looked at; less than `step` if the
  // budget is used up.
  int64_t Query(int64_t step, uint32_t steps, uint64_t step_bytes);

  // Returns true for kinds that one rank measures alone. The sum over micro-batches is made on one
  // rank, for every kind.
  static bool Alone(const Site& site) {
    return site.kind == SiteKind::kTensor || site.kind == SiteKind::kUpdate ||
           site.kind == SiteKind::kMatmul || site.kind == SiteKind::kRouting ||
           (site.kind == SiteKind::kReduction && site.op == "accumulation");
  }
  // Returns true if this is a site's first call, which is measured in any step: otherwise a site
  // that is active in few steps would seem to be silent. In graphs a call is always present.
  static bool AtFirst(const Site& site) {
    return Alone(site) && !site.heard() && site.graph_calls.load(std::memory_order_relaxed) == 0;
  }
  bool Covers(int64_t step) const { return step >= 0 && step <= until_.load(); }
  bool Covers(const Site& site, int64_t step) const { return Covers(step) && Alone(site); }

 private:
  const uint64_t traffic_bytes_;
  std::atomic<int64_t> until_{-1};
  std::atomic<uint64_t> bytes_{0};  // granted to looks
  std::atomic<int64_t> steps_{0};   // likewise
};

}  // namespace plumbline::agent
