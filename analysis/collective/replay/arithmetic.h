// The rounding of a collective: the arithmetic of one candidate, without the order of its sums.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/archive.h"
#include "base/dtype.h"
#include "base/half.h"

namespace plumbline::analysis {

// Rounding of each partial sum. kCut drops the low bits of the f32 sum, which was rounded to
// nearest, like a cast by shifting. It differs from kTowardZero only if f32 has rounded up to a
// value of the format.
enum class HopRounding : uint8_t { kNearest, kTowardZero, kCut };

// The place and form of an average's division. "Multiplied": multiplies by 1/N, rounded to the
// wire's dtype. "Reciprocal": multiplies by 1/N in f32, which looks like a division in 16-bit
// results.
enum class Averaging : uint8_t {
  kNone,
  kPreDivided,
  kPreReciprocal,
  kPreMultiplied,
  kPostDivided,
  kPostReciprocal,
  kPostMultiplied,
};

// Rounding of the result, once. The numbers are stored; kTowardZero and kNearest are those of
// RoundingMode.
enum class StoreRounding : uint8_t { kNearest = 0, kTowardZero = 2, kAwayFromZero = 3 };

// The values whose subnormals become zero: none, results, inputs and results.
enum class Flush : uint8_t { kNone, kResults, kAll };

struct Arithmetic {
  // Inputs are rounded to it, and also 1/N if the arithmetic multiplies by it.
  DType wire = DType::kF32;
  DType partial = DType::kF32;  // every partial sum is rounded to it
  HopRounding rounding = HopRounding::kNearest;
  Averaging averaging = Averaging::kNone;
  Flush flush = Flush::kNone;
  // Used if the partial dtype is wider than the wire. If true, scaled inputs are rounded to the
  // wire before the sum, and the sum is rounded to it before a later division.
  bool through_wire = true;
  DType store = DType::kF32;  // dtype of the result
  StoreRounding store_rounding = StoreRounding::kNearest;
  // Ranks are first summed in groups of this number of neighbours, in `group_partial`, in ascending
  // order.
  int group = 1;
  DType group_partial = DType::kF32;
  bool exact_only = false;  // used only for the exact sum

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

// Returns the name of the rounding: "nearest", "toward-zero" or "away-from-zero". If only the store
// rounds, it is the rounding of the store.
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

// Returns one input in the form in which it enters the sum: rounded to the wire, flushed, scaled.
double EnterSum(const Arithmetic& a, double x, int ranks);
// Returns the result of a finished sum: scaled and stored.
double LeaveSum(const Arithmetic& a, double sum, int ranks);
// Returns the rounding of a result with the sign of `sum`.
RoundingMode StoreMode(const Arithmetic& a, double sum);
// Returns true if LeaveSum does not change the sum.
bool LeavesAsIs(const Arithmetic& a);

// Returns x + y, rounded like one hop. Slow; used in simulations and tests.
double HopSum(const Arithmetic& a, double x, double y);

}  // namespace plumbline::analysis
