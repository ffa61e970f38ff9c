// What a model gives for one sampled element, bit for bit; and how far it can be from the exact sum
// at most, so that elements which no rounding can bring near a boundary need no replay.
#pragma once

#include <span>
#include <vector>

#include "analysis/product/model.h"
#include "analysis/product/terms.h"

namespace plumbline::rules {

// Not thread-safe (scratch).
class MatmulMachine {
 public:
  // The finished sum, before it is stored. `c`: the addend, 0 where there is none. The model's cut
  // must be that of the terms. Infinite and NaN where the arithmetic overflows.
  double Sum(const MatmulModel& model, const MatmulTerms& terms, double c);

  // sums[i] = Sum of `model` with fraction_bits[i], for at most kAlignedLanes of an aligned model.
  void Sums(const MatmulModel& model, const MatmulTerms& terms, double c,
            std::span<const int> fraction_bits, double* sums);

  // The sum as stored in `dtype`.
  static double Store(const MatmulModel& model, double sum, DType dtype) {
    return RoundToFormat(sum, dtype, model.store);
  }
  // What D holds of element i: the sum, scaled where the case says so, with the addend where it
  // then comes last, stored.
  static double Result(const MatmulModel& model, double sum, const MatmulCase& c, int i);

 private:
  double Run(const MatmulModel& m, const MatmulTerms& t, int first, int last, double start);
  double Sequential(const MatmulModel& m, const MatmulTerms& t, int first, int last, double start);
  double Compensated(const MatmulModel& m, const MatmulTerms& t, double start);
  double Pairwise(const MatmulModel& m, const MatmulTerms& t, int first, int last);
  double Chunked(const MatmulModel& m, const MatmulTerms& t, double start);

  std::vector<double> level_;
};

// |Sum(model, terms, c) - (c + exact)| is at most this; infinity where no bound is known that would
// be of use. Derivations at each case.
double ErrorBound(const MatmulModel& model, const MatmulTerms& terms, double c);

// a + b rounded once: b has at most 53 bits, a those of f32.
float AddNearest(float a, double b);
float AddTowardZero(float a, double b);

}  // namespace plumbline::rules
