// Measures how far a computed sum is from the exact one, beyond the one unavoidable rounding.
#pragma once

#include <cstdint>
#include <vector>

#include "base/archive.h"
#include "base/dtype.h"
#include "base/exact_sum.h"

namespace plumbline::analysis {

// The result of one sampled element.
struct SumError {
  enum class Kind {
    kJudged,   // e is used
    kZeroSum,  // the exact sum is 0, so e has no direction; only used in rms and misround rate
    kAside,    // the sum, its rounding or the result is not finite: nothing can be measured
  };
  Kind kind = Kind::kAside;
  // (y - round_out(s)) / max(ulp(s), ulp(sqrt(sum x^2))) * sign(s), ulp of `out`, unclipped.
  // Positive means too large in magnitude. The floor bounds the error of cancelling sums. For a
  // zero sum it is (y - 0) / floor, and its sign has no meaning.
  double e = 0;
  bool misrounded = false;  // y differs from round_out(s); zeros of either sign are equal
};

// Returns the error of `y`, the computed result (of s / divisor if an average divides inside the
// sum; divisor > 0). `s` is the exact sum of the addends, all finite. `sum_squares` is that of the
// addends before the division; fp64 is accurate enough. `out` is the dtype of the result. If y,
// round_out(s) or sum_squares is not finite, the sample is set aside. Pure.
SumError ErrorOf(double y, const ExactSum& s, double sum_squares, DType out, uint32_t divisor = 1);

// Returns the factor on e, and the name of the unit. Sums kept in f32 or f64 are judged in ulp of
// bf16, in which gradients are used; the ulp of f32 or f64 is irrelevant.
double BiasUnitScale(DType out);
const char* BiasUnit(DType out);  // "ulp" or "bf16 ulp"

// The samples of one step and site, or of one call of a collective.
struct SumErrors {
  std::vector<double> judged;    // e, in the order in which the samples were drawn
  std::vector<double> zero_sum;  // e of the zero sums
  uint64_t misrounded = 0;       // among both
  // Sum of the squared sizes of groups of judged samples that share their addends, and so their
  // error; 0 if no two do.
  double alike = 0;
  uint64_t aside = 0;

  void Take(const SumError& error);
  void TakeAside() { ++aside; }  // a non-finite addend
  uint64_t drawn() const { return judged.size() + zero_sum.size() + aside; }
};

// The part of its addends that a running sum lost. An addend is lost if the sum did not move: after
// == before and x != 0. Non-finite values are ignored.
struct LostMass {
  uint64_t adds = 0;  // number of non-zero addends
  uint64_t lost = 0;  // of `adds`: those lost
  double mass = 0;    // sum |x|
  double lost_mass = 0;
  void Persist(Archive& a) { a(adds, lost, mass, lost_mass); }

  void Take(double before, double x, double after);
  void Add(const LostMass& other);
  double lost_share() const;  // lost / adds; NaN without adds
  double mass_share() const;  // lost_mass / mass; NaN without mass
};

}  // namespace plumbline::analysis
