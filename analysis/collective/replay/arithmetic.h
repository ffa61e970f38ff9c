// The rounding of a collective: the arithmetic of one candidate, without the order of its sums.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/archive.h"
#include "base/dtype.h"
#include "base/half.h"

namespace plumbline::analysis {

// Rounding of each partial sum. kCut drops the low bits of the f32 sum (nearest), as a cast by
// shifting does. It differs from kTowardZero only if f32 has rounded up to a value of the format.
enum class HopRounding : uint8_t { kNearest, kTowardZero, kCut };

// Where an average divides. "Multiplied": by 1/N rounded to the wire's dtype. "Reciprocal": by 1/N
// in f32, which looks like a division in 16-bit results.
enum class Averaging : uint8_t {
  kNone,
  kPreDivided,
  kPreReciprocal,
  kPreMultiplied,
  kPostDivided,
  kPostReciprocal,
  kPostMultiplied,
};

// Where subnormals become zero: nowhere, in results, in inputs and results.
enum class Flush : uint8_t { kNone, kResults, kAll };

struct Arithmetic {
  DType wire = DType::kF32;     // inputs are rounded to it, and so is 1/N if it is a multiplier
  DType partial = DType::kF32;  // every partial sum is rounded to it
  HopRounding rounding = HopRounding::kNearest;
  Averaging averaging = Averaging::kNone;
  Flush flush = Flush::kNone;
  // If the partial dtype is wider than the wire: whether scaled inputs are rounded to the wire
  // before the sum, and whether the sum is rounded to it before a later division.
  bool through_wire = true;
  DType store = DType::kF32;  // of the result
  RoundingMode store_rounding = RoundingMode::kNearestEven;
  // Ranks are first summed in groups of this number of neighbours, in `group_partial`, in ascending
  // order.
  int group = 1;
  DType group_partial = DType::kF32;
  bool exact_only = false;  // used for the exact sum only

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

// Returns "nearest" or "toward-zero". If only the store rounds, returns that rounding.
const char* RoundingName(const Arithmetic& a);
// Returns "none", "pre-divided", "pre-multiplied", "post-divided" or "post-multiplied".
const char* AveragingName(Averaging averaging);
const char* FlushName(Flush flush);

// Returns a function that computes acc[i] = round(acc[i] + x[i]) for i < n. T is float for formats
// up to f32, else double.
template <typename T>
using AddBlock = void (*)(T* acc, const T* x, int n);
AddBlock<float> FloatAdder(DType partial, HopRounding rounding, bool flush);
AddBlock<double> DoubleAdder(HopRounding rounding);  // f64

// Returns one input as it enters the sum: rounded to the wire, flushed, scaled.
double EnterSum(const Arithmetic& a, double x, int ranks);
// Returns the result of a finished sum: scaled and stored.
double LeaveSum(const Arithmetic& a, double sum, int ranks);
// Returns true if LeaveSum changes nothing.
bool LeavesAsIs(const Arithmetic& a);

// Returns x + y rounded as one hop rounds it. Slow; for simulations and tests.
double HopSum(const Arithmetic& a, double x, double y);

}  // namespace plumbline::analysis
