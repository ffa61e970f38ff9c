// Additions as hardware does them: a format, a rounding mode, and the bits of the smaller addend
// that are used.
#pragma once

#include <optional>
#include <string>

#include "base/exact_sum.h"
#include "base/half.h"

namespace plumbline::sums {

// The format that one addition rounds to. Any precision from 2 to 53 bits.
struct SumFormat {
  int precision = 24;
  int min_exponent = -126;
  int max_exponent = 127;
  bool operator==(const SumFormat&) const = default;
};
SumFormat SumFormatOf(DType t);
// Returns the usual format with this many bits (8 bf16, 11 f16, 24 f32, 53 f64). For other
// precisions, uses f32's exponents (f64's above 24 bits).
SumFormat SumFormatOfPrecision(int precision);
std::string SumFormatName(const SumFormat& format);  // "f32", "14-bit"

const char* RoundingName(RoundingMode mode);  // "nearest-even", "toward-zero", ...

// Returns x rounded once into `format`.
double RoundBits(double x, const SumFormat& format, RoundingMode mode);

// A value that may not fit one double: head + tail exactly, |tail| <= ulp(head) / 2.
struct Exact {
  double head = 0;
  double tail = 0;
};
Exact SumOf(double a, double b);      // TwoSum (Knuth); exact unless it overflows
Exact ProductOf(double a, double b);  // exact unless f64 underflows or overflows
double RoundExact(const Exact& x, const SumFormat& format, RoundingMode mode);
double RoundExact(const ExactSum& x, const SumFormat& format, RoundingMode mode);

// Addends are aligned to their largest exponent e and cut to multiples of 2^(e - fraction_bits),
// then added exactly. Tensor cores and adders without guard bits do this.
struct Alignment {
  int fraction_bits = 0;
  bool floor = false;  // cut towards minus infinity if true, else towards zero
  bool operator==(const Alignment&) const = default;
};
double CutTo(double x, double unit, bool floor);

// An input read with fewer bits than it has (tf32: 11, bf16: 8). 0 bits: all are read.
struct InputCut {
  int bits = 0;
  RoundingMode rounding = RoundingMode::kNearestEven;
  bool operator==(const InputCut&) const = default;
};
double CutInput(double x, DType input, const InputCut& cut);

// The properties common to all additions of one function. Formats belong to the nodes of its tree.
struct Arithmetic {
  RoundingMode rounding = RoundingMode::kNearestEven;  // of additions of two values
  std::optional<Alignment> aligned;                    // of additions of two values
  std::optional<Alignment> block;  // of several values at once; nullopt if exact
  RoundingMode block_rounding = RoundingMode::kNearestEven;
  RoundingMode store = RoundingMode::kNearestEven;  // rounding into the output's format
  InputCut cut_a;
  InputCut cut_b;
  bool flush_inputs = false;   // subnormal inputs are read as zero
  bool flush_results = false;  // subnormal results are written as zero
};

}  // namespace plumbline::sums
