// Tests whether the two sides select by different rules (a balancing bias or a group limit on one
// side only). Applies the recorded rules of both sides to the scores of one side. Pure,
// thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "analysis/routing/train_infer/side.h"
#include "base/archive.h"

namespace plumbline::analysis {

struct RuleDifference {
  std::string parts;       // "bias", "groups", "bias and groups", "score function"; empty: none
  std::string text;        // which side has which part
  bool one_sided = false;  // one side has a part that the other lacks
  uint64_t tokens = 0;     // tokens of which one side's scores decide the choice by either rule
  uint64_t moved = 0;      // those of `tokens` for which the rules choose different experts
  // Number of `moved` for which each side chose as its own rule does with these scores. 0 if a
  // recorded choice contradicts the side's own rule and scores, because then that rule was not
  // used.
  uint64_t shown = 0;
  RoutedToken train, infer;  // an example; not persisted

  uint64_t alike = 0;  // of the moved: the other side chose as this side's rule does
  // True if the choices prove that the rules differ. If the other side used this side's rule
  // without recording it, and choices differed only by rounding errors, `alike` would be the larger
  // number. The choices must give 20 bits against that.
  bool proved() const;
  // RoutingComparison keeps the example (train, infer).
  void Persist(Archive& a) { a(parts, text, one_sided, tokens, moved, shown, alike); }
};

RuleDifference CompareRules(const RoutedSide& train, const RoutedSide& infer);

// Returns true if one side recorded logits and the other one scores, and the score function is
// known: then both can be expressed as logits.
bool SameButForFunction(const RoutedSide& train, const RoutedSide& infer);
// Returns the side with its values as logits: of a softmax up to a constant of the row. Call if
// SameButForFunction.
RoutedSide InLogits(const RoutedSide& side, const RoutedSide& other);

}  // namespace plumbline::analysis
