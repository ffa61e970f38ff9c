// Compares the content of sampled sequences, to find halves of one sequence and sequences that were
// seen before. Pure functions; thread-safe. Tensors may be malformed.
#pragma once

#include <cstdint>
#include <optional>

#include "plumbline/v1/evidence.pb.h"

namespace plumbline::analysis {

// Returns true if the halves of two steps have the same tokens. If one side has no ids, compares
// their lengths.
bool SameTokens(const v1::LogprobsSequence& a, const v1::LogprobsSequence& b);

// Returns true if two halves with the same id and step can belong to one sequence. If the text was
// tokenised again, the token ids agree up to some token. If the two sequences are unrelated, they
// agree only by chance.
bool Akin(const v1::LogprobsSequence& a, const v1::LogprobsSequence& b);

// Returns a hash of the ids and the rollout's own values. A later epoch repeats these exactly. If
// they have few nats, a new draw may also repeat them, so the hash then includes the versions of
// the weights, or the step if no versions are recorded.
uint64_t ContentOf(const v1::LogprobsSequence& rollout, int64_t step);

// Returns a hash of only the ids and the rollout's own values, without the sequence's id. If they
// have fewer than 16 tokens or 20 nats, returns nothing, because a new draw may repeat them.
std::optional<uint64_t> DrawOf(const v1::LogprobsSequence& rollout);

}  // namespace plumbline::analysis
