// Leaking replays: full experts that keep the best of their candidates by a score, or by choice
// rank before anything else.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/routing/call/call.h"
#include "analysis/routing/policies/cell_keys.h"
#include "analysis/routing/policies/queue.h"
#include "analysis/routing/policies/stored.h"

namespace plumbline::rules {

// How a policy that ranks each cell's candidates fares on the refusing cells.
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
  bool rank_first = false;  // choices of a lower rank come before all of a higher one
  bool exact = false;       // every known choice comes out as recorded
  double bits = 0;      // log2 of how many other kept sets were possible, less what ties leave open
  double raw_bits = 0;  // the same, with cells that another policy would have filled alike
  double tie_bits = 0;  // what ties left open
  double luck_bits = 0;  // that refusals of the token's own would have left exactly what was kept
  double share = 0;      // of the choices looked at, as the policy says
  std::string order;     // kPlace: the queue; in time order where rank_first
  StoredNumbers stored;  // exact: the table that gives the same
  // Own keys decide, from either end.
  bool by_own_score() const {
    return priority == Priority::kOwnScore || priority == Priority::kLowestScore;
  }
  // kOwnScore, exact: cells (index in Saturation::cells) that refused a choice with exactly the key
  // of their lowest admission.
  std::vector<size_t> tied_cells;

  std::string Describe()
      const;  // "drop by score (softmax)", "a rank-major queue (seq-major order)"
  bool by_score() const { return priority != Priority::kPlace; }
};

// What of a row a replay by score queues it by.
QueueBy ByOf(const RankedReplay& replay);

// KeyKinds that can have ranked the refused: not probabilities that are zero because of the
// refusal.
std::vector<KeyKind> UsableKeys(const RoutingCase& c);

// Every policy of this kind, exact ones first, then by bits and raw bits. Choices whose rank is
// unknown are left out of those by rank; where that is half of them, so are those policies.
std::vector<RankedReplay> ReplayRanked(const RoutingCase& c, const Saturation& s,
                                       const std::vector<TimeQueue>& queues);

// Scores of a few values are a table, not a competition.
inline bool FewValues(size_t values, size_t rows) {
  return values <= 2 || values <= (rows / 4 < 16 ? rows / 4 : 16);
}

// -log2 of the binomial chance of exactly `count` of n at probability count/n: what own thresholds
// would have to hit by luck.
double ExactCountBits(double n, double count);

}  // namespace plumbline::rules
