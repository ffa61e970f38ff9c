#include "base/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace plumbline {
namespace {

constexpr int64_t kDigitMask = 0xffffffff;

}  // namespace

void ExactSum::Add(double x) {
  const auto bits = std::bit_cast<uint64_t>(x);
  const int field = static_cast<int>((bits >> 52) & 0x7ff);
  const uint64_t fraction = bits & 0xfffffffffffffull;
  const uint64_t significand = field > 0 ? fraction | (1ull << 52) : fraction;
  // exponent of the significand's last bit
  const int shift = (field > 0 ? field - 1075 : -1074) - kLowest;
  const int offset = shift & 31;
  const auto at = static_cast<size_t>(shift >> 5);
  const uint64_t low = significand << offset;
  const uint64_t high = offset > 0 ? significand >> (64 - offset) : 0;
  const std::array<int64_t, 3> parts = {static_cast<int64_t>(low & kDigitMask),
                                        static_cast<int64_t>(low >> 32),
                                        static_cast<int64_t>(high)};
  const int64_t sign = (bits >> 63) != 0 ? -1 : 1;
  for (size_t i = 0; i < parts.size(); ++i) digits_[at + i] += sign * parts[i];
  if (++pending_ >= kMostPending) Propagate();
}

void ExactSum::Add(const ExactSum& other) {
  if (pending_ + other.pending_ >= kMostPending) {
    Propagate();
    if (other.pending_ >= kMostPending / 2) {
      ExactSum copy = other;
      copy.Propagate();
      return Add(copy);
    }
  }
  for (size_t i = 0; i < kDigits; ++i) digits_[i] += other.digits_[i];
  pending_ += other.pending_ + 1;
}

void ExactSum::Subtract(const ExactSum& other) {
  ExactSum negated = other;
  for (int64_t& digit : negated.digits_) digit = -digit;
  Add(negated);
}

// Brings every digit but the highest into [0, 2^32); the highest carries the sign.
void ExactSum::Propagate() {
  int64_t carry = 0;
  for (size_t i = 0; i + 1 < kDigits; ++i) {
    const int64_t v = digits_[i] + carry;
    digits_[i] = v & kDigitMask;
    carry = v >> 32;
  }
  digits_[kDigits - 1] += carry;
  pending_ = 1;
}

int ExactSum::Sign() const {
  ExactSum proper = *this;
  proper.Propagate();
  if (proper.digits_[kDigits - 1] < 0) return -1;
  const bool zero = std::all_of(proper.digits_.begin(), proper.digits_.end(),
                                [](int64_t digit) { return digit == 0; });
  return zero ? 0 : 1;
}

ExactSum::Magnitude ExactSum::Divided(uint32_t divisor) const {
  Magnitude m;
  ExactSum proper = *this;
  proper.Propagate();
  if (proper.digits_[kDigits - 1] < 0) {
    m.negative = true;
    for (int64_t& digit : proper.digits_) digit = -digit;
    proper.Propagate();
  }
  uint64_t rest = 0;
  for (int i = kDigits - 1; i >= 0; --i) {
    const auto at = static_cast<size_t>(i);
    const uint64_t part = rest << 32 | static_cast<uint64_t>(proper.digits_[at]);
    if (part == 0) continue;
    m.digits[at] = static_cast<uint32_t>(part / divisor);
    rest = part % divisor;
    if (m.top < 0 && m.digits[at] != 0) m.top = 32 * i + std::bit_width(m.digits[at]) - 1;
  }
  m.remainder = rest != 0;
  return m;
}

double ExactSum::RoundTo(DType t, RoundingMode mode, uint32_t divisor) const {
  const Magnitude m = Divided(divisor);
  if (m.top < 0) return 0;
  const FloatFormat f = FormatOf(t);
  const int unit = std::max(m.top + kLowest, f.min_exponent) - f.precision + 1;
  const int shift = unit - kLowest;  // > 0: the smallest unit of any format lies above the lowest
                                     // bit
  const auto bit = [&](int i) { return (m.digits[static_cast<size_t>(i >> 5)] >> (i & 31)) & 1u; };
  uint64_t whole = 0;
  for (int i = m.top; i >= shift; --i) whole = whole << 1 | bit(i);
  bool below_half = m.remainder;
  for (int i = 0; i < (shift - 1) >> 5; ++i) below_half |= m.digits[static_cast<size_t>(i)] != 0;
  for (int i = (shift - 1) & ~31; i < shift - 1; ++i) below_half |= bit(i) != 0;
  const double rest = (bit(shift - 1) != 0 ? 0.5 : 0.0) + (below_half ? 0.25 : 0.0);
  if (internal::RoundsUp(rest, (whole & 1) != 0, m.negative, mode)) ++whole;
  const double r = std::ldexp(static_cast<double>(whole), unit);
  if (r > f.max_finite) return internal::Overflowed(m.negative, t, mode);
  return m.negative ? -r : r;
}

double ExactSum::Ulp(DType t, uint32_t divisor) const {
  const FloatFormat f = FormatOf(t);
  const Magnitude m = Divided(divisor);
  const int top = m.top < 0 ? f.min_exponent : std::max(m.top + kLowest, f.min_exponent);
  return std::ldexp(1.0, top - f.precision + 1);
}

}  // namespace plumbline
