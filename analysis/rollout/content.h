// What sampled sequences hold, compared: which halves can be of one sequence, which were seen
// before. Pure, thread-safe. Tensors need not be well-formed.
#pragma once

#include <cstdint>

#include "plumbline/v1/evidence.pb.h"

namespace plumbline::rules {

// Do the halves of two steps name the same tokens? Without ids on both sides their lengths speak.
bool SameTokens(const v1::LogprobsSequence& a, const v1::LogprobsSequence& b);

// Can halves of one id and step be of one sequence? Text that was tokenised again agrees up to some
// token; ids that mean different things on the two sides agree by chance alone.
bool Akin(const v1::LogprobsSequence& a, const v1::LogprobsSequence& b);

// What was drawn: the ids and the rollout's own values, which a later epoch repeats to the bit.
// Where these are few nats, fresh draws repeat them too: then the versions of the weights must be
// the same, or, where nobody recorded them, the step.
uint64_t ContentOf(const v1::LogprobsSequence& rollout, int64_t step);

}  // namespace plumbline::rules
