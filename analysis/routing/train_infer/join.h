// Joins training's and inference's routing of the same tokens of one layer and step.
#pragma once

#include <cstdint>
#include <string>

#include "analysis/routing/train_infer/other_rule.h"
#include "analysis/routing/train_infer/side.h"
#include "base/archive.h"
#include "google/protobuf/struct.pb.h"

namespace plumbline::analysis {

struct RoutingComparison {
  std::string blocked;   // "short-id: sentence" if there is no result
  std::string unmarked;  // the same if choices are compared but margins are not
  int32_t experts = 0, top_k = 0;
  uint64_t joined = 0;       // tokens on both sides
  uint64_t compared = 0;     // of `joined`: tokens with k choices on both sides
  double overlap = 0;        // mean share of the choices that both sides made
  uint64_t flips = 0;        // compared tokens with different sets of experts
  uint64_t order_only = 0;   // the same set in another order
  uint64_t weight_only = 0;  // the same set and order, but a gate differs by more than 1 %
  double largest_gate_difference = 0;
  // Median over tokens of the difference of the selection values between the sides, at the experts
  // on the edge of either choice; and the same between unrelated tokens.
  double difference = 0;
  double unrelated = 0;
  // Median over tokens of the spread of one token's values over the experts, on the wider side.
  double spread = 0;
  uint64_t scored = 0;       // tokens with finite values on both sides
  uint64_t large_flips = 0;  // see below
  uint64_t noisy_flips = 0;  // flips with as large a margin that the token's own noise explains
  double median_flip_margin = 0;  // median of the smaller margins of all flips with values; 0 if
                                  // there are none
  uint64_t sentinels = 0;   // inference recorded -1 although training chose; never the last token
  uint64_t zero_gates = 0;  // every gate zero on one side, not on the other
  uint64_t short_sequences = 0;  // dumps: inference has other than n or n - 1 of n tokens
  int64_t short_sequence = 0;    // an example
  int64_t short_rows = 0;
  int64_t short_of = 0;

  // A witness: the first token of a kind.
  struct Pair {
    RoutedToken train;
    RoutedToken infer;
    bool found = false;
    void Persist(Archive& a) { a(train, infer, found); }
  };
  // Flips of tokens that are tied on neither side and whose smaller top-k margin exceeds `factor` *
  // difference; by key. Leaves out a flip if both sides chose by their own values and the
  // differences of the token's other experts explain it.
  std::vector<Pair> large;
  // Tokens that may be routed differently, by key: their inputs to the layers above differ.
  std::vector<TokenKey> diverged;
  Pair first_sentinel;
  Pair first_zero;
  // If one fixed renumbering of the experts maps training's choice to inference's, in every
  // compared token or but for few choices: the number of experts whose number differs, an example,
  // and the share of choices that it maps. Else 0.
  uint64_t renumbered = 0;
  int16_t renumbered_from = 0, renumbered_to = 0;
  double renumbered_fit = 1;
  RuleDifference rules;
  Pair rule_example;

  // True if the sides' values differ by more than an eighth of their spread, for any distribution:
  // more than rounding does. |x| of a normal distribution of deviation 1 has the median 0.6745.
  bool far_apart() const { return difference > 0.6745 / 8 * spread; }

  void Persist(Archive& a) {
    const uint32_t version = a.Version(6, 3);
    a(blocked, unmarked, experts, top_k, joined, compared, overlap, flips, order_only, weight_only);
    a(largest_gate_difference, difference, unrelated, spread, scored, large_flips,
      median_flip_margin);
    a(sentinels, zero_gates, short_sequences, short_sequence, short_rows, short_of);
    a(large, diverged, first_sentinel, first_zero);
    if (version >= 4) a(renumbered, renumbered_from, renumbered_to);
    if (version >= 5) a(rules, rule_example, noisy_flips);
    if (version >= 6) a(renumbered_fit);
  }
};

RoutingComparison CompareRouting(const RoutedSide& train, const RoutedSide& infer, double factor);

}  // namespace plumbline::analysis
