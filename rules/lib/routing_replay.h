// Replays: would this policy, given the recorded choices and scores, have kept exactly these
// tokens? Spec: routing causality, steps 2 and 5.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rules/lib/routing_capacity.h"
#include "rules/lib/routing_case.h"
#include "rules/lib/routing_keys.h"

namespace plumbline::rules {

// How one policy fares on the refusing cells of a case.
struct Replay {
  bool exact = false;   // every known choice comes out as recorded
  double bits = 0;      // log2 of how many other kept sets were possible, less what ties leave open
  double share = 0;     // of known choices, as the policy says
  std::string variant;  // the queue order or the score that it was replayed with
  KeyKind key = KeyKind::kRecorded;
};

// Admits by rank in a queue, until the cell holds what it holds. Tried orders: the rows as stored
// (if that is time order), batch-major and seq-major. The best order is returned; `flatten` gets
// the orders that fit exactly. Needs c.ordered() but for the order of the rows.
struct QueueReplay {
  Replay best;
  std::vector<std::string> exact_orders;  // of "rows", "batch-major", "seq-major"
  // All first choices before all second ones gives the same refusals, or cannot be excluded because
  // choice ranks are unknown. (With one choice a token it is the same queue.)
  bool rank_major_fits = false;
};
QueueReplay ReplayFirstCome(const RoutingCase& c, const Saturation& s);

// Admits the highest scores of each cell, by each of KeyKinds (routing_keys.h).
Replay ReplayByScore(const RoutingCase& c, const Saturation& s);

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
  bool one_threshold = false;     // one threshold an expert, common to all pools, gives it as well
  bool exceeds_declared = false;  // holdings differ from the declared capacity
};
ColumnChoice FindColumnChoice(const RoutingCase& c);

}  // namespace plumbline::rules
