// What chance alone does to the load of a mixture's experts: N choices, each to one of E experts
// with probability 1/E. Choosing k distinct experts a token spreads less than N = T*k independent
// choices do, so that every bound here errs to the side of silence.
//
// Pure functions, thread-safe, no clamping: tails are logarithms and may be as small as -1e300.
#pragma once

#include <cstdint>
#include <span>

namespace plumbline::rules {

// ln P(X >= m) and ln P(X <= m), X binomial of n trials with 0 < p < 1. -infinity where impossible.
// Terms by the saddle-point form of the binomial probability (C. Loader, 2000), summed outwards.
double LogBinomialAtLeast(uint64_t n, double p, uint64_t m);
double LogBinomialAtMost(uint64_t n, double p, uint64_t m);

// ln of an upper bound of P(largest load >= m): E * P(X >= m), at most 1. Loads are negatively
// associated, so the truth is between 1 - (1 - P)^E and this: at one per cent 0.00995 and 0.01.
double LogChanceOfLargest(uint64_t choices, uint64_t experts, uint64_t m);

// E[largest load / mean load]; NaN without choices. From Poisson loads conditioned on their sum
// (B. Levin, 1981), the sum of the truncated ones by an Edgeworth series of fourth order: within
// 1 % for every E >= 2 (tests compare with simulation).
double ExpectedLargestOverMean(uint64_t choices, uint64_t experts);

// A mean over steps and the half-width of its 99 % interval, by the means of ten blocks of steps
// and Student's t with 9 degrees: honest while steps further apart than a block are independent.
// NaN with fewer than ten values.
struct MeanInterval {
  double mean;
  double half_width;
};
MeanInterval BlockMeanInterval(std::span<const double> values);

// A straight line through values at 0, 1, 2, ...; its slope's standard error is widened by
// sqrt((1 + phi) / (1 - phi)), phi the lag-one correlation of the residuals corrected for its bias.
struct Trend {
  double slope;      // per step
  double deviation;  // of the slope; 0 when the values lie on the line
  bool Rises(double z) const { return slope > 0 && slope > z * deviation; }
};
Trend LinearTrend(std::span<const double> values);

}  // namespace plumbline::rules
