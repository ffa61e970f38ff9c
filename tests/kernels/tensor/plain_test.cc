// Tests ordinary tiles of bf16, f16 and f32 as a device measures them: the same bits as the host,
// for exponents, signs and zeros at any place, and on the fast path if possible.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/tensor/lean.h"
#include "tests/kernels/device/emulated_batch.h"
#include "tests/kernels/tensor/stats_equal.h"

namespace plumbline {
namespace {

struct CountingSink : PlainTensorSink {
  int64_t* plain;  // values measured together
  int64_t* alone;  // sums passed to the sink
  void Field(int field) {
    ++*plain;
    PlainTensorSink::Field(field);
  }
  void Wide(int which, Uint128 v, int exponent, bool negative) {
    ++*alone;
    PlainTensorSink::Wide(which, v, exponent, negative);
  }
};

struct Emulated {
  TensorStats stats;
  int64_t plain = 0;
  int64_t alone = 0;
};

template <typename Raw>
TensorView ViewOf(const std::vector<Raw>& values) {
  const DType t = sizeof(Raw) == 2 ? DType::kBF16 : DType::kF32;
  return TensorView::Dense(values.data(), t, static_cast<int64_t>(values.size()));
}

template <typename Raw>
Emulated Emulate(const TensorView& view, int64_t fits_of_all = kFitsOfAll) {
  Emulated out;
  const absl::StatusOr<TensorBatch> batch = TensorBatch::Plan({&view, 1}, fits_of_all);
  EXPECT_TRUE(batch.ok()) << batch.status();
  std::vector<uint64_t> results(batch->shape().result_bytes / 8);
  auto* raw = reinterpret_cast<TensorRaw*>(results.data());
  uint32_t codes[kCodes];
  const CountingSink sink{
      {raw, reinterpret_cast<uint64_t*>(raw + 1), codes}, &out.plain, &out.alone};
  const TensorItem& item = batch->items()[0];
  for (int64_t at = 0; at < item.count; at += SpanElements(item.dtype))
    EmulateTensorSpan(item, at, sink);
  out.stats = batch->Finish(reinterpret_cast<const std::byte*>(results.data()))[0];
  return out;
}

template <typename Raw>
Emulated ExpectTheCpuReference(const std::vector<Raw>& values) {
  const TensorView view = ViewOf(values);
  TensorStats host;
  EXPECT_TRUE(MeasureTensor(view, &host).ok());
  const Emulated device = Emulate<Raw>(view);
  ExpectSame(device.stats, host);
  // The same if only drawn tiles are measured.
  TensorStats drawn;
  EXPECT_TRUE(MeasureTensor(view, &drawn, 1, 0).ok());
  ExpectSame(Emulate<Raw>(view, 0).stats, drawn);
  drawn.exponents = host.exponents;
  drawn.first_exponent = host.first_exponent;
  drawn.fits = host.fits;
  ExpectSame(drawn, host);  // other figures do not depend on it
  return device;
}

// Returns the bits of a value: sign, f32's exponent field, a fraction that is random or full.
template <typename Raw>
Raw Value(std::mt19937_64* random, int field, bool full = false) {
  constexpr int kM = WordFormat<Raw>::kFractionBits;
  const uint64_t fraction = full ? ~uint64_t{0} : (*random)();
  const uint64_t sign = (*random)() % 2;
  return static_cast<Raw>(sign << (8 * sizeof(Raw) - 1) |
                          static_cast<uint64_t>(std::clamp(field, 1, 254)) << kM |
                          (fraction & kFractionMask<Raw>));
}

template <typename Raw>
std::vector<Raw> Normal(std::mt19937_64* random, size_t n, double sigma) {
  std::normal_distribution<double> draw(0, sigma);
  std::vector<Raw> values(n);
  for (Raw& v : values) {
    const auto bits = __builtin_bit_cast(uint32_t, static_cast<float>(draw(*random)));
    v = static_cast<Raw>(sizeof(Raw) == 2 ? bits >> 16 : bits);
  }
  return values;
}

template <typename Raw>
class TensorPlain : public testing::Test {};
using Raws = testing::Types<uint16_t, uint32_t>;
TYPED_TEST_SUITE(TensorPlain, Raws);

TYPED_TEST(TensorPlain, VectorsCompareAsTheirValuesDo) {
  using Vector = LaneVector<TypeParam>;
  using Extent = LaneExtent<TypeParam>;
  std::mt19937_64 random(1);
  for (int n = 0; n < 20000; ++n) {
    TypeParam values[Vector::kValues];
    for (TypeParam& v : values) {
      v = static_cast<TypeParam>(random() >> (random() % 4 == 0 ? 64 - random() % 8 - 1 : 0));
    }
    Vector vector;
    memcpy(&vector, values, sizeof(vector));
    const Vector m = vector.Magnitudes();
    const auto bound = static_cast<uint32_t>(random() % (uint64_t{Vector::kLargest} + 1) + 1);
    uint32_t most = 0, least = Vector::kLargest, from = 0, below = 0;
    for (const TypeParam v : values) {
      const uint32_t magnitude = v & Vector::kLargest;
      most = std::max(most, magnitude);
      if (magnitude != 0) least = std::min(least, magnitude - 1);
      from += magnitude >= bound ? 1 : 0;
      below += magnitude != 0 && magnitude < bound ? 1 : 0;
    }
    ASSERT_EQ(m.CountFrom(bound), from);
    ASSERT_EQ(Vector::kValues - m.Less().CountFrom(bound - 1), below);
    const auto extent = Extent::Of(m, m.Less());
    ASSERT_EQ(extent.Most(), most);
    ASSERT_EQ(extent.Least(), least);
  }
}

TYPED_TEST(TensorPlain, OrdinaryTensorsAreMeasuredInPlainRoundsAlone) {
  std::mt19937_64 random(2);
  for (const double sigma : {1.0, 1e-3, 3e-8, 1e-12, 300.0, 1e20}) {
    std::vector<TypeParam> values = Normal<TypeParam>(&random, 40000, sigma);
    for (size_t i = 0; i < values.size(); i += 3) {  // zeros of both signs
      values[i] = static_cast<TypeParam>(uint64_t{i % 2} << (8 * sizeof(TypeParam) - 1));
    }
    SCOPED_TRACE(sigma);
    const Emulated found = ExpectTheCpuReference(values);
    const int64_t tiles =
        (40000 + SpanElements(ViewOf(values).dtype) - 1) / SpanElements(ViewOf(values).dtype);
    const bool ordinary = sizeof(TypeParam) == 4 || sigma < 1e18;
    EXPECT_EQ(found.plain, ordinary ? 40000 / 256 * 256 : 0);
    EXPECT_EQ(found.alone == 3 * tiles, ordinary);
  }
}

TYPED_TEST(TensorPlain, ZerosAlone) {
  const std::vector<TypeParam> zeros(5120);
  const Emulated found = ExpectTheCpuReference(zeros);
  EXPECT_EQ(found.plain, 5120);
  EXPECT_EQ(found.stats.zero, 5120u);
  EXPECT_EQ(found.stats.max, 0);
}

// Zeros below all others, and one above, appear when the ends are computed.
TYPED_TEST(TensorPlain, ZerosAmongOneSign) {
  std::mt19937_64 random(3);
  for (const uint64_t sign : {0, 1}) {
    std::vector<TypeParam> values = Normal<TypeParam>(&random, 8192, 1);
    const auto top = static_cast<TypeParam>(TypeParam{1} << (8 * sizeof(TypeParam) - 1));
    for (TypeParam& v : values) {
      v = static_cast<TypeParam>(sign != 0 ? v | top : v & ~top);
    }
    for (size_t i = 6144; i < 6400; ++i) values[i] = 0;  // a round of zeros only
    const Emulated found = ExpectTheCpuReference(values);
    EXPECT_EQ(sign != 0 ? found.stats.max : found.stats.min, 0);
  }
}

// Fields spread over and beyond every window, with runs of one size and jumps between them.
TYPED_TEST(TensorPlain, AnySpreadOfExponents) {
  for (uint64_t seed = 10; seed < 130; ++seed) {
    std::mt19937_64 random(seed);
    const int base = 30 + static_cast<int>(random() % 226);
    const int spread = static_cast<int>(random() % 60);
    const int run = 1 << (random() % 12);
    const int zeros = static_cast<int>(random() % 4);
    const bool full = random() % 4 == 0;
    std::vector<TypeParam> values(2048 + random() % 5000);
    int jump = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      if (i % static_cast<size_t>(run) == 0) jump = static_cast<int>(random() % 3) * spread / 2;
      const int down = static_cast<int>(random() % static_cast<uint64_t>(spread + 1));
      if (static_cast<int>(random() % 4) < zeros) continue;
      values[i] = Value<TypeParam>(&random, base - down - jump, full);
    }
    SCOPED_TRACE(testing::Message() << "seed " << seed << " base " << base << " spread " << spread);
    ExpectTheCpuReference(values);
    if (testing::Test::HasFailure()) return;
  }
}

// One value of each exponent field next to a round of another.
TYPED_TEST(TensorPlain, EachDistanceBetweenExponents) {
  std::mt19937_64 random(4);
  for (const int top : {33, 34, 48, 80, 127, 200, 249, 250, 251, 254}) {
    for (int down = 0; down < 60; ++down) {
      std::vector<TypeParam> values;
      for (int i = 0; i < 1024; ++i) {
        const int field = i % 37 == 5 ? top - down : top - static_cast<int>(random() % 2);
        values.push_back(Value<TypeParam>(&random, field, i % 2 == 0));
      }
      SCOPED_TRACE(testing::Message() << "top " << top << " down " << down);
      ExpectTheCpuReference(values);
      if (testing::Test::HasFailure()) return;
    }
  }
}

// A round's largest or smallest value at and next to each bound of the formats.
TYPED_TEST(TensorPlain, BoundsAtTheEndsOfARound) {
  for (const DType format : {DType::kF16, DType::kBF16, DType::kE4M3, DType::kE5M2}) {
    const FitBounds<TypeParam> bounds = BoundsOf<TypeParam>(format);
    for (const TypeParam bound :
         {bounds.subnormal_from, bounds.normal_from, bounds.saturated_from}) {
      for (int off = -2; off <= 2; ++off) {
        for (const int other : {-3, 0, 3}) {  // difference of exponents to the rest
          std::vector<TypeParam> values(256, static_cast<TypeParam>(bound + off));
          const auto rest = bound + other * (TypeParam{1} << WordFormat<TypeParam>::kFractionBits);
          for (size_t i = 0; i < values.size(); i += 2) values[i] = static_cast<TypeParam>(rest);
          SCOPED_TRACE(testing::Message() << DTypeName(format) << " " << bound << " " << off);
          ExpectTheCpuReference(values);
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

// One special value in a tile: only that tile's values are added exactly.
TYPED_TEST(TensorPlain, OneValueRequestsASecondLook) {
  std::mt19937_64 random(6);
  const int64_t tile = kSumTileBytes / static_cast<int64_t>(sizeof(TypeParam));
  constexpr int kM = WordFormat<TypeParam>::kFractionBits;
  for (const uint32_t field : {187u, 188u, 254u, 255u}) {
    std::vector<TypeParam> values =
        Normal<TypeParam>(&random, static_cast<size_t>(3 * tile + 700), 1e-9);
    values[static_cast<size_t>(tile) + 100] = static_cast<TypeParam>(TypeParam(field) << kM);
    SCOPED_TRACE(field);
    const Emulated found = ExpectTheCpuReference(values);
    const bool exact = field >= (sizeof(TypeParam) == 2 ? 188u : 255u);
    EXPECT_EQ(found.alone == 3 * 4, !exact);
    EXPECT_EQ(found.plain, (3 * tile + 700) / 128 * 128 - (exact ? tile : 0) -
                               (sizeof(TypeParam) == 2 ? 128 : 0));
  }
}

// The smallest maximum, and values far below it.
TYPED_TEST(TensorPlain, SmallTiles) {
  std::mt19937_64 random(7);
  for (int field = 127 - 54; field < 127 - 46; ++field) {
    std::vector<TypeParam> values = Normal<TypeParam>(&random, 5000, 1e-38);
    values[1234] = Value<TypeParam>(&random, field);
    SCOPED_TRACE(field);
    ExpectTheCpuReference(values);
  }
}

// More than a whole tile of the largest fractions, of one sign.
TYPED_TEST(TensorPlain, SumsDoNotOverflow) {
  std::vector<TypeParam> values(70000);
  constexpr int kM = WordFormat<TypeParam>::kFractionBits;
  for (const int field : {60, 127, 187, 250}) {
    const auto value =
        static_cast<TypeParam>(static_cast<TypeParam>(field << kM) | kFractionMask<TypeParam>);
    std::fill(values.begin(), values.end(), value);
    ExpectTheCpuReference(values);
  }
}

TYPED_TEST(TensorPlain, OthersAreLeftToTheRest) {
  std::mt19937_64 random(5);
  const std::vector<TypeParam> plain = Normal<TypeParam>(&random, 2048, 1);
  constexpr int kM = WordFormat<TypeParam>::kFractionBits;
  for (const uint32_t field : {0u, 32u}) {  // subnormal, small
    std::vector<TypeParam> values = plain;
    values[700] =
        static_cast<TypeParam>(static_cast<TypeParam>(field << kM) | (field == 0 ? 5 : 0));
    EXPECT_EQ(ExpectTheCpuReference(values).plain, 2048 - (sizeof(TypeParam) == 2 ? 256 : 128));
  }
  EXPECT_EQ(Emulate<TypeParam>(ViewOf(plain)).plain, 2048);
}

}  // namespace
}  // namespace plumbline
