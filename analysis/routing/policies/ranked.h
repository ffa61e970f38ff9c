// Replays of leaking policies: full experts keep the best of their candidates by a score, or by
// choice rank first.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/routing/call/call.h"
#include "analysis/routing/policies/cell_keys.h"
#include "analysis/routing/policies/queue.h"
#include "analysis/routing/policies/stored.h"

namespace plumbline::analysis {

// How well a policy that ranks each cell's candidates explains the refusing cells.
struct RankedReplay {
  enum class Priority {
    kOwnScore,     // the choice's own key
    kLowestScore,  // the same, the lowest first
    kBestOfRow,    // the row's best key: tokens queue by their best score (batch-prioritised)
    kSumOfRow,     // the sum of the row's keys over its choices
    kPlace,        // the row's place in a queue
  };
  Priority priority = Priority::kOwnScore;
  KeyKind key = KeyKind::kRecorded;
  bool rank_first = false;  // choices of a lower rank come before all of a higher rank
  bool exact = false;       // every known choice is as recorded
  double bits = 0;          // log2 of the number of other possible kept sets, less the bits of ties
  double raw_bits = 0;      // the same, including cells that another policy would have filled alike
  double tie_bits = 0;      // bits that ties leave undecided
  double luck_bits = 0;     // that own refusals would leave exactly the kept number by chance
  double share = 0;         // share of the tested choices that are as the policy decides
  std::string order;        // if kPlace: the queue, in time order if rank_first
  StoredNumbers stored;     // if exact: the table that gives the same choices
  // True if own keys decide, in either direction.
  bool by_own_score() const {
    return priority == Priority::kOwnScore || priority == Priority::kLowestScore;
  }
  // If kOwnScore and exact: cells (index in Saturation::cells) that refused a choice whose key
  // equals that of their lowest admission.
  std::vector<size_t> tied_cells;

  std::string Describe()
      const;  // such as "drop by score (softmax)", "a rank-major queue (seq-major order)"
  bool by_score() const { return priority != Priority::kPlace; }
};

// Returns the value of a row by which a replay by score queues it.
QueueBy ByOf(const RankedReplay& replay);

// Returns the KeyKinds that can have ranked the refused choices. Probabilities that are zero
// because of the refusal cannot.
std::vector<KeyKind> UsableKeys(const RoutingCase& c);

// Returns every policy of this kind: exact ones first, then by bits and raw bits. Policies by rank
// ignore choices of unknown rank. If these are half of all choices, policies by rank are skipped.
std::vector<RankedReplay> ReplayRanked(const RoutingCase& c, const Saturation& s,
                                       const std::vector<TimeQueue>& queues);

// Returns true if scores have so few values that they are a table and not a competition.
inline bool FewValues(size_t values, size_t rows) {
  return values <= 2 || values <= (rows / 4 < 16 ? rows / 4 : 16);
}

// Returns -log2 of the binomial probability of exactly `count` of n at probability count/n: own
// thresholds would need this luck.
double ExactCountBits(double n, double count);

}  // namespace plumbline::analysis
