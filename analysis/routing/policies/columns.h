// Detects experts that choose their tokens: equal holdings, by score, over all tokens of a pool.
#pragma once

#include <cstdint>
#include <string>

#include "analysis/routing/call/call.h"
#include "analysis/routing/policies/pairs.h"
#include "analysis/routing/policies/stored.h"
#include "analysis/routing/policies/thresholds.h"

namespace plumbline::analysis {

// Result: whether experts chose the tokens of a pool by score, in equal numbers.
struct ColumnChoice {
  bool equal =
      false;  // all cells of pools of one size hold the same number, and rows differ in theirs
  bool separable = false;  // in each cell, no token left out scores above a taken one
  double bits = 0;         // evidence against a threshold per expert
  int64_t capacity = 0;
  std::string variant;  // name of the score that separates
  KeyKind key = KeyKind::kRecorded;
  RefusalPair witness;        // left out, taken: of one sequence and pool, left out first
  RefusalPair batch;          // the same, of two sequences
  int64_t future_tokens = 0;  // left out by an expert that took a later token of their sequence
  int64_t cross_tokens = 0;   // left out by an expert that took a token of another sequence
  bool positional = false;    // the same positions in every sequence, or few score values: a table
  bool learned_table =
      false;  // gaps at the cut that no competition leaves: the scores follow a table
  bool by_position = false;     // at every position the experts choose among the sequences
  bool one_threshold = false;   // one threshold per expert, common to all pools, gives the same
                                // choices
  StoredThresholds thresholds;  // stored thresholds that give the same choices; only tested if it
                                // might be a proof
  std::vector<StoredNumbers> stored;  // also: bars per expert that give the same choices, for each
                                      // score
  bool exceeds_declared = false;      // holdings differ from the declared capacity
};
ColumnChoice FindColumnChoice(const RoutingCase& c);

// Returns another explanation of these columns than a choice of the experts ("short-id: sentence").
// If none is known, returns an empty string.
std::string ColumnsOtherwise(const RoutingCase& c, const ColumnChoice& column);

}  // namespace plumbline::analysis
