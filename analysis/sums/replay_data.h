// Random addends to replay: easy, spread, cancelling and tiny ones.
#pragma once

#include <vector>

#include "analysis/sums/random.h"
#include "analysis/sums/target.h"

namespace plumbline::sums {

struct Addends {
  std::vector<double> a;
  std::vector<double> b;  // ones where there are no products
};

// Sample k of a fixed rotation of distributions: normal; positive (coherent); exponents spread over
// 40 binades; pairs that cancel but for a rest; subnormal and least normal numbers; three
// scales of which the larger two cancel exactly (what compensated sums lose). Values are
// representable in the target's input, and no sum of them overflows the output.
Addends DrawAddends(const Target& target, int k, Random* random);
inline constexpr int kDistributions = 6;

}  // namespace plumbline::sums
