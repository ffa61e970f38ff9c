// Patterns of causal routers that look like a leak. If one of them fits, inversions prove nothing.
// Each pattern is looser than any router known to work so.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/routing/call/call.h"
#include "analysis/routing/policies/queue.h"

namespace plumbline::analysis {

struct CleanPatterns {
  // A cut of some queue into contiguous pieces. If pools are recorded row by row, the cut must
  // explain more than its free bits. If it fits but explains less, it forbids a proof, not a hint.
  bool cut = false;
  bool loose_cut = false;
  // A budget that grows evenly along the queue, equal for every expert.
  bool running_budget = false;
  // Some budget that never falls along the queue, equal for every expert. Nearly any refusals of
  // one expert fit it, so it forbids a proof, not a hint.
  bool loose_budget = false;
  // A budget over the last w rows.
  bool sliding_window = false;
  // A token bucket per expert.
  bool bucket = false;
  // If a token finds one of its experts full, all its experts refuse it.
  bool all_or_nothing = false;
  // At every position the experts choose among the sequences. Not tested if pools are recorded.
  bool by_position = false;
  // Position and expert decide which tokens are refused, equally in every sequence. If full experts
  // would hold their capacity only by luck under such a table, it forbids a proof, not a hint.
  bool table = false;
  bool loose_table = false;

  // If true, there is no finding.
  bool any() const {
    return cut || running_budget || sliding_window || bucket || all_or_nothing || by_position ||
           table;
  }
  // If true, there is no proof.
  bool loose() const { return any() || loose_cut || loose_budget || loose_table; }
  const char* name() const;
  // Returns what forbids a proof of a finding, as a sentence after a blank. If nothing does,
  // returns an empty string.
  const char* doubt() const;
};

CleanPatterns FindCleanPatterns(const RoutingCase& c, const Saturation& s,
                                const std::vector<TimeQueue>& queues);

}  // namespace plumbline::analysis
