// The scores by which a router may rank tokens for an expert.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rules/lib/routing_case.h"

namespace plumbline::rules {

// Within one expert's column a bias is constant and a sigmoid monotone: neither makes a new order.
enum class KeyKind {
  kRecorded,       // the scores as recorded
  kSoftmax,        // softmax over all experts
  kSoftmaxChosen,  // softmax over the row's k choices
  kShareOfChosen,  // score (sigmoid of logits) divided by its sum over the k choices
  kProbs,          // the recorded probabilities
};

const char* KeyName(KeyKind kind);

// Key and its carried rounding for one (token, expert).
struct Key {
  double value = 0;
  double tolerance = 0;
};

// The kinds that this case can be ranked by; the likeliest first.
std::vector<KeyKind> KeyKinds(const RoutingCase& c);

// Computes keys; what a row needs (its largest score, sums over its choices) is computed once.
// Borrows the case.
class KeyReader {
 public:
  KeyReader(const RoutingCase& c, KeyKind kind);
  // `rank`: the choice's column where probs are [T,k]. Tolerances are one ulp of each recorded
  // value (twice what rounding to nearest can do), carried through the function to first order,
  // plus two fp32 ulp where a function was computed. Two keys differ when they are further apart
  // than both.
  Key At(int32_t token, int32_t expert, int16_t rank) const;

 private:
  void SumOverChosen();
  void SumOverAll();

  const RoutingCase& case_;
  KeyKind kind_;
  bool logits_;
  std::vector<double> row_max_;
  std::vector<double> row_sum_;
  std::vector<double> row_delta_;  // largest recorded rounding of the row, relative to the function
};

}  // namespace plumbline::rules
