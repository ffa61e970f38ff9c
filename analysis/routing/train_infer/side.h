// One side of the comparison of training's routing with inference's: the data of a layer's recorded
// calls of one step on each token, reduced to what the join needs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/archive.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::analysis {

// A token's identity on both sides.
struct TokenKey {
  int64_t sequence = 0;
  int64_t position = 0;
  auto operator<=>(const TokenKey&) const = default;
  void Persist(Archive& a) { a(sequence, position); }
};

// An expert near the edge of a token's own choice, and its selection value.
struct EdgeScore {
  int16_t expert;
  float value;
  void Persist(Archive& a) { a(expert, value); }
};

struct RoutedToken {
  TokenKey key;
  std::vector<int16_t> chosen;  // [k] as recorded; -1 if not recorded
  std::vector<float> gates;     // [k] of `chosen`; empty if not recorded
  std::vector<EdgeScore>
      ranked;               // the best 2k+4 by selection value, best first; empty without scores
  float margin = 0;         // k-th minus (k+1)-th selection value; at most the groups' margin
  float spread = 0;         // of the selection values over the experts, as in SpreadOf
  bool tied = false;        // not finite, or the recorded precision does not determine the choice
  bool zero_gates = false;  // every gate is zero, although no record shows that the token was
                            // dropped
  // The scores of all experts as recorded. Empty but for the first tokens (by hash) of a side with
  // a bias or a group limit.
  std::vector<float> row;
  float log_sum = 0;  // log of the sum of exp(score), for scores recorded before the function
  // Neither `row` nor `log_sum`: see TrainInferRuns::Persist.
  void Persist(Archive& a) { a(key, chosen, gates, ranked, margin, spread, tied, zero_gates); }
};

// The positions of one sequence's rows.
struct Extent {
  int64_t rows = 0;
  int64_t first = 0;
  int64_t last = 0;
  void Persist(Archive& a) { a(rows, first, last); }
};

// The rule by which a side selects from its recorded scores.
struct RecordedRule {
  bool scores = false;   // scores were recorded
  bool logits = false;   // before the score function
  int32_t function = 0;  // ScoreFunction as configured
  int32_t dtype = 0;     // of the recorded scores
  int32_t groups = 0;    // 0: no limit
  int32_t top_groups = 0;
  int32_t group_score = 0;
  std::vector<double> bias;  // empty if none, or equal for all experts
  bool plain() const { return bias.empty() && groups == 0; }
  bool operator==(const RecordedRule&) const = default;
  void Persist(Archive& a) {
    a(scores, logits, function, dtype, groups, top_groups, group_score, bias);
  }
};

// Movable. Bounded: the `max_tokens` rows with the lowest key hashes are kept. These are the same
// rows on both sides in any order of arrival.
struct RoutedSide {
  int32_t experts = 0;
  int32_t top_k = 0;
  std::string kind;     // kind of the values: "logits", "scores", ...; empty if there are none
  std::string blocked;  // "short-id: sentence" if this side cannot be joined
  std::vector<RoutedToken> tokens;  // sorted by key, distinct
  std::map<int64_t, Extent> sequences;
  uint64_t rows = 0;         // rows seen, without padding
  uint64_t conflicting = 0;  // rows of one key that were routed differently
  bool whole = true;         // only dumps, which have whole sequences; live samples may not
  uint64_t key = 0;          // key with which ids were redacted; 0 if they are raw
  RecordedRule rule;
  bool one_rule = true;  // every call has `rule`

  // Adds one recorded call. Reads the raw message, so that values that a router's decoder refuses
  // (an index of -1) are visible. `dump` is true if it is not from a live process. `redacted_key`
  // is that of the evidence.
  void Add(const v1::Routing& routing, bool dump, size_t max_tokens, uint64_t redacted_key = 0);
  // Sorts, removes repeats, and cuts to `max_tokens`.
  void Finish(size_t max_tokens);
  size_t bytes() const;
  // TrainInferRuns stores the key, the rule, one_rule and the rows, because older versions have
  // only the rest.
  void Persist(Archive& a) {
    a(experts, top_k, kind, blocked, tokens, sequences, rows, conflicting, whole);
  }
  void PersistRule(Archive& a) {
    a(rule, one_rule);
    for (RoutedToken& t : tokens) a(t.row, t.log_sum);
  }
};

// Returns the deviation that a normal distribution would have, from the quartiles, which neither
// long tails nor masked experts (not finite) change. If half of the values are equal, uses the mean
// distance to the median. If there are fewer than two values, returns 0. Reorders its argument.
// Pure, thread-safe.
double SpreadOf(std::vector<double>& values);

}  // namespace plumbline::analysis
