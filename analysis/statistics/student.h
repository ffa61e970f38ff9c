// Student's t distribution.
#pragma once

namespace plumbline {

// Return P(T <= t) and its inverse for `freedom` degrees, which need not be an integer. freedom >
// 0; 0 < p < 1. If p is within [1e-9, 1 - 1e-9], the relative error is at most 1e-12. NaN gives
// NaN. Thread-safe.
double StudentCdf(double t, double freedom);
double StudentQuantile(double p, double freedom);

// Returns the normal deviate with about the tail probability of t, whose sign it has; for freedom
// >= 1, to three digits far into the tail (Wallace 1959). Thread-safe.
double NormalDeviateOfT(double t, double freedom);

}  // namespace plumbline
