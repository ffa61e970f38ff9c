// The elements of one call with their exact sums, and bounds for the errors of computed sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "analysis/collective/case/case.h"

namespace plumbline::analysis {

using ElementValues = std::vector<double>;
inline double DotProduct(const ElementValues& a, const ElementValues& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

constexpr size_t kFewestOfFactor = 8;  // number of elements that must have the same factor

// One element: the exact result and the bound of its error.
struct SumColumn {
  int32_t sample = -1;
  double exact = 0;
  double mass = 0;  // sum |x|, divided for an average
};

// Returns true if the dtype of the partial sums is known: declared, or at most 16 bits.
bool KnowsWire(const ReductionCase& c);
// Returns the significand bits of the wire dtype. If it is not known, at most those of bf16.
int BoundPrecision(const ReductionCase& c);

// Returns columns with finite inputs whose summed magnitudes stay within the wire's range.
std::vector<SumColumn> SumColumnsOf(const ReductionCase& c);

// The largest possible error of a computed result.
class SumTolerance {
 public:
  SumTolerance(const ReductionCase& c, int precision, bool nearest);
  // Returns the bound of |y - scale * exact|.
  double Of(const SumColumn& column, double scale = 1) const;

 private:
  DType result_;
  double factor_;
  double floor_;
};

// Returns true if all results are within the bound of `scale` times the sum. `y` has one value per
// sample.
bool Fits(const std::vector<SumColumn>& columns, const std::vector<double>& y, double scale,
          const SumTolerance& tolerance);

// Returns the scale that brings the sums closest to y. If there is none, returns 0.
double CommonFactor(const std::vector<SumColumn>& columns, const std::vector<double>& y);

// Returns the root mean square deviation of y from `scale` times the sums, relative to that of y.
double Residual(const std::vector<SumColumn>& columns, const std::vector<double>& y, double scale);

}  // namespace plumbline::analysis
