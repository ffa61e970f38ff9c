#include "kernels/core/wide_sum.h"

#include "base/half.h"

namespace plumbline {
namespace {

constexpr int kCount = WideDigits::kCount;

// Propagates carries: all digits in [0, 2^32) except the last, which keeps the sign.
void Normalise(WideDigits* digits) {
  int64_t carry = 0;
  for (int i = 0; i < kCount; ++i) {
    const int64_t value = digits->digit[i] + carry;
    carry = i + 1 < kCount ? value >> 32 : 0;
    digits->digit[i] = i + 1 < kCount ? value & 0xffffffff : value;
  }
}

// Adds digits [first, end) of `from` times `sign`, in [0, 2^32) each; returns the carry out.
int64_t Carried(const WideDigits& from, int sign, int first, int end, WideDigits* to) {
  int64_t carry = 0;
  for (int i = first; i < end; ++i) {
    const int64_t value = sign * from.digit[i] + carry;
    to->digit[i] = value & 0xffffffff;
    carry = value >> 32;
  }
  return carry;
}

template <int kN>
bool AllZero(const int64_t* digits) {
  int64_t any = 0;
  for (int i = 0; i < kN; ++i) any |= digits[i];
  return any == 0;
}

uint64_t BitAt(const WideDigits& digits, int bit) {
  return bit < 0 ? 0 : (static_cast<uint64_t>(digits.digit[bit / 32]) >> (bit % 32)) & 1;
}

bool AnyBelow(const WideDigits& digits, int bit, int first) {
  for (int i = first; i < bit / 32; ++i) {
    if (digits.digit[i] != 0) return true;
  }
  return bit > 0 && (digits.digit[bit / 32] & ((int64_t{1} << (bit % 32)) - 1)) != 0;
}

// Returns bits [from, from + 53) as an integer.
uint64_t Significand(const WideDigits& digits, int from) {
  const auto digit = [&](int i) {
    return static_cast<Uint128>(i < kCount ? static_cast<uint64_t>(digits.digit[i]) : 0u);
  };
  const int i = from / 32;
  const Uint128 bits = digit(i) | digit(i + 1) << 32 | digit(i + 2) << 64;
  return static_cast<uint64_t>(bits >> (from % 32)) & ((uint64_t{1} << 53) - 1);
}

}  // namespace

void WideSum::Propagate() {
  Normalise(&digits_);
  pending_ = 0;
}

void WideSum::Add(double x) {
  const FloatParts parts = PartsOf(x);
  Add(parts.significand, parts.exponent, parts.negative);
}

void WideSum::Add(const WideDigits& digits) {
  Propagate();
  for (int i = 0; i < kCount; ++i) digits_.digit[i] += digits.digit[i];
  Propagate();
}

void WideSum::Add(const WideSum& other) { Add(other.digits_); }

double WideSum::Nearest() const {
  // Most digits are zero.
  constexpr int kStride = 4;
  const int64_t* const all = digits_.digit;
  int first = 0;
  int end = kCount;
  while (first + kStride <= end && AllZero<kStride>(all + first)) first += kStride;
  while (first < end && all[first] == 0) ++first;
  while (end - kStride >= first && AllZero<kStride>(all + end - kStride)) end -= kStride;
  while (end > first && all[end - 1] == 0) --end;
  WideDigits d{};
  int64_t carry = Carried(digits_, 1, first, end, &d);
  const bool negative = carry < 0;
  if (negative) carry = Carried(digits_, -1, first, end, &d);
  for (int i = end; i < kCount && carry != 0; ++i, carry >>= 32) d.digit[i] = carry & 0xffffffff;
  int top = end + 2 < kCount ? end + 2 : kCount - 1;  // two digits hold any carry
  while (top >= first && d.digit[top] == 0) --top;
  if (top < first) return 0;
  const int highest = 32 * top + 63 - __builtin_clzll(static_cast<uint64_t>(d.digit[top]));
  // The unit of the result: 52 bits below the highest, or that of the f64 subnormals.
  constexpr int kLeastUnit = -1074 - WideDigits::kLowestBit;
  const int unit = highest - 52 > kLeastUnit ? highest - 52 : kLeastUnit;
  uint64_t q = Significand(d, unit);
  if (BitAt(d, unit - 1) != 0 && ((q & 1) != 0 || AnyBelow(d, unit - 1, first))) ++q;
  // The leading one of q adds one to the exponent field. A carry of the rounding adds one too.
  const auto field = static_cast<uint64_t>(unit - kLeastUnit);
  const uint64_t bits = field >= 2046 ? 0x7ffull << 52 : (field << 52) + q;
  const double value = __builtin_bit_cast(double, bits);
  return negative ? -value : value;
}

void WideSum::Nearest(double* high, double* low) const {
  *high = Nearest();
  *low = 0;
  if (!IsFiniteValue(*high)) return;
  WideSum rest = *this;
  rest.Add(-*high);
  *low = rest.Nearest();
}

}  // namespace plumbline
