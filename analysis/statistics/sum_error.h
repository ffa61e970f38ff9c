// How far a computed sum is from the exact one, beyond the one rounding that nobody can avoid.
#pragma once

#include <cstdint>
#include <vector>

#include "base/archive.h"
#include "base/dtype.h"
#include "base/exact_sum.h"

namespace plumbline::rules {

// What one sampled element says.
struct SumError {
  enum class Kind {
    kJudged,   // e counts
    kZeroSum,  // the exact sum is 0: e has no direction; counts in rms and misround rate only
    kAside,    // the sum, its rounding or the result is not finite: nothing to measure
  };
  Kind kind = Kind::kAside;
  // (y - round_out(s)) / max(ulp(s), ulp(sqrt(sum x^2))) * sign(s), ulp of `out`, unclipped.
  // Positive: too large in magnitude. The floor keeps cancelling sums from exploding. Of a zero sum
  // (y - 0) / floor, its sign without meaning.
  double e = 0;
  bool misrounded = false;  // y is not round_out(s); zeros of either sign are equal
};

// `y`: the computed result (of s / divisor where an average divides inside the sum; divisor > 0).
// `s`: the exact sum of the addends, all finite. `sum_squares`: of the addends, before the
// division; fp64 is enough. `out`: dtype of the result. A y, round_out(s) or sum_squares that is
// not finite sets the sample aside. Pure.
SumError ErrorOf(double y, const ExactSum& s, double sum_squares, DType out, uint32_t divisor = 1);

// Sums kept in f32 or f64 are judged in ulp of bf16, what gradients are used in: their own ulp is
// of no concern. The factor on e, and the unit's name.
double BiasUnitScale(DType out);
const char* BiasUnit(DType out);  // "ulp" or "bf16 ulp"

// The samples of one step and site (or of one call of a collective).
struct SumErrors {
  std::vector<double> judged;    // e, in the order in which the samples were drawn
  std::vector<double> zero_sum;  // e of the zero sums
  uint64_t misrounded = 0;       // of both
  // Sum of the squared sizes of groups of judged samples that share their addends, and so their
  // error; 0: no two do.
  double alike = 0;
  uint64_t aside = 0;

  void Take(const SumError& error);
  void TakeAside() { ++aside; }  // a non-finite addend
  uint64_t drawn() const { return judged.size() + zero_sum.size() + aside; }
};

// What a running sum lost of its addends. An addend is lost where the sum did not move: after ==
// before and x != 0. Non-finite values are left out.
struct LostMass {
  uint64_t adds = 0;  // of non-zero addends
  uint64_t lost = 0;  // of these
  double mass = 0;    // sum |x|
  double lost_mass = 0;
  void Persist(Archive& a) { a(adds, lost, mass, lost_mass); }

  void Take(double before, double x, double after);
  void Add(const LostMass& other);
  double lost_share() const;  // lost / adds; NaN without adds
  double mass_share() const;  // lost_mass / mass; NaN without mass
};

}  // namespace plumbline::rules
