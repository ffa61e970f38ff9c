// Compares the content of sampled sequences: which halves can belong to one sequence, and which
// were seen before. Pure, thread-safe. Tensors may be malformed.
#pragma once

#include <cstdint>
#include <optional>

#include "plumbline/v1/evidence.pb.h"

namespace plumbline::analysis {

// Returns true if the halves of two steps have the same tokens. If one side has no ids, compares
// their lengths.
bool SameTokens(const v1::LogprobsSequence& a, const v1::LogprobsSequence& b);

// Returns true if halves of one id and step can belong to one sequence. If text was tokenised
// again, the ids agree up to some token. If ids mean different things on the two sides, they agree
// by chance only.
bool Akin(const v1::LogprobsSequence& a, const v1::LogprobsSequence& b);

// Returns a hash of the ids and the rollout's own values, which a later epoch repeats exactly. If
// these are few nats, new draws repeat them too. Then the versions of the weights are included, or,
// if they are not recorded, the step.
uint64_t ContentOf(const v1::LogprobsSequence& rollout, int64_t step);

// Returns a hash of the ids and the rollout's own values alone, whatever the sequence's id. If they
// are fewer than 16 tokens or 20 nats, new draws repeat them too: returns nothing.
std::optional<uint64_t> DrawOf(const v1::LogprobsSequence& rollout);

}  // namespace plumbline::analysis
