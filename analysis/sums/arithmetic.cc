#include "analysis/sums/arithmetic.h"

#include <bit>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "analysis/sums/target.h"
#include "base/real.h"

namespace plumbline::sums {
namespace {

constexpr const char* kRoundings[] = {"nearest-even", "nearest-away", "toward-zero", "down", "up"};
constexpr const char* kKinds[] = {"sum", "dot", "gemm", "all-reduce"};

// There is no wider double for f64, so the tail decides between the neighbours.
double RoundDouble(const Exact& x, RoundingMode mode) {
  const double h = x.head;
  if (x.tail == 0 || !std::isfinite(h)) return h;
  const bool grows = (x.tail > 0) == (h > 0);  // |exact| > |head|
  const double beyond = std::nextafter(h, x.tail > 0 ? kInfinity : -kInfinity);
  switch (mode) {
    case RoundingMode::kNearestEven:
      return h;
    case RoundingMode::kNearestAway:
      return grows && 2 * std::abs(x.tail) == std::abs(beyond - h) ? beyond : h;
    case RoundingMode::kTowardZero:
      return grows ? h : beyond;
    case RoundingMode::kDown:
      return x.tail < 0 ? beyond : h;
    case RoundingMode::kUp:
      return x.tail > 0 ? beyond : h;
  }
  return h;
}

// Returns head + tail rounded to odd: if the tail is not zero, the neighbouring double whose last
// bit is odd. Rounding it to at most 51 bits gives the same as rounding the exact value, in every
// mode.
double RoundedToOdd(const Exact& x) {
  if (x.tail == 0 || !std::isfinite(x.head)) return x.head;
  const auto bits = std::bit_cast<uint64_t>(x.head);
  if ((bits & 1) != 0) return x.head;
  const bool grows = (x.tail > 0) == (x.head > 0);
  return std::bit_cast<double>(grows ? bits + 1 : bits - 1);
}

}  // namespace

const char* KindName(Kind kind) { return kKinds[static_cast<int>(kind)]; }

bool ParseKind(const std::string& name, Kind* kind) {
  for (int i = 0; i < 4; ++i) {
    if (name == kKinds[i]) {
      *kind = static_cast<Kind>(i);
      return true;
    }
  }
  return false;
}

const char* RoundingName(RoundingMode mode) { return kRoundings[static_cast<int>(mode)]; }

SumFormat SumFormatOf(DType t) {
  const FloatFormat f = FormatOf(t);
  return {f.precision, f.min_exponent, f.max_exponent};
}

SumFormat SumFormatOfPrecision(int precision) {
  for (const DType t : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    if (FormatOf(t).precision == precision) return SumFormatOf(t);
  }
  SumFormat format = SumFormatOf(precision > 24 ? DType::kF64 : DType::kF32);
  format.precision = precision;
  return format;
}

std::string SumFormatName(const SumFormat& format) {
  for (const DType t : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    if (SumFormatOf(t) == format) return DTypeName(t);
  }
  return absl::StrCat(format.precision, "-bit");
}

double RoundBits(double x, const SumFormat& format, RoundingMode mode) {
  if (!std::isfinite(x) || x == 0 || format.precision >= 53) return x;
  if (mode == RoundingMode::kNearestEven && format == SumFormat{}) return static_cast<float>(x);
  const int field = static_cast<int>((std::bit_cast<uint64_t>(x) >> 52) & 0x7ff);
  const int e = std::max(field - 1023, format.min_exponent);
  const double unit = PowerOfTwo(e - format.precision + 1);
  const double q = std::abs(x) / unit;  // below 2^precision: exact
  const auto whole = static_cast<int64_t>(q);
  const bool up = internal::RoundsUp(q - static_cast<double>(whole), (whole & 1) != 0, x < 0, mode);
  const double r = static_cast<double>(whole + (up ? 1 : 0)) * unit;
  const double most = std::ldexp(2 - std::ldexp(1.0, 1 - format.precision), format.max_exponent);
  if (!(r > most)) return x < 0 ? -r : r;
  const bool stops = mode == RoundingMode::kTowardZero ||
                     mode == (x < 0 ? RoundingMode::kUp : RoundingMode::kDown);
  return std::copysign(stops ? most : kInfinity, x);
}

Exact SumOf(double a, double b) {
  const double s = a + b;
  if (!std::isfinite(s)) return {s, 0};
  const double from_b = s - a;
  return {s, (a - (s - from_b)) + (b - from_b)};
}

Exact ProductOf(double a, double b) {
  const double p = a * b;
  return {p, std::isfinite(p) ? std::fma(a, b, -p) : 0};
}

double RoundExact(const Exact& x, const SumFormat& format, RoundingMode mode) {
  if (format.precision >= 53) return RoundDouble(x, mode);
  return RoundBits(RoundedToOdd(x), format, mode);
}

double RoundExact(const ExactSum& x, const SumFormat& format, RoundingMode mode) {
  const double head = x.Value();
  ExactSum rest = x;
  if (std::isfinite(head)) rest.Subtract(head);
  return RoundExact({head, std::isfinite(head) ? rest.Value() : 0}, format, mode);
}

double CutTo(double x, double unit, bool floor) {
  const double q = x / unit;
  return (floor ? std::floor(q) : std::trunc(q)) * unit;
}

double CutInput(double x, DType input, const InputCut& cut) {
  if (cut.bits == 0) return x;
  SumFormat format = SumFormatOf(input);
  format.precision = cut.bits;
  return RoundBits(x, format, cut.rounding);
}

}  // namespace plumbline::sums
