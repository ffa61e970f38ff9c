// Could stochastic rounding have made this update? Under it most elements of a small update do not
// move either, but those that move make up for them: nothing is lost on average, and nobody is to
// be accused.
#pragma once

#include "analysis/sample/sample.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::rules {

// The natural logarithm of an upper bound on the chance that stochastic rounding applied as little
// as was seen. Two bounds, of which the smaller counts:
//  - of the sample: Chernoff's, inf over t of t*S + sum ln E exp(-t X_i), S the change applied
//  along
//    the intended one, X_i = (k + B) ulp with |intended| = (k + f) ulp and P(B = 1) = f;
//  - of the whole tensor: elements that differ from the nearest value, each with probability
//    min(f, 1 - f), their mean taken from the sample: ln P(N <= n) <= n - mu + n ln(mu / n).
double LogChanceIfStochastic(const UpdateCase& sample, const v1::UpdateSummary& summary);

}  // namespace plumbline::rules
