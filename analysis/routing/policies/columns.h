// Experts that choose: equal holdings, by score, over all tokens of a pool.
#pragma once

#include <cstdint>
#include <string>

#include "analysis/routing/call/call.h"
#include "analysis/routing/policies/pairs.h"
#include "analysis/routing/policies/stored.h"
#include "analysis/routing/policies/thresholds.h"

namespace plumbline::rules {

// Experts choose tokens: equal holdings, by score, over all tokens of a pool.
struct ColumnChoice {
  bool equal =
      false;  // every cell of pools of one size holds one number, and rows differ in theirs
  bool separable =
      false;        // in each cell no token that was left out scores above one that was taken
  double bits = 0;  // that the equal holdings are no accident of own thresholds
  int64_t capacity = 0;
  std::string variant;  // the score that separates
  KeyKind key = KeyKind::kRecorded;
  RefusalPair witness;        // left out, taken: one sequence and pool, left out first
  RefusalPair batch;          // of two sequences
  int64_t future_tokens = 0;  // left out by an expert that took a later token of their sequence
  int64_t cross_tokens = 0;   // left out by an expert that took a token of another sequence
  bool positional =
      false;  // the same positions in every sequence, or scores of few values: a table
  bool learned_table =
      false;  // gaps at the cut that no competition leaves: scores that follow a table
  bool by_position = false;     // at every position the experts choose among the sequences
  bool one_threshold = false;   // one threshold an expert, common to all pools, gives it as well
  StoredThresholds thresholds;  // what else gives it; asked where it might be a proof
  std::vector<StoredNumbers> stored;  // likewise: the bars an expert that give it, by each score
  bool exceeds_declared = false;      // holdings differ from the declared capacity
};
ColumnChoice FindColumnChoice(const RoutingCase& c);

// What else than a choice of the experts gives these columns ("short-id: sentence"); empty: nothing
// known.
std::string ColumnsOtherwise(const RoutingCase& c, const ColumnChoice& column);

}  // namespace plumbline::rules
