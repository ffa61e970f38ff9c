// Steps that are looked at out of cadence, because something was noticed in one: what a screening
// of every step found is then told of the step in which it began. Of kinds that one rank measures
// alone; what ranks must measure together stays with the cadence, which they share.
//
// A site's first call is one too, whatever the step.
//
// A look may take what the run so far was allowed to send and has not sent by earlier looks: half
// of the traffic budget of every step, and that of 512 steps for a run that has only begun; and at
// most one step in 32, beyond the first 16.
#pragma once

#include <atomic>
#include <cstdint>

#include "agent/core/sites/site_table.h"

namespace plumbline::agent {

// Any thread; of two who ask at once, one may be told less.
class Looks {
 public:
  static constexpr int64_t kOpening = 16;
  static constexpr int64_t kOneIn = 32;

  explicit Looks(uint64_t traffic_bytes) : traffic_bytes_(traffic_bytes) {}

  // Asks for `steps` steps from the open one on, of which each takes `step_bytes`. Those that are
  // looked at already are not counted again. Returns the last step that is looked at; less than
  // `step`: none, there is no room.
  int64_t Ask(int64_t step, uint32_t steps, uint64_t step_bytes);

  // The sum over micro-batches is made on one rank, whatever its kind.
  static bool Alone(const Site& site) {
    return site.kind == SiteKind::kTensor || site.kind == SiteKind::kUpdate ||
           site.kind == SiteKind::kMatmul || site.kind == SiteKind::kRouting ||
           (site.kind == SiteKind::kReduction && site.op == "accumulation");
  }
  // A site's first call is heard in whatever step it comes: else one that lives in few steps would
  // seem to be silent. In graphs a call is always there.
  static bool AtFirst(const Site& site) {
    return Alone(site) && !site.heard() && site.graph_calls.load(std::memory_order_relaxed) == 0;
  }
  bool Covers(int64_t step) const { return step >= 0 && step <= until_.load(); }
  bool Covers(const Site& site, int64_t step) const { return Covers(step) && Alone(site); }

 private:
  const uint64_t traffic_bytes_;
  std::atomic<int64_t> until_{-1};
  std::atomic<uint64_t> bytes_{0};  // that looks were given
  std::atomic<int64_t> steps_{0};   // likewise
};

}  // namespace plumbline::agent
