// Additions as machines do them: a format, a rounding, and what of the smaller addend is seen.
#pragma once

#include <optional>
#include <string>

#include "base/exact_sum.h"
#include "base/half.h"

namespace plumbline::sums {

// Where one addition rounds to. Any precision from 2 to 53 bits.
struct SumFormat {
  int precision = 24;
  int min_exponent = -126;
  int max_exponent = 127;
  bool operator==(const SumFormat&) const = default;
};
SumFormat SumFormatOf(DType t);
// The usual format of this many bits (8 bf16, 11 f16, 24 f32, 53 f64), else f32's exponents (f64's
// above 24 bits).
SumFormat SumFormatOfPrecision(int precision);
std::string SumFormatName(const SumFormat& format);  // "f32", "14-bit"

const char* RoundingName(RoundingMode mode);  // "nearest-even", "toward-zero", ...

// x rounded once into `format`.
double RoundBits(double x, const SumFormat& format, RoundingMode mode);

// A value that one double may not hold: head + tail exactly, |tail| <= ulp(head) / 2.
struct Exact {
  double head = 0;
  double tail = 0;
};
Exact SumOf(double a, double b);      // TwoSum (Knuth); exact barring overflow
Exact ProductOf(double a, double b);  // exact barring under- and overflow of f64
double RoundExact(const Exact& x, const SumFormat& format, RoundingMode mode);
double RoundExact(const ExactSum& x, const SumFormat& format, RoundingMode mode);

// Addends brought to the largest exponent e among them and cut to multiples of
// 2^(e - fraction_bits), then added exactly: what tensor cores do, and adders without guard bits.
struct Alignment {
  int fraction_bits = 0;
  bool floor = false;  // cut towards minus infinity; else towards zero
  bool operator==(const Alignment&) const = default;
};
double CutTo(double x, double unit, bool floor);

// An input read with fewer bits than it has (tf32: 11, bf16: 8). 0 bits: read whole.
struct InputCut {
  int bits = 0;
  RoundingMode rounding = RoundingMode::kNearestEven;
  bool operator==(const InputCut&) const = default;
};
double CutInput(double x, DType input, const InputCut& cut);

// What every addition of one function has in common. Formats belong to the nodes of its tree.
struct Arithmetic {
  RoundingMode rounding = RoundingMode::kNearestEven;  // of additions of two values
  std::optional<Alignment> aligned;                    // of additions of two values
  std::optional<Alignment> block;                      // of several values at once; none: exact
  RoundingMode block_rounding = RoundingMode::kNearestEven;
  RoundingMode store = RoundingMode::kNearestEven;  // into the output's format
  InputCut cut_a;
  InputCut cut_b;
  bool flush_inputs = false;   // subnormal inputs read as zero
  bool flush_results = false;  // subnormal results written as zero
};

}  // namespace plumbline::sums
