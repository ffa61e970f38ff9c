// Innocent explanations of score-separable assignments: thresholds that were stored, and data whose
// structure makes counts equal. docs/decisions/0053.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/routing/call/call.h"
#include "analysis/routing/policies/cell_keys.h"
#include "analysis/routing/policies/ranked.h"

namespace plumbline::rules {

// Which stored rules, of fewer numbers than they explain, give every assignment as well; a
// threshold for each (expert, pool) always does, and is what equal counts speak against.
struct StoredThresholds {
  bool common = false;        // one number for all experts and pools
  bool per_expert = false;    // one an expert, over several pools
  bool per_sequence = false;  // one a sequence, common to its experts
  bool moving = false;        // one for some tokens in a row, as a prefix moves it, for all experts
  bool any() const { return common || per_expert || per_sequence || moving; }
  const char* name() const;  // "one threshold for all experts"; "" where there is none
};

// Of a map in which experts chose: `taken` [T,E].
StoredThresholds ThresholdsOfMap(const RoutingCase& c, const std::vector<uint8_t>& taken,
                                 const KeyReader& reader);
// Of choices that were kept or refused, by the key of a replay.
StoredThresholds ThresholdsOfChoices(const RoutingCase& c, const RankedReplay& replay);

// Tokens come in kinds, each as often as the others or a multiple of it, or as often in every
// sequence (nine of each symbol, permutations): any rule of the token's own then fills experts
// evenly. A token's kind is what became of it. Few kinds (below 8) tell nothing.
bool CountsFollowStructure(const RoutingCase& c);

// Full experts cut where their candidates' keys leave a gap far wider than those beside it: scores
// that have learned which tokens to take, not places that ran out.
// `lowest`: the lowest are kept.
bool CutsInGaps(const RoutingCase& c, const Saturation& s, KeyKind kind, QueueBy by, bool lowest);

// The scores of the experts a token holds lie above zero, those of all others do not: a threshold
// that nobody fits (ReLU routing; with the stored thresholds as bias, adaptive gating). False where
// counts are as even as a threshold fitted on the batch would make them.
bool ZeroDecides(const RoutingCase& c);

}  // namespace plumbline::rules
