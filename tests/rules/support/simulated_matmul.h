// Matrix products computed one operation at a time by exact sums and one rounding each: the
// reference for the replay machine, and data that distinguish arithmetics.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "analysis/product/model.h"
#include "plumbline/v1/evidence.pb.h"
#include "rules/analysis_names.h"

namespace plumbline::rules::testing {

enum class Values {
  kNormal,      // both factors standard normal
  kPositive,    // both |normal| + .1: sums grow
  kSpread,      // exponents spread over the dtype's range, as far as products stay finite
  kCancelling,  // the second half cancels most of the first
  kSubnormal,   // around the smallest normal value of the dtype
  kFilled,      // normal, with a deviation of a third of the dtype's largest value, cut at it
  kIntegers,    // small integers: every sum is exact
};

struct MatmulSpec {
  int samples = 64;
  int inner = 128;
  DType input = DType::kBF16;
  DType output = DType::kF32;
  Values values = Values::kNormal;
  bool addend = false;
  uint64_t seed = 1;
};

struct SimulatedMatmul {
  MatmulSpec spec;
  std::vector<double> a, b;  // [m,K]
  std::vector<double> c, d;  // [m]; c empty without an addend

  const double* RowA(int i) const {
    return &a[static_cast<size_t>(i) * static_cast<size_t>(spec.inner)];
  }
  const double* RowB(int i) const {
    return &b[static_cast<size_t>(i) * static_cast<size_t>(spec.inner)];
  }
  double Addend(int i) const { return c.empty() ? 0 : c[static_cast<size_t>(i)]; }
  v1::Matmul Evidence() const;
};

// Returns factors and addends only; d is empty.
SimulatedMatmul Factors(const MatmulSpec& spec);
// Sets d by the model's arithmetic.
SimulatedMatmul Simulate(const MatmulSpec& spec, const MatmulModel& model);
// Sets d by any arithmetic on K exact products and the addend; the result is stored to nearest.
using DotFunction = std::function<double(const std::vector<double>& products, double c)>;
SimulatedMatmul Simulate(const MatmulSpec& spec, const DotFunction& dot);

// Returns the finished sum by the model's definition, before it is stored.
double ReferenceSum(const MatmulModel& model, const double* a, const double* b, int inner,
                    DType input, double c);

}  // namespace plumbline::rules::testing
