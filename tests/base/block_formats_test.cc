// Compares the narrow formats with tables enumerated from their definitions.
#include "base/block_formats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace plumbline {
namespace {

struct Layout {
  const char* name;
  FloatFormat format;
  int exponent_bits, mantissa_bits, bias;
  bool top_is_value;  // the largest exponent holds values (except `nans`), not infinities
  int nans;           // codes at the top that are not values
  double most;
};

// Returns every non-negative finite value, from sign, exponent and mantissa.
std::vector<double> Values(const Layout& l) {
  std::vector<double> values;
  const int exponents = 1 << l.exponent_bits, mantissas = 1 << l.mantissa_bits;
  for (int e = 0; e < exponents; ++e) {
    if (!l.top_is_value && e == exponents - 1) break;
    for (int m = 0; m < mantissas; ++m) {
      if (e == exponents - 1 && m >= mantissas - l.nans) break;
      const double fraction = static_cast<double>(m) / mantissas;
      values.push_back(e == 0 ? std::ldexp(fraction, 1 - l.bias)
                              : std::ldexp(1 + fraction, e - l.bias));
    }
  }
  return values;
}

const Layout kLayouts[] = {
    {"e2m1", kE2M1, 2, 1, 1, true, 0, 6},
    {"e4m3", FormatOf(DType::kE4M3), 4, 3, 7, true, 1, 448},
    {"e5m2", FormatOf(DType::kE5M2), 5, 2, 15, false, 0, 57344},
    {"f16", FormatOf(DType::kF16), 5, 10, 15, false, 0, 65504},
};

TEST(BlockFormats, AValueIsOneOfTheTable) {
  for (const Layout& layout : kLayouts) {
    const std::vector<double> values = Values(layout);
    EXPECT_EQ(values.back(), layout.most) << layout.name;
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_TRUE(IsValueOf(layout.format, values[i])) << layout.name << " " << values[i];
      EXPECT_TRUE(IsValueOf(layout.format, -values[i])) << layout.name << " " << values[i];
      if (i == 0) continue;
      const double between = (values[i - 1] + values[i]) / 2;
      EXPECT_FALSE(IsValueOf(layout.format, between)) << layout.name << " " << between;
    }
    EXPECT_FALSE(IsValueOf(layout.format, 2 * layout.most));
    EXPECT_FALSE(IsValueOf(layout.format, NAN));
    EXPECT_FALSE(IsValueOf(layout.format, INFINITY));
  }
}

TEST(BlockFormats, E2M1CodesAreTheTable) {
  const std::vector<double> values = Values(kLayouts[0]);
  ASSERT_EQ(values.size(), 8u);
  for (uint8_t code = 0; code < 16; ++code) {
    const double value = E2M1Value(code), magnitude = values[code & 7];
    EXPECT_EQ(value, code < 8 ? magnitude : -magnitude);
    EXPECT_EQ(std::signbit(value), code >= 8);
    EXPECT_EQ(E2M1Value(static_cast<uint8_t>(code | 0xf0)), value) << "the high bits are another's";
  }
}

TEST(BlockFormats, E8M0IsAPowerOfTwo) {
  for (int code = 0; code < 255; ++code)
    EXPECT_EQ(E8M0Value(static_cast<uint8_t>(code)), std::ldexp(1.0, code - 127));
  EXPECT_TRUE(std::isnan(E8M0Value(255)));
}

// Compares RoundToFormat with the nearest of all values, at halves and quarters between neighbours.
TEST(BlockFormats, RoundingIsToTheNearestOfTheTable) {
  const std::pair<DType, const Layout*> formats[] = {
      {DType::kE4M3, &kLayouts[1]}, {DType::kE5M2, &kLayouts[2]}, {DType::kF16, &kLayouts[3]}};
  for (const auto& [dtype, layout] : formats) {
    const std::vector<double> values = Values(*layout);
    for (size_t i = 1; i < values.size(); ++i) {
      const double low = values[i - 1], high = values[i], step = high - low;
      const double even = i % 2 == 0 ? high : low;
      for (const double sign : {1.0, -1.0}) {
        EXPECT_EQ(RoundToFormat(sign * (low + step / 4), dtype), sign * low);
        EXPECT_EQ(RoundToFormat(sign * (low + step / 2), dtype), sign * even)
            << layout->name << low;
        EXPECT_EQ(RoundToFormat(sign * (low + 3 * step / 4), dtype), sign * high);
        EXPECT_EQ(RoundToFormat(sign * (low + 3 * step / 4), dtype, RoundingMode::kTowardZero),
                  sign * low);
      }
    }
  }
}

}  // namespace
}  // namespace plumbline
