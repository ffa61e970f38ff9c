// What causal routers may show that looks like a leak: while one of these fits, inversions prove
// nothing. Each is looser than any router known to work so.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/routing/call/call.h"
#include "analysis/routing/policies/queue.h"

namespace plumbline::rules {

struct CleanPatterns {
  // A cut of some queue into contiguous pieces. Where pools are recorded row by row it must be
  // worth more than what is free in it; one that fits all the same forbids a proof, not a hint.
  bool cut = false;
  bool loose_cut = false;
  // A budget that grows evenly along the queue, the same for every expert.
  bool running_budget = false;
  // Some budget that never falls along the queue, the same for every expert. Nearly any refusals of
  // one expert fit it, so it forbids a proof, not a hint.
  bool loose_budget = false;
  // A budget over the last w rows.
  bool sliding_window = false;
  // A token bucket an expert.
  bool bucket = false;
  // A token that finds one of its experts full is refused by all.
  bool all_or_nothing = false;
  // At every position the experts choose among the sequences. (Not asked where pools are recorded.)
  bool by_position = false;
  // Position and expert decide who is refused, in every sequence alike. Where full experts hold
  // their capacity by no luck of a table's, it forbids a proof, not a hint.
  bool table = false;
  bool loose_table = false;

  // No finding.
  bool any() const {
    return cut || running_budget || sliding_window || bucket || all_or_nothing || by_position ||
           table;
  }
  // No proof.
  bool loose() const { return any() || loose_cut || loose_budget || loose_table; }
  const char* name() const;
  // What forbids a proof of a finding, as a sentence after a blank; empty where nothing does.
  const char* doubt() const;
};

CleanPatterns FindCleanPatterns(const RoutingCase& c, const Saturation& s,
                                const std::vector<TimeQueue>& queues);

}  // namespace plumbline::rules
