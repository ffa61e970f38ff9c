// Tests whether stochastic rounding could have made an update. With stochastic rounding, most
// elements of a small update do not move. The elements that move compensate for the others, so
// nothing is lost on average, and the update is correct.
#pragma once

#include "analysis/sample/sample.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::analysis {

// Returns the natural logarithm of an upper bound on the probability that stochastic rounding
// applied as little as was observed. It is the smaller of two bounds:
// - for the sample, Chernoff's: inf over t of t*S + sum ln E exp(-t X_i), where S is the change
//   applied along the intended one, X_i = (k + B) ulp with |intended| = (k + f) ulp and P(B = 1) =
//   f;
// - for the whole tensor: the elements that differ from the nearest value, each with probability
//   min(f, 1 - f), whose mean is taken from the sample: ln P(N <= n) <= n - mu + n ln(mu / n).
double LogChanceIfStochastic(const UpdateCase& sample, const v1::UpdateSummary& summary);

}  // namespace plumbline::analysis
