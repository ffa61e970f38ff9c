// Compares narrow formats with independent references: the compiler's conversions, and double
// arithmetic that enumerates each format's values.
#include "base/half.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/load.h"

namespace plumbline {
namespace {

#ifdef __clang__  // clang 14 has no _Float16 on current x86 processors; the processor converts its
                  // __fp16
using CompilerHalf = __fp16;
#define CONVERTS_HALF __attribute__((target("f16c")))
#else
__extension__ using CompilerHalf = _Float16;
#define CONVERTS_HALF
#endif

float BitsToFloat(uint32_t bits) {
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

CONVERTS_HALF float CompilerF16(uint16_t code) {
  CompilerHalf h;
  std::memcpy(&h, &code, 2);
  return static_cast<float>(h);
}

CONVERTS_HALF uint16_t CompilerF16(float x) {
  const auto h = static_cast<CompilerHalf>(x);
  uint16_t code;
  std::memcpy(&code, &h, 2);
  return code;
}

bool SameFloat(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::memcmp(&a, &b, 4) == 0;
}

// Returns f32 patterns that matter to a narrow format: every exponent and sign with significands
// at, just below and just above every rounding boundary, and random ones.
std::vector<float> InterestingFloats() {
  std::vector<float> out;
  std::mt19937 random(7);
  for (uint32_t high = 0; high < 512; ++high) {
    for (int shift = 8; shift <= 22; ++shift) {
      for (int i = 0; i < 12; ++i) {
        const uint32_t top = (random() << shift) & 0x7fffffu;
        for (uint32_t low : {0u, 1u, (1u << shift) - 1, 1u << (shift - 1), (1u << (shift - 1)) - 1,
                             (1u << (shift - 1)) + 1}) {
          out.push_back(BitsToFloat(high << 23 | ((top + low) & 0x7fffffu)));
        }
      }
    }
  }
  for (int i = 0; i < 200000; ++i) out.push_back(BitsToFloat(random()));
  return out;
}

TEST(F16, EveryCodeDecodesAsTheCompilers) {
  for (uint32_t code = 0; code <= 0xffff; ++code) {
    const auto c = static_cast<uint16_t>(code);
    ASSERT_TRUE(SameFloat(F16ToFloat(c), CompilerF16(c))) << code;
  }
}

TEST(F16, EncodesAsTheCompiler) {
  for (float x : InterestingFloats()) {
    const uint16_t got = FloatToF16(x);
    if (std::isnan(x)) {
      ASSERT_TRUE(std::isnan(F16ToFloat(got)));
    } else {
      ASSERT_EQ(got, CompilerF16(x)) << std::hexfloat << x;
    }
  }
}

TEST(BF16, EveryCodeSurvivesARoundTrip) {
  for (uint32_t code = 0; code <= 0xffff; ++code) {
    const float x = BF16ToFloat(static_cast<uint16_t>(code));
    ASSERT_TRUE(SameFloat(x, BitsToFloat(code << 16)));
    if (!std::isnan(x)) {
      ASSERT_EQ(FloatToBF16(x), code);
    } else {
      ASSERT_TRUE(std::isnan(BF16ToFloat(FloatToBF16(x))));
    }
  }
}

// Finds the nearest value of a format by search over all of its non-negative codes; of two equally
// near, the even code. `past` is the value after the largest finite one.
template <typename Decode>
class Search {
 public:
  Search(Decode decode, uint32_t codes, double past) {
    for (uint32_t c = 0; c < codes; ++c) values_.push_back(decode(c));
    values_.push_back(past);
  }
  // Returns a code; for overflow, the number of codes.
  uint32_t Nearest(double x) const {
    const auto above = std::lower_bound(values_.begin(), values_.end(), x);
    if (above == values_.end()) return static_cast<uint32_t>(values_.size()) - 1;
    const auto high = static_cast<uint32_t>(above - values_.begin());
    if (high == 0 || values_[high] == x) return high;
    const double up = values_[high] - x;
    const double down = x - values_[high - 1];
    if (up != down) return up < down ? high : high - 1;
    return high % 2 == 0 ? high : high - 1;
  }

 private:
  std::vector<double> values_;
};

template <typename Decode, typename Encode>
void CheckAgainstSearch(Decode decode, Encode encode, uint32_t finite_codes, double past,
                        uint32_t sign_bit, uint32_t overflow_code) {
  const Search<Decode> search(decode, finite_codes, past);
  for (float x : InterestingFloats()) {
    if (std::isnan(x)) continue;
    const uint32_t nearest = search.Nearest(std::fabs(static_cast<double>(x)));
    const uint32_t expected =
        (nearest >= finite_codes ? overflow_code : nearest) | (std::signbit(x) ? sign_bit : 0u);
    ASSERT_EQ(static_cast<uint32_t>(encode(x)), expected) << std::hexfloat << x;
  }
}

TEST(BF16, RoundsToTheNearestEven) {
  CheckAgainstSearch([](uint32_t c) { return BF16ToFloat(static_cast<uint16_t>(c)); }, FloatToBF16,
                     0x7f80, std::ldexp(1.0, 128), 0x8000, 0x7f80);
}

TEST(E4M3, RoundsToTheNearestEvenAndOverflowsToNaN) {
  CheckAgainstSearch([](uint32_t c) { return E4M3ToFloat(static_cast<uint8_t>(c)); }, FloatToE4M3,
                     0x7f, 480.0, 0x80, 0x7f);
  EXPECT_EQ(E4M3ToFloat(0x7e), 448.0f);
  EXPECT_EQ(E4M3ToFloat(0x01), 0x1p-9f);
  EXPECT_TRUE(std::isnan(E4M3ToFloat(0xff)));
  EXPECT_TRUE(std::isnan(E4M3ToFloat(FloatToE4M3(INFINITY))));
  EXPECT_TRUE(std::isnan(E4M3ToFloat(FloatToE4M3(NAN))));
}

TEST(E5M2, RoundsToTheNearestEvenAndOverflowsToInfinity) {
  CheckAgainstSearch([](uint32_t c) { return E5M2ToFloat(static_cast<uint8_t>(c)); }, FloatToE5M2,
                     0x7c, 65536.0, 0x80, 0x7c);
  EXPECT_EQ(E5M2ToFloat(0x7b), 57344.0f);
  EXPECT_TRUE(std::isinf(E5M2ToFloat(0xfc)));
  EXPECT_TRUE(std::isnan(E5M2ToFloat(FloatToE5M2(NAN))));
}

TEST(RoundToFormat, AgreesWithTheEncoders) {
  for (float x : InterestingFloats()) {
    const auto same = [&](DType t, float encoded) {
      return SameFloat(static_cast<float>(RoundToFormat(x, t)), encoded);
    };
    ASSERT_TRUE(same(DType::kF32, x));
    ASSERT_TRUE(same(DType::kF16, F16ToFloat(FloatToF16(x)))) << std::hexfloat << x;
    ASSERT_TRUE(same(DType::kBF16, BF16ToFloat(FloatToBF16(x)))) << std::hexfloat << x;
    ASSERT_TRUE(same(DType::kE4M3, E4M3ToFloat(FloatToE4M3(x)))) << std::hexfloat << x;
    ASSERT_TRUE(same(DType::kE5M2, E5M2ToFloat(FloatToE5M2(x)))) << std::hexfloat << x;
  }
}

TEST(RoundToFormat, RoundsDoublesOnceToF32) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 300000; ++i) {
    const double x = __builtin_bit_cast(double, random());
    if (std::isnan(x)) continue;
    ASSERT_TRUE(SameFloat(static_cast<float>(RoundToFormat(x, DType::kF32)), static_cast<float>(x)))
        << std::hexfloat << x;
  }
}

// Tests every mode between each two neighbours of a format: at both, at the middle, and very close
// to these.
template <typename Decode>
void CheckModesBetweenNeighbours(DType t, Decode decode, uint32_t finite_codes) {
  const auto round = [t](double a, RoundingMode mode) { return RoundToFormat(a, t, mode); };
  for (uint32_t code = 0; code + 1 < finite_codes; ++code) {
    const double low = decode(code);
    const double high = decode(code + 1);
    const double middle = low + (high - low) / 2;
    const double even = code % 2 == 0 ? low : high;
    struct Point {
      double at, even, away;
    };
    for (const auto& [at, nearest_even, nearest_away] :
         {Point{std::nextafter(low, high), low, low}, Point{std::nextafter(middle, 0.0), low, low},
          Point{middle, even, high}, Point{std::nextafter(middle, high), high, high},
          Point{std::nextafter(high, 0.0), high, high}}) {
      ASSERT_EQ(round(at, RoundingMode::kNearestEven), nearest_even) << at;
      ASSERT_EQ(round(-at, RoundingMode::kNearestEven), -nearest_even) << at;
      ASSERT_EQ(round(at, RoundingMode::kNearestAway), nearest_away) << at;
      ASSERT_EQ(round(-at, RoundingMode::kNearestAway), -nearest_away) << at;
      ASSERT_EQ(round(at, RoundingMode::kTowardZero), low);
      ASSERT_EQ(round(-at, RoundingMode::kTowardZero), -low);
      ASSERT_EQ(round(at, RoundingMode::kDown), low);
      ASSERT_EQ(round(-at, RoundingMode::kDown), -high);
      ASSERT_EQ(round(at, RoundingMode::kUp), high);
      ASSERT_EQ(round(-at, RoundingMode::kUp), -low);
    }
    for (int mode = 0; mode < 5; ++mode) {
      ASSERT_EQ(round(high, static_cast<RoundingMode>(mode)), high);
      ASSERT_EQ(round(-high, static_cast<RoundingMode>(mode)), -high);
    }
  }
}

TEST(RoundToFormat, EveryModeBetweenAllNeighbours) {
  CheckModesBetweenNeighbours(
      DType::kF16, [](uint32_t c) { return F16ToFloat(static_cast<uint16_t>(c)); }, 0x7c00);
  CheckModesBetweenNeighbours(
      DType::kBF16, [](uint32_t c) { return BF16ToFloat(static_cast<uint16_t>(c)); }, 0x7f80);
  CheckModesBetweenNeighbours(
      DType::kE4M3, [](uint32_t c) { return E4M3ToFloat(static_cast<uint8_t>(c)); }, 0x7f);
  CheckModesBetweenNeighbours(
      DType::kE5M2, [](uint32_t c) { return E5M2ToFloat(static_cast<uint8_t>(c)); }, 0x7c);
}

TEST(RoundToFormat, BeyondTheLargestValueByMode) {
  struct Case {
    DType t;
    double max, tie;  // the largest value, and the tie above it
  };
  for (const auto& [t, max, tie] :
       {Case{DType::kF16, 65504, 65520}, Case{DType::kE5M2, 57344, 61440},
        Case{DType::kBF16, 0x1.fep127, 0x1.ffp127},
        Case{DType::kF32, 0x1.fffffep127, 0x1.ffffffp127}}) {
    for (double x : {std::nextafter(max, INFINITY), tie, 1e300}) {
      const bool to_infinity = x >= tie;
      EXPECT_EQ(RoundToFormat(x, t, RoundingMode::kNearestEven), to_infinity ? INFINITY : max);
      EXPECT_EQ(RoundToFormat(-x, t, RoundingMode::kNearestAway), to_infinity ? -INFINITY : -max);
      EXPECT_EQ(RoundToFormat(x, t, RoundingMode::kTowardZero), max);
      EXPECT_EQ(RoundToFormat(-x, t, RoundingMode::kTowardZero), -max);
      EXPECT_EQ(RoundToFormat(x, t, RoundingMode::kDown), max);
      EXPECT_EQ(RoundToFormat(-x, t, RoundingMode::kDown), -INFINITY);
      EXPECT_EQ(RoundToFormat(x, t, RoundingMode::kUp), INFINITY);
      EXPECT_EQ(RoundToFormat(-x, t, RoundingMode::kUp), -max);
    }
  }
  // e4m3: the tie at 464 rounds to the even 448; away from zero there is only NaN.
  EXPECT_EQ(RoundToFormat(464, DType::kE4M3, RoundingMode::kNearestEven), 448);
  EXPECT_TRUE(std::isnan(RoundToFormat(464, DType::kE4M3, RoundingMode::kNearestAway)));
  EXPECT_TRUE(std::isnan(RoundToFormat(449, DType::kE4M3, RoundingMode::kUp)));
  EXPECT_EQ(RoundToFormat(1e9, DType::kE4M3, RoundingMode::kTowardZero), 448);
}

TEST(Ulp, IsTheDistanceToTheNextValue) {
  for (uint32_t code = 0; code < 0x7bff; ++code) {
    const double a = F16ToFloat(static_cast<uint16_t>(code));
    const double next = F16ToFloat(static_cast<uint16_t>(code + 1));
    ASSERT_EQ(UlpOf(a, DType::kF16), next - a);
    ASSERT_EQ(UlpOf(-a, DType::kF16), next - a);
  }
  for (uint32_t code = 0; code < 0x7f7f; ++code) {
    const double a = BF16ToFloat(static_cast<uint16_t>(code));
    ASSERT_EQ(UlpOf(a, DType::kBF16), BF16ToFloat(static_cast<uint16_t>(code + 1)) - a);
  }
  for (uint32_t code = 0; code < 0x7e; ++code) {
    const double a = E4M3ToFloat(static_cast<uint8_t>(code));
    ASSERT_EQ(UlpOf(a, DType::kE4M3), E4M3ToFloat(static_cast<uint8_t>(code + 1)) - a);
  }
  for (double a : {0.0, 1e-320, 2.3e-308, 0.75, 1.0, 3.5, 1e300}) {
    EXPECT_EQ(UlpOf(a, DType::kF64), std::nextafter(a, INFINITY) - a) << a;
  }
  EXPECT_EQ(UlpOf(0.0, DType::kF32), 0x1p-149);
  EXPECT_EQ(UlpOf(1e-60, DType::kF32), 0x1p-149);
  EXPECT_EQ(UlpOf(1.0, DType::kF32), 0x1p-23);
  EXPECT_TRUE(std::isnan(UlpOf(NAN, DType::kF32)));
  EXPECT_TRUE(std::isinf(UlpOf(-INFINITY, DType::kF32)));
}

TEST(Load, ReadsEveryTypeUnaligned) {
  unsigned char bytes[32] = {};
  const auto put = [&](auto v) { std::memcpy(bytes + 1 + sizeof(v), &v, sizeof(v)); };
  const auto number = [&](DType t) { return LoadDouble(bytes + 1, t, 1); };
  const auto integer = [&](DType t) { return LoadInt64(bytes + 1, t, 1); };
  put(-2.5);
  EXPECT_EQ(number(DType::kF64), -2.5);
  put(1.5f);
  EXPECT_EQ(number(DType::kF32), 1.5);
  put(uint16_t{0x3c00});
  EXPECT_EQ(number(DType::kF16), 1.0);
  put(uint16_t{0x3f80});
  EXPECT_EQ(number(DType::kBF16), 1.0);
  put(uint8_t{0x38});
  EXPECT_EQ(number(DType::kE4M3), 1.0);
  put(uint8_t{0x3c});
  EXPECT_EQ(number(DType::kE5M2), 1.0);
  put(int64_t{-5});
  EXPECT_EQ(integer(DType::kI64), -5);
  put(~uint64_t{0});
  EXPECT_EQ(integer(DType::kU64), INT64_MAX);
  put(int32_t{-7});
  EXPECT_EQ(integer(DType::kI32), -7);
  EXPECT_EQ(integer(DType::kU32), 4294967289);
  put(int16_t{-9});
  EXPECT_EQ(integer(DType::kI16), -9);
  EXPECT_EQ(integer(DType::kU16), 65527);
  put(int8_t{-1});
  EXPECT_EQ(integer(DType::kI8), -1);
  EXPECT_EQ(integer(DType::kU8), 255);
  EXPECT_EQ(integer(DType::kBool), 1);
  EXPECT_EQ(number(DType::kBool), 1);
  EXPECT_TRUE(std::isnan(number(DType::kUnspecified)));
}

}  // namespace
}  // namespace plumbline
