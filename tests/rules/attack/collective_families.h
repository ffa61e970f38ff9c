// One collective as the attack records it.
#pragma once

#include <string>
#include <vector>

#include "tests/rules/attack/arithmetic_families.h"

namespace plumbline::rules::testing {

struct Recorded {
  int kind = 0;  // Kind of values, see Filled.
  int ranks = 8;
  int samples = 128;
  DType input = DType::kBF16;                // The dtype of inputs, output and transfers.
  std::vector<std::vector<double>> columns;  // [m][N]
  std::vector<double> output;                // [m]
  std::vector<std::vector<double>> outputs;  // [N][m]; filled if each rank records its own output
  bool average = false;
  bool wire_stated = true;
  std::string algorithm;
  double postscale = 1;
};

v1::Batch BatchOf(const Recorded& call);

// Returns the stored sum of the addends of one element.
using Sum =
    std::function<double(const std::vector<double>& addends, const Recorded& call, Dice& dice)>;
// Returns `call` with columns of its kind of values and their sums. Kinds: 0 noise, 1 a common part
// plus noise, 2 wide spreads, 3 mostly zeros, 4 few distinct values, 5 the same on every rank.
Recorded Filled(Recorded call, const Sum& sum, Dice& dice);
// Returns the bias of the sum, measured on 2,000 other columns of that kind.
double BiasOf(Recorded call, const Sum& sum);

// Returns a call with random ranks, dtype and number of samples.
Recorded DrawCall(Dice& dice);

// Returns a ring of 4 to 16 ranks with 16-bit noise.
Recorded CleanCall(Dice& dice);

}  // namespace plumbline::rules::testing
