// Compares the exact sum with MPFR, in which every sum of doubles is exact with enough bits, and
// every rounding is MPFR's own.
#include "base/exact_sum.h"

#include <gtest/gtest.h>
#include <mpfr.h>

#include <cmath>
#include <random>
#include <vector>

namespace plumbline {
namespace {

constexpr DType kFormats[] = {DType::kF64,  DType::kF32,  DType::kF16,
                              DType::kBF16, DType::kE4M3, DType::kE5M2};
constexpr RoundingMode kModes[] = {RoundingMode::kNearestEven, RoundingMode::kNearestAway,
                                   RoundingMode::kTowardZero, RoundingMode::kDown,
                                   RoundingMode::kUp};
constexpr double kMax = 1.7976931348623157e308;
constexpr double kLeast = 4.9406564584124654e-324;

// An exact sum of up to 2^64 doubles: 2,098 bits and space for carries.
class Reference {
 public:
  Reference() {
    mpfr_init2(sum_, 2400);
    mpfr_set_zero(sum_, 1);
  }
  ~Reference() { mpfr_clear(sum_); }
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;

  void Add(double x) { EXPECT_EQ(mpfr_add_d(sum_, sum_, x, MPFR_RNDN), 0) << "inexact reference"; }
  int Sign() const { return mpfr_sgn(sum_); }

  // Returns sum / divisor rounded to `t` by MPFR; values beyond its largest according to IEEE 754,
  // 7.4.
  double Round(DType t, RoundingMode mode, uint32_t divisor) const {
    const double value = mode == RoundingMode::kNearestAway ? NearestAway(t, divisor)
                         : mode == RoundingMode::kNearestEven
                             ? Unbounded(t, divisor, MPFR_RNDN)
                             : Unbounded(t, divisor,
                                         mode == RoundingMode::kTowardZero ? MPFR_RNDZ
                                         : mode == RoundingMode::kDown     ? MPFR_RNDD
                                                                           : MPFR_RNDU);
    const double max = FormatOf(t).max_finite;
    if (std::fabs(value) <= max) return value;
    const bool inwards = mode == RoundingMode::kTowardZero ||
                         (mode == RoundingMode::kDown && value > 0) ||
                         (mode == RoundingMode::kUp && value < 0);
    if (inwards) return std::copysign(max, value);
    return t == DType::kE4M3 ? std::nan("") : std::copysign(INFINITY, value);
  }

  // From floor(log2 |sum / divisor|).
  double Ulp(DType t, uint32_t divisor) const {
    const FloatFormat f = FormatOf(t);
    if (mpfr_zero_p(sum_)) return std::ldexp(1.0, f.min_exponent - f.precision + 1);
    mpfr_t y;
    mpfr_init2(y, 2500);
    mpfr_div_ui(y, sum_, divisor, MPFR_RNDZ);
    const long e = static_cast<long>(mpfr_get_exp(y)) - 1;
    mpfr_clear(y);
    return std::ldexp(1.0, static_cast<int>(std::max<long>(e, f.min_exponent)) - f.precision + 1);
  }

 private:
  // Precision and subnormals of `t`, with unlimited exponents.
  double Unbounded(DType t, uint32_t divisor, mpfr_rnd_t mode) const {
    const FloatFormat f = FormatOf(t);
    const mpfr_exp_t emin = mpfr_get_emin();
    mpfr_t y;
    mpfr_init2(y, f.precision);
    mpfr_set_emin(f.min_exponent - f.precision + 2);  // MPFR's significands are in [1/2, 1)
    int inexact = mpfr_div_ui(y, sum_, divisor, mode);
    inexact = mpfr_check_range(y, inexact, mode);
    mpfr_subnormalize(y, inexact, mode);
    const double value = mpfr_get_d(y, MPFR_RNDN);
    mpfr_set_emin(emin);
    mpfr_clear(y);
    return value;
  }

  // MPFR has no such mode with subnormals: round the magnitude toward zero, and take the next one
  // if the rest is half a unit or more.
  double NearestAway(DType t, uint32_t divisor) const {
    const double low = Unbounded(t, divisor, MPFR_RNDZ);
    if (mpfr_zero_p(sum_) || std::isinf(low)) return low;
    const double unit = Ulp(t, divisor);
    mpfr_t tie, half;  // compares (|low| + unit / 2) * divisor with |sum|
    mpfr_init2(tie, 2600);
    mpfr_init2(half, 53);
    mpfr_set_d(tie, std::fabs(low), MPFR_RNDN);
    mpfr_set_d(half, unit, MPFR_RNDN);
    mpfr_div_ui(half, half, 2, MPFR_RNDN);
    mpfr_add(tie, tie, half, MPFR_RNDN);
    mpfr_mul_ui(tie, tie, divisor, MPFR_RNDN);
    const bool up = mpfr_cmpabs(sum_, tie) >= 0;
    mpfr_clear(tie);
    mpfr_clear(half);
    return std::copysign(std::fabs(low) + (up ? unit : 0), mpfr_sgn(sum_));
  }

  mpfr_t sum_;
};

bool Same(double a, double b) { return (std::isnan(a) && std::isnan(b)) || a == b; }

void Compare(const ExactSum& sum, const Reference& reference) {
  ASSERT_EQ(sum.Sign(), (reference.Sign() > 0) - (reference.Sign() < 0));
  for (const uint32_t divisor : {1u, 2u, 3u, 7u, 96u, 1024u, 4294967291u}) {
    for (const DType t : kFormats) {
      ASSERT_EQ(sum.Ulp(t, divisor), reference.Ulp(t, divisor)) << DTypeName(t) << " " << divisor;
      for (const RoundingMode mode : kModes) {
        const double got = sum.RoundTo(t, mode, divisor);
        const double want = reference.Round(t, mode, divisor);
        ASSERT_TRUE(Same(got, want))
            << std::hexfloat << got << " for " << want << " in " << DTypeName(t) << " mode "
            << static_cast<int>(mode) << " divided by " << divisor;
      }
    }
  }
}

void Check(const std::vector<double>& addends) {
  ExactSum sum;
  Reference reference;
  for (double x : addends) {
    sum.Add(x);
    reference.Add(x);
  }
  Compare(sum, reference);
}

double RandomFinite(std::mt19937_64& rng, int low_exponent, int high_exponent) {
  const auto field = static_cast<uint64_t>(
      std::uniform_int_distribution<int>(low_exponent, high_exponent)(rng) + 1023);
  return std::bit_cast<double>((rng() & 0x800fffffffffffffull) | field << 52);
}

TEST(ExactSum, SingleValuesRoundAsMpfrRounds) {
  std::mt19937_64 rng(1);
  for (double x : {0.0,
                   -0.0,
                   1.0,
                   kLeast,
                   -kLeast,
                   2.2250738585072014e-308,
                   kMax,
                   -kMax,
                   65504.0,
                   65519.0,
                   65520.0,
                   448.0,
                   464.0,
                   464.5,
                   479.0,
                   480.0,
                   0x1p-25,
                   0x1.8p-25,
                   0x1p-10,
                   0x1p-149,
                   0x1p-150,
                   0x1.8p-150,
                   3.3895313892515355e38,
                   3.4e38,
                   57344.0,
                   61440.0}) {
    for (double y : {x, -x, std::nextafter(x, INFINITY), std::nextafter(x, 0.0)}) {
      if (std::isfinite(y)) Check({y});
    }
  }
  for (int i = 0; i < 600; ++i) Check({RandomFinite(rng, -1023, 1023)});
  for (int i = 0; i < 600; ++i) Check({RandomFinite(rng, -30, 20)});
}

// A sum close to a tie of the target format: a sum in double would be at the tie, and rounding that
// again would be wrong.
TEST(ExactSum, RoundsOnceAroundEveryKindOfTie) {
  for (const DType t : kFormats) {
    const FloatFormat f = FormatOf(t);
    for (int e : {f.min_exponent - 1, f.min_exponent, 0, f.max_exponent}) {
      const double unit = std::ldexp(1.0, std::max(e, f.min_exponent) - f.precision + 1);
      for (int k : {0, 1, 2, 3}) {
        const double value = std::ldexp(1.0, std::max(e, f.min_exponent)) + k * unit;
        for (double tiny : {0.0, kLeast, -kLeast, 1e-200, -1e-200}) {
          Check({value, unit / 2, tiny});
          Check({-value, -unit / 2, tiny});
          Check({value, tiny});
        }
      }
    }
  }
}

TEST(ExactSum, CancellationLeavesWhatIsLeft) {
  Check({1e308, 1e308, -1e308, -1e308, kLeast});
  Check({kMax, kMax, kMax, -kMax, -kMax, -kMax, -kLeast});
  Check({kMax, 1.0, -kMax});
  Check({1.0, 0x1p-1074, -1.0});
  Check({1e16, 1.0, 1e-16, -1e16, -1.0});
  std::mt19937_64 rng(2);
  for (int i = 0; i < 200; ++i) {
    std::vector<double> addends;
    for (int j = 0; j < 50; ++j) addends.push_back(RandomFinite(rng, -1023, 1023));
    for (int j = 0; j < 50; ++j) addends.push_back(-addends[static_cast<size_t>(j)]);
    if (i % 2 == 0) addends.push_back(RandomFinite(rng, -1023, -900));
    std::shuffle(addends.begin(), addends.end(), rng);
    Check(addends);
  }
}

TEST(ExactSum, BeyondTheLargestDoubleAndBack) {
  Check(std::vector<double>(1000, kMax));
  Check(std::vector<double>(1000, -kMax));
  std::vector<double> back(1000, kMax);
  back.insert(back.end(), 999, -kMax);
  Check(back);
}

TEST(ExactSum, SubnormalsOnly) {
  std::mt19937_64 rng(3);
  for (int i = 0; i < 100; ++i) {
    std::vector<double> addends;
    for (int j = 0; j < 30; ++j)
      addends.push_back(std::bit_cast<double>(rng() & 0x800fffffffffffffull));
    Check(addends);
  }
}

TEST(ExactSum, MillionAddendsOfEveryMagnitude) {
  std::mt19937_64 rng(4);
  ExactSum sum;
  Reference reference;
  for (int i = 0; i < 1000000; ++i) {
    const double x = i % 3 == 0 ? RandomFinite(rng, -1023, 1023) : RandomFinite(rng, -40, 40);
    sum.Add(x);
    reference.Add(x);
  }
  Compare(sum, reference);
}

TEST(ExactSum, SumsOfSums) {
  std::mt19937_64 rng(5);
  ExactSum whole, total;
  for (int i = 0; i < 200; ++i) {
    ExactSum part;
    for (int j = 0; j < 100; ++j) {
      const double x = RandomFinite(rng, -1000, 1000);
      part.Add(x);
      whole.Add(x);
    }
    total.Add(part);
  }
  EXPECT_EQ(total.Value(), whole.Value());
  // Doubling 40 times passes the point where carries must be normalised.
  ExactSum one;
  one.Add(1.0);
  one.Add(-0x1p-1074);
  Reference reference;
  for (int i = 0; i < 40; ++i) one.Add(ExactSum(one));
  reference.Add(0x1p40);
  reference.Add(-0x1p-1034);
  Compare(one, reference);
  total.Subtract(whole);
  EXPECT_EQ(total.Sign(), 0);
  EXPECT_EQ(total.Sign(), 0);
}

TEST(ExactSum, SubtractAndClear) {
  ExactSum sum;
  sum.Add(0.1);
  sum.Subtract(0.3);
  EXPECT_EQ(sum.Sign(), -1);
  EXPECT_EQ(sum.RoundTo(DType::kF32), -0.2f);
  sum.Clear();
  EXPECT_EQ(sum.Sign(), 0);
  EXPECT_EQ(sum.Ulp(DType::kBF16), 0x1p-133);
}

}  // namespace
}  // namespace plumbline
