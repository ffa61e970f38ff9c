#include "analysis/routing/declared_queue.h"

#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/routing/call/call.h"

namespace plumbline::analysis {

bool ContradictsItsQueue(const RoutingAnalysis& a) {
  return NamesQueue(a.c.routing->config()) && a.own_refusal_bits >= 0 && a.inversions.any.found();
}

v1::Verdict NoSuchQueue(const RoutingAnalysis& a) {
  FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_HEURISTIC);
  found.Title("the declared queue admits later tokens first")
      .Explain(absl::StrFormat(
          "The configuration declares a queue (%s) of capacity %d. For %d refused choices the same "
          "full expert later admitted a token of the same sequence and pool. No queue in time "
          "order gives these refusals, so the declaration is wrong.",
          a.c.routing->config().policy(), a.saturation.capacity, a.inversions.inversions))
      .Cause("declared-queue", 0.9)
      .Measured("inversions",
                1000.0 * static_cast<double>(a.inversions.inversions) /
                    static_cast<double>(a.c.judged_rows),
                "per 1,000 tokens")
      .Threshold(0, "a queue in time order has none")
      .Samples(static_cast<uint64_t>(a.c.judged_rows))
      .Fix(
          "Break ties by position with a stable sort, or route without capacity. Megatron-LM's "
          "drop policy \"position\" (0.16.1) takes the top of ties, which is not a queue: see "
          "causality/moe-tie-order. If tokens are refused by a rate or a draw, record randomness "
          "and the real policy.");
  *found.finding().mutable_witness() = Witness(a, a.inversions.any);
  return found.Take();
}

}  // namespace plumbline::analysis
