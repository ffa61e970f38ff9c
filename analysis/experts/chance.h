// Effect of chance on the load of a mixture's experts: N choices, each of one of E experts with
// probability 1/E. Choosing k distinct experts per token spreads less than N = T*k independent
// choices do, so every bound here is conservative.
//
// Pure functions, thread-safe, no clamping: tails are logarithms and may be as small as -1e300.
#pragma once

#include <cstdint>
#include <span>

namespace plumbline::analysis {

// Return ln P(X >= m) and ln P(X <= m), for X binomial with n trials and 0 < p < 1. If it is
// impossible, return -infinity. Terms use the saddle-point form of the binomial probability (C.
// Loader, 2000), summed outwards.
double LogBinomialAtLeast(uint64_t n, double p, uint64_t m);
double LogBinomialAtMost(uint64_t n, double p, uint64_t m);

// Returns ln of an upper bound of P(largest load >= m): E * P(X >= m), at most 1. Loads are
// negatively associated, so the true value is between 1 - (1 - P)^E and this: at one per cent
// 0.00995 and 0.01.
double LogChanceOfLargest(uint64_t choices, uint64_t experts, uint64_t m);

// Returns E[largest load / mean load]. If there are no choices, returns NaN. Uses Poisson loads
// conditioned on their sum (B. Levin, 1981), and for the sum of the truncated ones an Edgeworth
// series of fourth order. Accurate to 1 % for every E >= 2 (tests compare with simulation).
double ExpectedLargestOverMean(uint64_t choices, uint64_t experts);

// A mean over steps and the half-width of its 99 % interval, by the means of ten blocks of steps
// and Student's t with 9 degrees. Valid if steps further apart than a block are independent. If
// there are fewer than ten values, NaN.
struct MeanInterval {
  double mean;
  double half_width;
};
MeanInterval BlockMeanInterval(std::span<const double> values);

// A straight line through values at 0, 1, 2, ... Its slope's standard error is widened by sqrt((1 +
// phi) / (1 - phi)), where phi is the lag-one correlation of the residuals, corrected for its bias.
struct Trend {
  double slope;      // per step
  double deviation;  // standard error of the slope; 0 if the values lie on the line
  bool Rises(double z) const { return slope > 0 && slope > z * deviation; }
};
Trend LinearTrend(std::span<const double> values);

}  // namespace plumbline::analysis
