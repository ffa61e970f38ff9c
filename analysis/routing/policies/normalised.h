// Detects scores that depend on the batch: normalised over its tokens before they were recorded.
#pragma once

#include "analysis/routing/call/call.h"

namespace plumbline::analysis {

// Returns true if the columns have equal sums over the call, in every pool, or in every sequence,
// up to the rounding of the recording. A softmax over tokens and optimal transport give such sums.
// If a router scores each token by itself, its columns differ by far more. The probability of such
// agreement must be below 2^-10.
bool NormalisedOverTokens(const RoutingCase& c);

}  // namespace plumbline::analysis
