// One collective as the attack records it.
#pragma once

#include <string>
#include <vector>

#include "tests/rules/attack/arithmetic_families.h"

namespace plumbline::rules::testing {

struct Recorded {
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

// A ring of 4 to 16 ranks in 16 bits, of noise.
Recorded CleanCall(Dice& dice);

}  // namespace plumbline::rules::testing
