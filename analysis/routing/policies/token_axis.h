// Detects routers that normalise over the axis of the tokens: batch norm of logits, centring,
// optimal transport, a softmax over the tokens. Then a token's scores depend on later tokens.
#pragma once

#include <string>

#include "analysis/routing/call/call.h"

namespace plumbline::analysis {

struct TokenAxis {
  double bits = 0;           // evidence against scores that depend on one token alone
  std::string text;          // the fact, without a full stop; empty if there is none
  bool repeated = false;     // rows repeat: stored statistics of the same data give the same result
  bool by_position = false;  // normalised among the tokens of one position: no later token is
                             // involved
  std::string Describe() const;
  // True if the scores depend on later tokens.
  bool found(double proof_bits) const { return bits >= proof_bits && !repeated && !by_position; }
};

// Tests if all experts have equal sums of the recorded scores, of their squares, or of their
// exponentials: over the call, in every pool, or in every sequence, up to the rounding of the
// recording and of an iteration.
TokenAxis FindTokenAxis(const RoutingCase& c);

// Replays choices that the rows' own scores do not explain: the best of x(t,e) - log sum exp x(.,e)
// over the call, a pool, or a sequence. If the prices of 32 resamples of the rows also give every
// choice, this is no evidence, because the prices could have been stored.
TokenAxis ReplayTokenSoftmax(const RoutingCase& c);

}  // namespace plumbline::analysis
