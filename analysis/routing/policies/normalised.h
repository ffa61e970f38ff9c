// Scores that hold the batch: normalised over its tokens before they were recorded.
#pragma once

#include "analysis/routing/call/call.h"

namespace plumbline::rules {

// Columns of a softmax over tokens, or of optimal transport, sum to one number, over the call, or
// in every pool, or in every sequence, but for the rounding of the recording. Those of a router
// that scores each token by itself differ by far more: they are taken to be normalised where they
// would agree so well with a chance below 2^-10.
bool NormalisedOverTokens(const RoutingCase& c);

}  // namespace plumbline::rules
