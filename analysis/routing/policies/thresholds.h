// Innocent explanations of score-separable assignments: stored thresholds, and data whose structure
// makes counts equal. docs/decisions/0053.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/routing/call/call.h"
#include "analysis/routing/policies/cell_keys.h"
#include "analysis/routing/policies/ranked.h"

namespace plumbline::analysis {

// Stored rules that also give every assignment, with fewer numbers than the assignments that they
// explain. A threshold for each (expert, pool) always gives them; only equal counts contradict it.
struct StoredThresholds {
  bool common = false;        // one number for all experts and pools
  bool per_expert = false;    // one per expert, over several pools
  bool per_sequence = false;  // one per sequence, common to its experts
  bool moving = false;  // one for some consecutive tokens, moving with the prefix, for all experts
  bool any() const { return common || per_expert || per_sequence || moving; }
  const char* name() const;  // "one threshold for all experts"; "" if there is none
};

// For a map in which experts chose: `taken` has shape [T,E].
StoredThresholds ThresholdsOfMap(const RoutingCase& c, const std::vector<uint8_t>& taken,
                                 const KeyReader& reader);
// For choices that were kept or refused, by the key of a replay.
StoredThresholds ThresholdsOfChoices(const RoutingCase& c, const RankedReplay& replay);

// Returns true if tokens come in kinds, each as often as the others or a multiple of it, or equally
// often in every sequence (nine of each symbol, permutations). Then any rule that depends on the
// token alone fills experts evenly. A token's kind is its fate. If there are fewer than 8 kinds,
// returns false.
bool CountsFollowStructure(const RoutingCase& c);

// Returns true if full experts cut where their candidates' keys leave a gap far wider than the
// neighbouring gaps. Then the scores have learned which tokens to take, and the capacity did not
// decide. If `lowest`, the lowest keys are kept.
bool CutsInGaps(const RoutingCase& c, const Saturation& s, KeyKind kind, QueueBy by, bool lowest);

// Returns true if the scores of a token's experts are above zero and all other scores are not: a
// fixed threshold (ReLU routing; with the stored thresholds as bias, adaptive gating). If counts
// are as even as a threshold fitted on the batch would make them, returns false.
bool ZeroDecides(const RoutingCase& c);

}  // namespace plumbline::analysis
