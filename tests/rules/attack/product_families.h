// One product as the attack records it.
#pragma once

#include <string>
#include <vector>

#include "tests/rules/attack/arithmetic_families.h"

namespace plumbline::rules::testing {

struct Product {
  int samples = 64;
  int inner = 128;
  DType input = DType::kBF16;
  DType output = DType::kF32;
  std::vector<double> a, b;  // [m,K]
  std::vector<double> c, d;  // [m]
  std::string input_format, output_rounding;
  double scale = 0;
  std::vector<double> row_scale;  // [m]
  int block = 0;
  std::vector<double> a_scale, b_scale;  // [m, blocks]

  double At(const std::vector<double>& side, int i, int k) const {
    return side[static_cast<size_t>(i) * static_cast<size_t>(inner) + static_cast<size_t>(k)];
  }
};

v1::Batch BatchOf(const Product& product);

// Returns a product with sequential f32 sums. d is not yet rounded to the output dtype.
Product CleanProduct(Dice& dice);

}  // namespace plumbline::rules::testing
