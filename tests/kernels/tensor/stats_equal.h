// Compares two statistics bit by bit.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "kernels/tensor/stats.h"

namespace plumbline {

inline uint64_t Bits(double x) { return std::isnan(x) ? 1 : __builtin_bit_cast(uint64_t, x); }

inline void ExpectSame(const TensorStats& a, const TensorStats& b) {
  EXPECT_EQ(a.dtype, b.dtype);
  EXPECT_EQ(a.count, b.count);
  EXPECT_EQ(a.nan, b.nan);
  EXPECT_EQ(a.pos_inf, b.pos_inf);
  EXPECT_EQ(a.neg_inf, b.neg_inf);
  EXPECT_EQ(a.zero, b.zero);
  EXPECT_EQ(a.subnormal, b.subnormal);
  EXPECT_EQ(Bits(a.min), Bits(b.min)) << a.min << " " << b.min;
  EXPECT_EQ(Bits(a.max), Bits(b.max)) << a.max << " " << b.max;
  EXPECT_EQ(Bits(a.amax), Bits(b.amax));
  EXPECT_EQ(Bits(a.sum), Bits(b.sum)) << a.sum << " " << b.sum;
  EXPECT_EQ(Bits(a.sum_low), Bits(b.sum_low)) << a.sum_low << " " << b.sum_low;
  EXPECT_EQ(Bits(a.sum_squares), Bits(b.sum_squares)) << a.sum_squares << " " << b.sum_squares;
  EXPECT_EQ(Bits(a.sum_squares_low), Bits(b.sum_squares_low));
  EXPECT_EQ(Bits(a.l1), Bits(b.l1)) << a.l1 << " " << b.l1;
  EXPECT_EQ(a.first_exponent, b.first_exponent);
  EXPECT_EQ(a.exponents, b.exponents);
  ASSERT_EQ(a.fits_count, b.fits_count);
  for (size_t i = 0; i < static_cast<size_t>(a.fits_count); ++i) {
    SCOPED_TRACE(testing::Message() << DTypeName(a.fits[i].format) << "/" << a.fits[i].block);
    EXPECT_EQ(a.fits[i].format, b.fits[i].format);
    EXPECT_EQ(a.fits[i].block, b.fits[i].block);
    EXPECT_EQ(a.fits[i].flushed, b.fits[i].flushed);
    EXPECT_EQ(a.fits[i].subnormal, b.fits[i].subnormal);
    EXPECT_EQ(a.fits[i].saturated, b.fits[i].saturated);
  }
  EXPECT_EQ(a.digest_low, b.digest_low);
  EXPECT_EQ(a.digest_high, b.digest_high);
}

}  // namespace plumbline
