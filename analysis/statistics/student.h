// Student's t.
#pragma once

namespace plumbline {

// P(T <= t) and its inverse for `freedom` degrees, which need not be a whole number. `freedom` > 0;
// 0 < p < 1. Right to 1e-12 of the result where p is within [1e-9, 1 - 1e-9]. NaN gives NaN.
// Thread-safe.
double StudentCdf(double t, double freedom);
double StudentQuantile(double p, double freedom);

}  // namespace plumbline
