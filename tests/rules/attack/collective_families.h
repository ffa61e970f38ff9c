// One collective as the attack records it.
#pragma once

#include <string>
#include <vector>

#include "tests/rules/attack/arithmetic_families.h"

namespace plumbline::rules::testing {

struct Recorded {
  int kind = 0;  // of values, see Column
  int ranks = 8;
  int samples = 128;
  DType input = DType::kBF16;                // of inputs and output, and of the wire
  std::vector<std::vector<double>> columns;  // [m][N]
  std::vector<double> output;                // [m]
  std::vector<std::vector<double>> outputs;  // [N][m] where each rank records its own
  bool average = false;
  bool wire_said = true;
  std::string algorithm;
  double postscale = 1;
};

v1::Batch BatchOf(const Recorded& call);

// The sum of one element's addends, as it is stored.
using Sum =
    std::function<double(const std::vector<double>& addends, const Recorded& call, Dice& dice)>;
// Columns of the call's kind of values, and their sums. Kinds: 0 noise, 1 a common part and noise,
// 2 wide spreads, 3 mostly zeros, 4 few distinct values, 5 the same on every rank.
Recorded Filled(Recorded call, const Sum& sum, Dice& dice);
// Of the sum on 2,000 other columns of that kind.
double BiasOf(Recorded call, const Sum& sum);

// Which ranks, which dtype, how many samples.
Recorded DrawCall(Dice& dice);

// A ring of 4 to 16 ranks in 16 bits, of noise.
Recorded CleanCall(Dice& dice);

}  // namespace plumbline::rules::testing
