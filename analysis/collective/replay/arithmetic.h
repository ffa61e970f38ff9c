// How a collective may round: the arithmetic of one candidate, apart from the order of its sums.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/archive.h"
#include "base/dtype.h"
#include "base/half.h"

namespace plumbline::rules {

// Rounding of each partial sum. kCut: the f32 sum (nearest) with its low bits dropped, as a cast by
// shifting does; differs from kTowardZero only where f32 has rounded up to a value of the format.
enum class HopRounding : uint8_t { kNearest, kTowardZero, kCut };

// Where an average divides. "Multiplied": by 1/N rounded to the wire's dtype. "Reciprocal": by 1/N
// in f32 (a division, for all who look at 16-bit results).
enum class Averaging : uint8_t {
  kNone,
  kPreDivided,
  kPreReciprocal,
  kPreMultiplied,
  kPostDivided,
  kPostReciprocal,
  kPostMultiplied,
};

// Subnormals become zero: never, in results, in inputs and results.
enum class Flush : uint8_t { kNone, kResults, kAll };

struct Arithmetic {
  DType wire = DType::kF32;     // inputs are rounded to it; 1/N too, where it is a multiplier
  DType partial = DType::kF32;  // every partial sum is rounded to it
  HopRounding rounding = HopRounding::kNearest;
  Averaging averaging = Averaging::kNone;
  Flush flush = Flush::kNone;
  // A partial dtype wider than the wire: are scaled inputs rounded to the wire before the sum, is
  // the sum before a division after it?
  bool through_wire = true;
  DType store = DType::kF32;  // of the result
  RoundingMode store_rounding = RoundingMode::kNearestEven;
  // Ranks are first summed in groups of so many neighbours, in `group_partial`, in ascending order.
  int group = 1;
  DType group_partial = DType::kF32;
  bool exact_only = false;  // stands for the exact sum alone

  void Persist(Archive& a) {
    a(wire, partial, rounding, averaging, flush, through_wire, store, store_rounding, group);
    a(group_partial, exact_only);
  }

  bool wide() const { return FormatOf(partial).precision > FormatOf(wire).precision; }
  bool pre() const {
    return averaging == Averaging::kPreDivided || averaging == Averaging::kPreReciprocal ||
           averaging == Averaging::kPreMultiplied;
  }
  bool post() const { return averaging != Averaging::kNone && !pre(); }
};

// "nearest", "toward-zero"; where only the store rounds, that one.
const char* RoundingName(const Arithmetic& a);
// "none", "pre-divided", "pre-multiplied", "post-divided", "post-multiplied".
const char* AveragingName(Averaging averaging);
const char* FlushName(Flush flush);

// acc[i] = round(acc[i] + x[i]) for i < n. T is float for formats up to f32, else double.
template <typename T>
using AddBlock = void (*)(T* acc, const T* x, int n);
AddBlock<float> FloatAdder(DType partial, HopRounding rounding, bool flush);
AddBlock<double> DoubleAdder(HopRounding rounding);  // f64

// One input as it enters the sum: rounded to the wire, flushed, scaled.
double EnterSum(const Arithmetic& a, double x, int ranks);
// What becomes of a finished sum: scaled, stored.
double LeaveSum(const Arithmetic& a, double sum, int ranks);
// LeaveSum changes nothing.
bool LeavesAsIs(const Arithmetic& a);

// The sum of a + b rounded as one hop rounds it. Slow; for simulations and tests.
double HopSum(const Arithmetic& a, double x, double y);

}  // namespace plumbline::rules
