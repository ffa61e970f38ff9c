// Random addends for the replay: ordinary, spread, cancelling and tiny ones.
#pragma once

#include <vector>

#include "analysis/sums/random.h"
#include "analysis/sums/target.h"

namespace plumbline::sums {

struct Addends {
  std::vector<double> a;
  std::vector<double> b;  // ones if there are no products
};

// Draws sample k of a fixed rotation of distributions: normal; positive (coherent); exponents
// spread over 40 binades; pairs that cancel except for a rest; subnormal and smallest normal
// numbers; three scales of which the larger two cancel exactly (which compensated sums lose).
// Values are representable in the target's input, and no sum of them overflows the output.
Addends DrawAddends(const Target& target, int k, Random* random);
inline constexpr int kDistributions = 6;

}  // namespace plumbline::sums
