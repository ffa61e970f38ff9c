// Computes a model's result for one sampled element bit for bit, and an upper bound of its distance
// from the exact sum. If rounding cannot bring an element near a boundary, it needs no replay.
#pragma once

#include <span>
#include <vector>

#include "analysis/product/model.h"
#include "analysis/product/terms.h"

namespace plumbline::analysis {

// Not thread-safe (scratch memory).
class MatmulMachine {
 public:
  // Returns the finished sum before it is stored. `c` is the addend, or 0. The model's cut must be
  // that of the terms. If the arithmetic overflows, returns infinity or NaN.
  double Sum(const MatmulModel& model, const MatmulTerms& terms, double c);

  // Sets sums[i] to Sum of `model` with fraction_bits[i], for at most kAlignedLanes of an aligned
  // model.
  void Sums(const MatmulModel& model, const MatmulTerms& terms, double c,
            std::span<const int> fraction_bits, double* sums);

  // Returns the sum as stored in `dtype`.
  static double Store(const MatmulModel& model, double sum, DType dtype) {
    return RoundToFormat(sum, dtype, model.store);
  }
  // Returns D's value of element i: the sum, scaled if the case has a scale, plus the addend if it
  // comes last, stored.
  static double Result(const MatmulModel& model, double sum, const MatmulCase& c, int i);

 private:
  double Run(const MatmulModel& m, const MatmulTerms& t, int first, int last, double start);
  double Sequential(const MatmulModel& m, const MatmulTerms& t, int first, int last, double start);
  double Compensated(const MatmulModel& m, const MatmulTerms& t, double start);
  double Pairwise(const MatmulModel& m, const MatmulTerms& t, int first, int last);
  double Chunked(const MatmulModel& m, const MatmulTerms& t, double start);

  std::vector<double> level_;
};

// Returns an upper bound of |Sum(model, terms, c) - (c + exact)|. If no useful bound is known,
// returns infinity. The derivations are in the code of each case.
double ErrorBound(const MatmulModel& model, const MatmulTerms& terms, double c);

// Return a + b rounded once; b has at most 53 bits, a those of f32.
float AddNearest(float a, double b);
float AddTowardZero(float a, double b);

}  // namespace plumbline::analysis
