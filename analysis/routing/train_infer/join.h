// Training's and inference's routing of the same tokens of one layer and step, side by side.
#pragma once

#include <cstdint>
#include <string>

#include "analysis/routing/train_infer/side.h"
#include "base/archive.h"
#include "google/protobuf/struct.pb.h"

namespace plumbline::rules {

struct RoutingComparison {
  std::string blocked;   // "short-id: sentence": nothing can be said
  std::string unmarked;  // the same: choices are compared, margins are not
  int32_t experts = 0, top_k = 0;
  uint64_t joined = 0;       // tokens on both sides
  uint64_t compared = 0;     // of these, with k choices on both
  double overlap = 0;        // mean share of the choices that both sides made
  uint64_t flips = 0;        // compared tokens with other sets of experts
  uint64_t order_only = 0;   // the same set in another order
  uint64_t weight_only = 0;  // the same set and order, a gate that differs by more than 1 %
  double largest_gate_difference = 0;
  // Median over tokens of the selection values' difference between the sides, at the experts on
  // the edge of either choice; and between tokens that have nothing to do with each other.
  double difference = 0;
  double unrelated = 0;
  // Median over tokens of the spread of one token's values over the experts, the wider side's.
  double spread = 0;
  uint64_t scored = 0;            // tokens with finite values on both sides
  uint64_t large_flips = 0;       // see below
  double median_flip_margin = 0;  // of the smaller margins of all flips with values; 0 without
  uint64_t sentinels = 0;        // inference recorded -1 where training chose; never the last token
  uint64_t zero_gates = 0;       // every gate zero on one side, not on the other
  uint64_t short_sequences = 0;  // dumps: inference holds other than n or n - 1 of n tokens
  int64_t short_sequence = 0;    // one of these
  int64_t short_rows = 0;
  int64_t short_of = 0;

  // A witness: the first token of a kind.
  struct Pair {
    RoutedToken train;
    RoutedToken infer;
    bool found = false;
    void Persist(Archive& a) { a(train, infer, found); }
  };
  // Flips of tokens that are tied on neither side, whose smaller top-k margin exceeds
  // `factor` * difference; by key.
  std::vector<Pair> large;
  // Tokens that are not known to be routed alike, by key: they enter the layers above differently.
  std::vector<TokenKey> diverged;
  Pair first_sentinel;
  Pair first_zero;

  // The sides' values differ by more than an eighth of their spread, whatever their law: by more
  // than rounding does. |x| of a normal law of deviation 1 has the median 0.6745.
  bool far_apart() const { return difference > 0.6745 / 8 * spread; }

  void Persist(Archive& a) {
    a.Version(3, 3);
    a(blocked, unmarked, experts, top_k, joined, compared, overlap, flips, order_only, weight_only);
    a(largest_gate_difference, difference, unrelated, spread, scored, large_flips,
      median_flip_margin);
    a(sentinels, zero_gates, short_sequences, short_sequence, short_rows, short_of);
    a(large, diverged, first_sentinel, first_zero);
  }
};

RoutingComparison CompareRouting(const RoutedSide& train, const RoutedSide& infer, double factor);

// The share of the choices that score differences of rounding's size move at most, where the scores
// are not recorded and are taken to be nearly normal over the experts: a tenth, or what
// normal scores give whose difference between the sides has a deviation of an eighth of their
// spread. (bf16's relative half step is 1/512 and e4m3's 1/16, of each factor; sums of many average
// such errors out, residual streams add up those of their layers.) With t the score that k of E
// exceed and h = phi(t) / (k/E) the hazard there, the gap between the last expert chosen and the
// first one left out has density k h at 0, and two experts' differences part by a deviation of
// sqrt(2) s: a share h s / sqrt(pi) of the choices moves (less, where s is beyond the gaps). Pure,
// thread-safe.
double MostByRounding(int32_t experts, int32_t top_k);

// What a report says of one step's comparison, and of one pair of tokens.
void DescribeRouting(const RoutingComparison& comparison, google::protobuf::Struct& details);
void DescribePair(const RoutingComparison::Pair& pair, google::protobuf::Struct& witness);

// "3, 5, -1"
std::string ExpertList(const std::vector<int16_t>& experts);

}  // namespace plumbline::rules
