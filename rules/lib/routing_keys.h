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

// The key of one (token, expert) alone, for witnesses.
double KeyValue(const RoutingCase& c, KeyKind kind, int32_t token, int32_t expert, int16_t rank);

// What the key of a row's experts is divided by, and how well that is known.
struct KeyScale {
  double max = 0;  // subtracted before exponentials
  double sum = 1;
  double delta = 0;  // largest recorded rounding among the summed
};

// Computes keys; what a row needs is computed once. Borrows the case.
class KeyReader {
 public:
  KeyReader(const RoutingCase& c, KeyKind kind);
  // `rank`: the choice's column where probs are [T,k]. Tolerances are one ulp of each recorded
  // value (twice what rounding to nearest can do), carried through the function to first order,
  // plus two fp32 ulp where a function was computed. Two keys differ when they are further apart
  // than both.
  Key At(int32_t token, int32_t expert, int16_t rank) const;
  // The keys of all c.choices, in their order: several times as fast as At in another order.
  std::vector<Key> OfChoices() const;

 private:
  const RoutingCase& case_;
  KeyKind kind_;
  std::vector<KeyScale> rows_;
};

}  // namespace plumbline::rules
