// Compares the update check with exact arithmetic: each sum before + intended in MPFR, rounded
// once.
#include "kernels/update/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/load.h"
#include "kernels/update/core.h"
#include "tests/kernels/device/values_case.h"
#include "tests/kernels/tensor/exact_reference.h"

namespace plumbline {
namespace {

// before + intended: rounded once, with its ulp and its sign.
struct Rounded {
  double value;
  double ulp;
  int sign;
};

Rounded RoundOnce(double before, double intended, DType t) {
  const FloatFormat f = FormatOf(t);
  mpfr_t s;
  mpfr_init2(s, 2300);
  mpfr_set_d(s, before, MPFR_RNDN);
  mpfr_add_d(s, s, intended, MPFR_RNDN);
  Rounded r{0, 0, mpfr_sgn(s)};
  if (r.sign != 0) {
    const long e = std::max<long>(mpfr_get_exp(s) - 1, f.min_exponent) - f.precision + 1;
    mpfr_mul_2si(s, s, -e, MPFR_RNDN);
    mpfr_roundeven(s, s);
    mpfr_mul_2si(s, s, e, MPFR_RNDN);
    r.value = mpfr_get_d(s, MPFR_RNDN);
    if (std::abs(r.value) > f.max_finite) r.value = r.sign * INFINITY;
    r.ulp = std::ldexp(1.0, static_cast<int>(e));
  }
  mpfr_clear(s);
  return r;
}

struct Sums {
  ExactReference exact[kUpdateSums];
  double magnitude[kUpdateSums] = {};

  void Add(int k, double x) {
    exact[k].Add(x);
    magnitude[k] += std::abs(x);
  }
  void AddDifference(int k, double a, double b) {
    exact[k].Add(a);
    exact[k].Subtract(b);
    magnitude[k] += std::abs(a - b);
  }
};

struct Reference {
  UpdateStats counts;
  Sums sums;

  void AddElement(double b, double a, double d, bool same, DType t) {
    ++counts.count;
    if (!std::isfinite(b) || !std::isfinite(a) || !std::isfinite(d)) {
      ++counts.non_finite;
      return;
    }
    const Rounded r = RoundOnce(b, d, t);
    counts.misrounded += a != r.value;
    const double along = (a - r.value) / r.ulp * r.sign;
    if (r.sign != 0 && std::isfinite(along)) sums.Add(kErrorSum, along);
    if (d == 0) return;
    ++counts.intended;
    counts.lost += same;
    counts.moved_against += a != b && (a > b) != (d > 0);
    sums.Add(kIntendedL1, std::abs(d));
    if (same) sums.Add(kLostL1, std::abs(d));
    a > b ? sums.AddDifference(kAppliedL1, a, b) : sums.AddDifference(kAppliedL1, b, a);
    d > 0 ? sums.AddDifference(kAppliedAlong, a, b) : sums.AddDifference(kAppliedAlong, b, a);
  }
};

// Checks |x - exact| <= 0.5 ulp + 2^-90 of the sum of magnitudes; infinite sums are not checked.
void ExpectSum(double x, int k, Sums* sums) {
  SCOPED_TRACE(testing::Message() << "sum " << k);
  if (!std::isfinite(sums->magnitude[k])) return;
  const double exact = sums->exact[k].Nearest();
  ASSERT_TRUE(std::isfinite(x));
  sums->exact[k].Subtract(x);
  const double budget = 0.5 * UlpOf(exact, DType::kF64) + 0x1p-90 * sums->magnitude[k];
  EXPECT_LE(std::abs(sums->exact[k].Nearest()), budget) << x << " for " << exact;
}

bool SameBits(const UpdateStats& a, const UpdateStats& b) {
  return a.count == b.count && a.non_finite == b.non_finite && a.intended == b.intended &&
         a.lost == b.lost && a.moved_against == b.moved_against && a.misrounded == b.misrounded &&
         std::memcmp(&a.intended_l1, &b.intended_l1, 5 * sizeof(double)) == 0;
}

std::vector<double> Numbers(const TensorView& v) {
  const std::vector<std::byte> dense = DenseBytes(v);
  std::vector<double> out;
  for (int64_t i = 0; i < v.elements(); ++i) out.push_back(LoadDouble(dense.data(), v.dtype, i));
  return out;
}

class UpdateCheckOf : public testing::TestWithParam<std::tuple<DType, DType>> {};

TEST_P(UpdateCheckOf, EqualsExactArithmetic) {
  const auto [t, intended_type] = GetParam();
  int layout = 0;
  for (const int64_t n : {0, 1, 31, 32, 33, 1000, 4095, 4096, 4097, 9001}) {
    for (const Kind kind : {Kind::kNormal, Kind::kBits, Kind::kFinite, Kind::kTiny, Kind::kHuge}) {
      ++layout;
      ValuesMaker maker(static_cast<uint64_t>(layout));
      const ValuesCase before = Lay(t, maker.Make(t, kind, n), layout);
      const ValuesCase intended = Lay(intended_type, maker.Make(intended_type, kind, n), layout);
      // `after` is correctly rounded in some elements, equal to `before` in some, arbitrary in
      // others.
      std::vector<std::byte> dense = maker.Make(t, kind, before.view.elements());
      const size_t size = DTypeSize(t);
      const std::vector<double> b = Numbers(before.view);
      const std::vector<double> d = Numbers(intended.view);
      for (size_t i = 0; i < b.size(); ++i) {
        uint64_t code = CodeOf(b[i], t);
        if (i % 3 == 0) continue;
        if (i % 3 == 1 && std::isfinite(b[i]) && std::isfinite(d[i])) {
          const double r = RoundOnce(b[i], d[i], t).value;
          if (std::isfinite(r)) code = CodeOf(r, t);
        }
        std::memcpy(dense.data() + i * size, &code, size);
      }
      TensorView after = before.view;  // the same shape, dense
      int64_t stride = 1;
      for (int a = after.rank - 1; a >= 0; --a) {
        after.stride[static_cast<size_t>(a)] = stride;
        stride *= after.shape[static_cast<size_t>(a)];
      }
      after.data = dense.data();
      SCOPED_TRACE(testing::Message() << DTypeName(t) << " += " << DTypeName(intended_type) << " n "
                                      << n << " kind " << static_cast<int>(kind));
      UpdateStats stats;
      ASSERT_TRUE(CheckUpdate(before.view, after, intended.view, &stats).ok());
      const std::vector<double> a = Numbers(after);
      Reference reference;
      for (size_t i = 0; i < b.size(); ++i) {
        const bool same =
            std::memcmp(before.dense.data() + i * size, dense.data() + i * size, size) == 0;
        reference.AddElement(b[i], a[i], d[i], same, t);
      }
      EXPECT_EQ(stats.count, reference.counts.count);
      EXPECT_EQ(stats.non_finite, reference.counts.non_finite);
      EXPECT_EQ(stats.intended, reference.counts.intended);
      EXPECT_EQ(stats.lost, reference.counts.lost);
      EXPECT_EQ(stats.moved_against, reference.counts.moved_against);
      EXPECT_EQ(stats.misrounded, reference.counts.misrounded);
      ExpectSum(stats.intended_l1, kIntendedL1, &reference.sums);
      ExpectSum(stats.applied_l1, kAppliedL1, &reference.sums);
      ExpectSum(stats.lost_l1, kLostL1, &reference.sums);
      ExpectSum(stats.applied_along, kAppliedAlong, &reference.sums);
      ExpectSum(stats.error_sum, kErrorSum, &reference.sums);
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, UpdateCheckOf,
                         testing::Combine(testing::Values(DType::kF64, DType::kF32, DType::kF16,
                                                          DType::kBF16, DType::kE4M3, DType::kE5M2),
                                          testing::Values(DType::kF64, DType::kF32, DType::kF16,
                                                          DType::kBF16)),
                         [](const auto& test) {
                           return std::string(DTypeName(std::get<0>(test.param))) + "_" +
                                  DTypeName(std::get<1>(test.param));
                         });

// If before + intended were rounded to a double first, and then to the format, the tie would round
// the wrong way.
TEST(UpdateCheck, RoundsOnce) {
  const struct {
    DType t;
    double before, intended, once;
  } cases[] = {
      {DType::kF32, 1, 0x1p-24 + 0x1p-76, 1 + 0x1p-23},  // just above half an ulp
      {DType::kF32, 1 + 0x1p-23, 0x1p-24 - 0x1p-77, 1 + 0x1p-23},
      {DType::kBF16, 1, 0x1p-8 + 0x1p-60, 1 + 0x1p-7},
      {DType::kBF16, 1, 0x1p-8, 1},
      {DType::kBF16, -1, -0x1p-8 - 0x1p-60, -1 - 0x1p-7},
      {DType::kBF16, 1 + 0x1p-7, 0x1p-8, 1 + 0x1p-6},
      {DType::kBF16, 1 + 0x1p-7, 0x1p-8 - 0x1p-60, 1 + 0x1p-7},
      {DType::kF16, 0x1p-24, 0x1p-25 + 0x1p-80, 0x1p-23},
      {DType::kF16, 65504, 15.99999, 65504},
  };
  for (const auto& c : cases) {
    for (const double after : {c.once, c.before}) {
      uint64_t before_code = CodeOf(c.before, c.t);
      uint64_t after_code = CodeOf(after, c.t);
      UpdateStats stats;
      ASSERT_TRUE(CheckUpdate(TensorView::Dense(&before_code, c.t, 1),
                              TensorView::Dense(&after_code, c.t, 1),
                              TensorView::Dense(&c.intended, DType::kF64, 1), &stats)
                      .ok());
      EXPECT_EQ(stats.misrounded, after == c.once ? 0u : 1u) << c.before << " " << c.intended;
    }
  }
}

// The example of the specification: 88 % of bf16 weights N(0, .02) do not change in a step of N(0,
// 1e-5).
TEST(UpdateCheck, LostUpdatesOfSmallSteps) {
  constexpr int64_t kCount = 200000;
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> before, after;
  std::vector<float> intended;
  for (int64_t i = 0; i < kCount; ++i) {
    before.push_back(FloatToBF16(0.02f * normal(random)));
    intended.push_back(1e-5f * normal(random));
    after.push_back(FloatToBF16(BF16ToFloat(before.back()) + intended.back()));
  }
  UpdateStats stats;
  ASSERT_TRUE(CheckUpdate(TensorView::Dense(before.data(), DType::kBF16, kCount),
                          TensorView::Dense(after.data(), DType::kBF16, kCount),
                          TensorView::Dense(intended.data(), DType::kF32, kCount), &stats)
                  .ok());
  EXPECT_NEAR(static_cast<double>(stats.lost) / kCount, .88, .01);
  EXPECT_EQ(stats.misrounded, 0u);
  EXPECT_EQ(stats.error_sum, 0);
  EXPECT_EQ(stats.moved_against, 0u);
  EXPECT_LT(stats.lost_l1, stats.intended_l1);
}

TEST(UpdateCheck, ThreadsDoNotChangeABit) {
  for (const Kind kind : {Kind::kNormal, Kind::kFinite, Kind::kBits}) {
    ValuesMaker maker(5);
    constexpr int64_t kCount = 70001;
    const auto before = maker.Make(DType::kBF16, kind, kCount);
    const auto after = maker.Make(DType::kBF16, kind, kCount);
    const auto intended = maker.Make(DType::kF32, kind, kCount);
    UpdateStats one;
    for (int threads = 1; threads <= 8; ++threads) {
      UpdateStats stats;
      ASSERT_TRUE(CheckUpdate(TensorView::Dense(before.data(), DType::kBF16, kCount),
                              TensorView::Dense(after.data(), DType::kBF16, kCount),
                              TensorView::Dense(intended.data(), DType::kF32, kCount), &stats,
                              threads)
                      .ok());
      if (threads == 1) one = stats;
      EXPECT_TRUE(SameBits(stats, one)) << threads;
    }
  }
}

TEST(UpdateCheck, TensorsThatDoNotFitAreRefused) {
  const float x[8] = {};
  const TensorView v = TensorView::Dense(x, DType::kF32, 2, 2);
  TensorView other = v;
  UpdateStats stats;
  EXPECT_TRUE(CheckUpdate(v, v, v, &stats).ok());
  other.dtype = DType::kBF16;
  EXPECT_THAT(std::string(CheckUpdate(v, other, v, &stats).message()),
              testing::StartsWith("after: "));
  other.dtype = DType::kI32;
  EXPECT_FALSE(CheckUpdate(v, v, other, &stats).ok());
  EXPECT_FALSE(CheckUpdate(other, other, v, &stats).ok());
  other = TensorView::Dense(x, DType::kF32, 4);
  EXPECT_FALSE(CheckUpdate(v, v, other, &stats).ok());
  other = v;
  other.device = 0;
  EXPECT_FALSE(CheckUpdate(v, v, other, &stats).ok());
  EXPECT_FALSE(CheckUpdate(other, other, other, &stats).ok());
  EXPECT_FALSE(CheckUpdate(v, v, TensorView(), &stats).ok());
}

}  // namespace
}  // namespace plumbline
