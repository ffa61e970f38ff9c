// One side of the comparison of training's routing with inference's: what a layer's recorded calls
// of one step say about each token, reduced to what the join needs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/archive.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::rules {

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
  std::vector<int16_t> chosen;    // [k] as recorded, -1: none recorded
  std::vector<float> gates;       // [k] of `chosen`; empty: not recorded
  std::vector<EdgeScore> ranked;  // the best 2k+4 by selection value, best first; empty: no scores
  float margin = 0;               // k-th less (k+1)-th selection value
  float spread = 0;               // of the selection values over the experts, as SpreadOf has it
  bool tied = false;              // the recorded precision leaves the choice open, or not finite
  bool zero_gates = false;        // every gate is zero, and nothing says that it was dropped
  void Persist(Archive& a) { a(key, chosen, gates, ranked, margin, spread, tied, zero_gates); }
};

// Positions that one sequence's rows hold.
struct Extent {
  int64_t rows = 0;
  int64_t first = 0;
  int64_t last = 0;
  void Persist(Archive& a) { a(rows, first, last); }
};

// Movable. Bounded: the `max_tokens` rows whose keys hash lowest are kept, the same rows on both
// sides whatever order they come in.
struct RoutedSide {
  int32_t experts = 0;
  int32_t top_k = 0;
  std::string kind;                 // what the values are: "logits", "scores", ... ; empty: none
  std::string blocked;              // "short-id: sentence": this side cannot be joined
  std::vector<RoutedToken> tokens;  // sorted by key, distinct
  std::map<int64_t, Extent> sequences;
  uint64_t rows = 0;         // seen, padding left out
  uint64_t conflicting = 0;  // rows of one key that were routed differently
  bool whole = true;         // dumps alone, which hold whole sequences; live samples may not
  uint64_t key = 0;          // that ids were redacted under; 0: they are raw

  // Adds one recorded call; the raw message is read, so that what a router's decoder refuses (an
  // index of -1) is seen here. `dump`: not from a live process. `redacted_key`: the evidence's.
  void Add(const v1::Routing& routing, bool dump, size_t max_tokens, uint64_t redacted_key = 0);
  // Sorts, drops repeats, cuts to `max_tokens`.
  void Finish(size_t max_tokens);
  size_t bytes() const;
  // key is kept by TrainInferRuns: versions before it wrote the rest.
  void Persist(Archive& a) {
    a(experts, top_k, kind, blocked, tokens, sequences, rows, conflicting, whole);
  }
};

// What a normal law's deviation would be, from the quartiles, which neither long tails nor masked
// experts (not finite) move; from the mean distance to the median where half of the values are one.
// 0 for fewer than two. Reorders its argument. Pure, thread-safe.
double SpreadOf(std::vector<double>& values);

}  // namespace plumbline::rules
