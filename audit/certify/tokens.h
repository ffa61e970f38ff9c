// Compares the log-probabilities of sequences, token by token.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "audit/certify/side.h"
#include "audit/certify/steps.h"
#include "audit/certify/tally.h"

namespace plumbline::audit {

inline constexpr size_t kHalves = 3;  // rollout, train, behaviour

// A half of A is compared with a half of B.
struct HalfPair {
  size_t a = 0, b = 0;
  std::string name;  // "train", or "rollout-train"
};

// Returns the pairs for two steps: the halves in common; if there are none, the engine's with the
// trainer's. If `one` is set, both steps are one: the engine's half with the trainer's.
std::vector<HalfPair> PairsOf(const HeldStep& a, const HeldStep& b, bool one);

// Returns how many tokens have each half.
std::array<uint64_t, kHalves> TokensByHalf(const HeldStep& step);
// Returns "rollout", "train" or "behaviour".
const char* NameOfHalf(size_t half);

struct TokenContext {
  const std::vector<HalfPair>& pairs;
  CertifiedStep step;
  bool exact_nan = false;  // both sides keep the bits of a NaN; text does not
};

// Compares the sequences of one step, in the order of their ids.
void CompareSequences(const HeldStep& a, const HeldStep& b, const TokenContext& context,
                      Tally* tally);

// Collects what the sequences state about sampling and versions.
void NoteSequences(const HeldStep& step, Environment* environment);

}  // namespace plumbline::audit
