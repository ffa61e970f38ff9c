// Compares tensor statistics with a direct implementation of their definitions: one element at a
// time, values by LoadDouble, formats by RoundToFormat, sums by MPFR.
#include "kernels/tensor/stats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/load.h"
#include "kernels/tensor/digest.h"
#include "kernels/tensor/loops_avx2.h"
#include "kernels/tensor/meter.h"
#include "kernels/tensor/totals.h"
#include "kernels/tensor/words.h"
#include "tests/kernels/device/values_case.h"
#include "tests/kernels/tensor/exact_reference.h"
#include "tests/kernels/tensor/ordered_reference.h"
#include "tests/kernels/tensor/stats_equal.h"
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace plumbline {
namespace {

void CountFit(double x, double scaled, FormatFitCounts* fit) {
  if (x == 0 || !std::isfinite(x)) return;
  const double r = std::abs(RoundToFormat(scaled, fit->format));
  if (r == 0) {
    ++fit->flushed;
  } else if (!std::isfinite(r)) {
    ++fit->saturated;
  } else if (r < PowerOfTwo(FormatOf(fit->format).min_exponent)) {
    ++fit->subnormal;
  }
}

void ReferenceFit(const std::vector<double>& values, FormatFitCounts* fit) {
  const size_t block = fit->block == 0 ? 1 : fit->block;
  for (size_t first = 0; first < values.size(); first += block) {
    const size_t last = std::min(values.size(), first + block);
    int k = 0;
    if (fit->block != 0) {
      double amax = 0;
      for (size_t i = first; i < last; ++i) {
        if (std::isfinite(values[i])) amax = std::max(amax, std::abs(values[i]));
      }
      if (amax == 0) continue;
      const double top = FormatOf(fit->format).max_finite;
      k = std::ilogb(top) - std::ilogb(amax) + 1;
      while (std::ldexp(static_cast<long double>(amax), k) > static_cast<long double>(top)) --k;
    }
    for (size_t i = first; i < last; ++i) CountFit(values[i], std::ldexp(values[i], k), fit);
  }
}

Digest ReferenceDigest(std::vector<std::byte> bytes) {
  bytes.resize((bytes.size() + 7) / 8 * 8);
  Digest sum;
  for (size_t i = 0; i < bytes.size() / 8; ++i) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + 8 * i, 8);
    const DigestKey place = DigestPlaceKey(i % kDigestBlockWords);
    const DigestKey block = DigestBlockKey(i / kDigestBlockWords);
    sum.low += DigestWord(word, place.low ^ block.low);
    sum.high += DigestWord(word, place.high ^ block.high);
  }
  return sum;
}

TensorStats Reference(DType t, const std::vector<std::byte>& dense) {
  TensorStats s;
  s.dtype = t;
  s.count = dense.size() / DTypeSize(t);
  std::vector<double> values;
  ExactReference sum, squares, l1;
  std::map<int, uint64_t> exponents;
  s.min = s.max = NAN;
  for (size_t i = 0; i < s.count; ++i) {
    const double x = LoadDouble(dense.data(), t, static_cast<int64_t>(i));
    values.push_back(x);
    s.nan += std::isnan(x);
    s.pos_inf += std::isinf(x) && x > 0;
    s.neg_inf += std::isinf(x) && x < 0;
    if (!std::isfinite(x)) continue;
    s.min = std::fmin(s.min, x) + 0.0;
    s.max = std::fmax(s.max, x) + 0.0;
    s.zero += x == 0;
    if (IsInteger(t) && DTypeSize(t) == 8) {  // above 2^53 a double is not exact
      const auto raw = LoadRaw<uint64_t>(dense.data(), static_cast<int64_t>(i));
      const bool negative = t == DType::kI64 && raw >> 63 != 0;
      const uint64_t m = negative ? ~raw + 1 : raw;
      const double high = static_cast<double>(m >> 32) * 0x1p32;
      const auto low = static_cast<double>(m & 0xffffffff);
      negative ? sum.Subtract(high) : sum.Add(high);
      negative ? sum.Subtract(low) : sum.Add(low);
      continue;
    }
    if (!SummedByTiles(t)) {
      sum.Add(x);
      squares.AddProduct(x, x);
      l1.Add(std::abs(x));
    }
    if (x != 0 && IsFloating(t)) {
      ++exponents[std::ilogb(x)];
      s.subnormal += std::abs(x) < PowerOfTwo(FormatOf(t).min_exponent);
    }
  }
  if (SummedByTiles(t)) ReferenceSums(t, values, &sum, &squares, &l1);
  s.amax = s.sum = s.sum_squares = s.l1 = NAN;
  if (!std::isnan(s.min)) sum.Nearest(&s.sum, &s.sum_low);
  const Digest digest = ReferenceDigest(dense);
  s.digest_low = digest.low;
  s.digest_high = digest.high;
  if (!IsFloating(t)) return s;
  s.fits_count = kFormatFits;
  s.fits = kFormatFitTargets;
  for (FormatFitCounts& fit : s.fits) ReferenceFit(values, &fit);
  if (std::isnan(s.min)) return s;
  s.amax = std::fmax(std::abs(s.min), std::abs(s.max));
  squares.Nearest(&s.sum_squares, &s.sum_squares_low);
  s.l1 = l1.Nearest();
  if (!exponents.empty()) {
    s.first_exponent = exponents.begin()->first;
    for (int e = s.first_exponent; e <= exponents.rbegin()->first; ++e) {
      s.exponents.push_back(exponents.count(e) != 0 ? exponents[e] : 0);
    }
  }
  return s;
}

// Sizes around every boundary: scaled blocks, chunks, digest blocks of each size.
constexpr int64_t kSizes[] = {0,    1,    2,    3,    7,    31,   32,   33,   127,
                              128,  129,  255,  256,  257,  1023, 1024, 1025, 2047,
                              2048, 2049, 2176, 4095, 4096, 4097, 6145, 10007};

class TensorStatsOf : public testing::TestWithParam<DType> {};

TEST_P(TensorStatsOf, EqualsTheReferenceInEveryBit) {
  const DType t = GetParam();
  int layout = 0;
  for (int kind = 0; kind < static_cast<int>(Kind::kCount); ++kind) {
    if (!IsFloating(t) && kind > 1) break;
    for (const int64_t n : kSizes) {
      ValuesMaker maker(static_cast<uint64_t>(kind) * 1000003 + static_cast<uint64_t>(n));
      const ValuesCase c = Lay(t, maker.Make(t, static_cast<Kind>(kind), n), layout++);
      SCOPED_TRACE(testing::Message() << DTypeName(t) << " kind " << kind << " n " << n
                                      << " layout " << (layout - 1) % 6);
      TensorStats stats;
      ASSERT_TRUE(MeasureTensor(c.view, &stats, 1 + layout % 8).ok());
      ExpectSame(stats, Reference(t, c.dense));
      if (HasFailure()) return;
    }
  }
}

TEST_P(TensorStatsOf, ThreadsDoNotChangeABit) {
  const DType t = GetParam();
  for (const Kind kind : {Kind::kNormal, Kind::kBits, Kind::kFinite, Kind::kCancelling}) {
    const std::vector<std::byte> data = ValuesMaker(7).Make(t, kind, 150001);
    const TensorView view = TensorView::Dense(data.data(), t, 150001);
    TensorStats one;
    ASSERT_TRUE(MeasureTensor(view, &one, 1).ok());
    for (int threads = 2; threads <= 8; ++threads) {
      TensorStats many;
      ASSERT_TRUE(MeasureTensor(view, &many, threads).ok());
      ExpectSame(many, one);
    }
  }
}

// Pieces of any alignment and many sizes, the last of any size.
TEST_P(TensorStatsOf, PiecesDoNotChangeABit) {
  const DType t = GetParam();
  const int64_t count = 4 * TensorMeter::kPieceElements + 77;
  std::vector<std::byte> data = ValuesMaker(13).Make(t, Kind::kBits, count);
  TensorStats whole;
  ASSERT_TRUE(MeasureTensor(TensorView::Dense(data.data(), t, count), &whole).ok());
  data.insert(data.begin(), std::byte{1});
  for (const int64_t chunks : {1, 2, 3, 4, 5}) {
    TensorMeter meter(t);
    for (int64_t at = 0; at < count; at += chunks * TensorMeter::kPieceElements) {
      const int64_t n = std::min(chunks * TensorMeter::kPieceElements, count - at);
      const size_t byte = 1 + static_cast<size_t>(at) * DTypeSize(t);
      ASSERT_TRUE(meter.Add(data.data() + byte, n, 1 + static_cast<int>(chunks % 3)).ok());
    }
    ExpectSame(meter.Finish(), whole);
    EXPECT_EQ(meter.Add(data.data(), 1).code(), absl::StatusCode::kFailedPrecondition);
  }
}

// Exponents and fits of a large tensor are those of its drawn tiles; everything else covers all of
// it.
TEST_P(TensorStatsOf, DrawnTilesAreMeasuredAsATensorOfThem) {
  const DType t = GetParam();
  const int64_t count = 75 * kFitTile + 77;
  for (const Kind kind : {Kind::kNormal, Kind::kBits}) {
    const std::vector<std::byte> data = ValuesMaker(17).Make(t, kind, count);
    std::vector<std::byte> tiles;
    const auto size = static_cast<int64_t>(DTypeSize(t));
    for (int64_t tile = 0; tile * kFitTile < count; ++tile) {
      if (!FitTileDrawn(tile)) continue;
      const int64_t first = tile * kFitTile, end = std::min(count, first + kFitTile);
      tiles.insert(tiles.end(), data.begin() + first * size, data.begin() + end * size);
    }
    const TensorView view = TensorView::Dense(data.data(), t, count);
    TensorStats all, of_tiles, drawn;
    ASSERT_TRUE(MeasureTensor(view, &all).ok());
    ASSERT_TRUE(
        MeasureTensor(TensorView::Dense(tiles.data(), t, static_cast<int64_t>(tiles.size()) / size),
                      &of_tiles)
            .ok());
    for (const int threads : {1, 3}) {
      ASSERT_TRUE(MeasureTensor(view, &drawn, threads, 0).ok());
      TensorStats expected = all;
      expected.first_exponent = of_tiles.first_exponent;
      expected.exponents = of_tiles.exponents;
      expected.fits = of_tiles.fits;
      ExpectSame(drawn, expected);
    }
  }
}

TEST(TensorStats, OfEach32NeighbouringTilesOneIsDrawn) {
  for (int64_t group = 0; group < 1000; ++group) {
    int drawn = 0;
    for (int64_t i = 0; i < kFitEach; ++i) drawn += FitTileDrawn(group * kFitEach + i) ? 1 : 0;
    EXPECT_EQ(drawn, 1) << group;
  }
  // The draw must never change, because hosts and releases compare drawn elements.
  std::vector<int64_t> first;
  for (int64_t tile = 0; tile < 4 * kFitEach; ++tile) {
    if (FitTileDrawn(tile)) first.push_back(tile % kFitEach);
  }
  EXPECT_EQ(first, (std::vector<int64_t>{7, 20, 9, 9}));
}

// A meter does not know the number of elements in advance.
TEST(TensorStats, PiecesOfALargeTensorDoNotChangeABit) {
  for (const int64_t count : {kFitsOfAll, kFitsOfAll + 1, kFitsOfAll + 100 * kFitTile}) {
    const std::vector<std::byte> data = ValuesMaker(19).Make(DType::kE5M2, Kind::kNormal, count);
    TensorStats whole;
    ASSERT_TRUE(MeasureTensor(TensorView::Dense(data.data(), DType::kE5M2, count), &whole, 2).ok());
    TensorMeter meter(DType::kE5M2);
    const int64_t piece = 19 * TensorMeter::kPieceElements;
    for (int64_t at = 0; at < count; at += piece) {
      ASSERT_TRUE(meter.Add(data.data() + at, std::min(piece, count - at)).ok());
    }
    ExpectSame(meter.Finish(), whole);
    uint64_t looked = 0;
    for (const uint64_t n : whole.exponents) looked += n;
    EXPECT_EQ(looked == whole.count - whole.zero - whole.nan - whole.pos_inf - whole.neg_inf,
              count <= kFitsOfAll);
  }
}

INSTANTIATE_TEST_SUITE_P(Floating, TensorStatsOf, testing::ValuesIn(kFloatingTypes),
                         [](const auto& test) { return DTypeName(test.param); });
INSTANTIATE_TEST_SUITE_P(Integer, TensorStatsOf, testing::ValuesIn(kIntegerTypes),
                         [](const auto& test) { return DTypeName(test.param); });

TEST(TensorStats, EveryNarrowCodeWidensToItsValue) {
  const auto expect = [](uint32_t bits, float value) {
    if (std::isnan(value)) {
      EXPECT_GT(bits & 0x7fffffffu, 0x7f800000u);
    } else {
      EXPECT_EQ(bits, __builtin_bit_cast(uint32_t, value)) << value;
    }
  };
  for (uint32_t code = 0; code < 65536; ++code) {
    expect(WidenF16(static_cast<uint16_t>(code)), F16ToFloat(static_cast<uint16_t>(code)));
  }
  for (uint32_t code = 0; code < 256; ++code) {
    expect(WidenE4M3(static_cast<uint8_t>(code)), E4M3ToFloat(static_cast<uint8_t>(code)));
    expect(WidenE5M2(static_cast<uint8_t>(code)), E5M2ToFloat(static_cast<uint8_t>(code)));
  }
}

TEST(TensorStats, CancellationsKeepWhatIsLeft) {
  std::vector<double> x;
  for (int i = 0; i < 3000; ++i) {
    x.push_back(1e300);
    x.push_back(0x1p-1060);
    x.push_back(-1e300);
  }
  TensorStats stats;
  ASSERT_TRUE(
      MeasureTensor(TensorView::Dense(x.data(), DType::kF64, static_cast<int64_t>(x.size())),
                    &stats, 3)
          .ok());
  EXPECT_EQ(stats.sum, 3000 * 0x1p-1060);
  EXPECT_EQ(stats.sum_low, 0);
  EXPECT_EQ(stats.sum_squares, INFINITY);
  EXPECT_EQ(stats.l1, 6000 * 1e300);
}

TEST(TensorStats, ScalarsAndEmptyTensors) {
  const float one = 1.5f;
  TensorStats stats;
  ASSERT_TRUE(MeasureTensor(TensorView::Dense(&one, DType::kF32), &stats).ok());
  EXPECT_EQ(stats.count, 1u);
  EXPECT_EQ(stats.sum, 1.5);
  TensorView none = TensorView::Dense(nullptr, DType::kF32, 3, 0, 4);
  ASSERT_TRUE(MeasureTensor(none, &stats, 4).ok());
  EXPECT_EQ(stats.count, 0u);
  EXPECT_TRUE(std::isnan(stats.min) && std::isnan(stats.sum) && std::isnan(stats.l1));
  EXPECT_EQ(stats.digest_low, 0u);
}

TEST(TensorStats, EveryFlippedBitChangesBothDigests) {
  std::vector<std::byte> data = ValuesMaker(3).Make(DType::kBF16, Kind::kNormal, 1500);
  const TensorView view = TensorView::Dense(data.data(), DType::kBF16, 1500);
  TensorStats before;
  ASSERT_TRUE(MeasureTensor(view, &before).ok());
  for (size_t bit = 0; bit < data.size() * 8; ++bit) {
    data[bit / 8] ^= std::byte{1} << (bit % 8);
    TensorStats after;
    ASSERT_TRUE(MeasureTensor(view, &after).ok());
    ASSERT_NE(after.digest_low, before.digest_low) << bit;
    ASSERT_NE(after.digest_high, before.digest_high) << bit;
    data[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

TEST(TensorStats, SwappedElementsChangeTheDigest) {
  std::vector<float> x(8192);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  const TensorView view = TensorView::Dense(x.data(), DType::kF32, 8192);
  TensorStats before;
  ASSERT_TRUE(MeasureTensor(view, &before).ok());
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {
    const size_t a = random() % x.size();
    const size_t b = random() % x.size();
    if (a == b) continue;
    std::swap(x[a], x[b]);
    TensorStats after;
    ASSERT_TRUE(MeasureTensor(view, &after).ok());
    ASSERT_NE(after.digest_low, before.digest_low);
    ASSERT_NE(after.digest_high, before.digest_high);
    std::swap(x[a], x[b]);
  }
}

// The definition never changes, because stored digests are compared with new ones.
TEST(TensorStats, DigestIsPinned) {
  std::vector<uint8_t> bytes(5000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 7 + i / 256);
  TensorStats stats;
  ASSERT_TRUE(MeasureTensor(TensorView::Dense(bytes.data(), DType::kU8, 5000), &stats).ok());
  EXPECT_EQ(stats.digest_low, 2861452135203441606u);
  EXPECT_EQ(stats.digest_high, 10728132334008020756u);
}

#if defined(__SSE2__)
TEST(TensorStats, ThreadsThatFlushSubnormalsAreMeasuredAlike) {
  for (const DType t : kFloatingTypes) {
    for (const Kind kind : {Kind::kTiny, Kind::kFinite}) {
      const std::vector<std::byte> data = ValuesMaker(9).Make(t, kind, 4000);
      const TensorView view = TensorView::Dense(data.data(), t, 4000);
      TensorStats kept;
      ASSERT_TRUE(MeasureTensor(view, &kept, 2).ok());
      const unsigned mode = _mm_getcsr();
      _mm_setcsr(mode | 0x8040 | 0x2000);  // flush to zero, denormals are zero, round down
      TensorStats flushed;
      const absl::Status status = MeasureTensor(view, &flushed, 2);
      const unsigned after = _mm_getcsr();
      _mm_setcsr(mode);
      ASSERT_TRUE(status.ok());
      EXPECT_EQ(after & 0xe040u, 0xa040u) << "the trainer's mode is put back";
      ExpectSame(flushed, kept);
    }
  }
}
#endif

TEST(TensorStats, BadTensorsAreRefused) {
  const float x[4] = {};
  TensorStats stats;
  TensorView v = TensorView::Dense(x, DType::kF32, 4);
  v.dtype = DType::kUnspecified;
  EXPECT_EQ(MeasureTensor(v, &stats).code(), absl::StatusCode::kInvalidArgument);
  v = TensorView::Dense(x, DType::kF32, -1);
  EXPECT_EQ(MeasureTensor(v, &stats).code(), absl::StatusCode::kInvalidArgument);
  v = TensorView::Dense(x, DType::kF32, int64_t{1} << 40, int64_t{1} << 40);
  EXPECT_EQ(MeasureTensor(v, &stats).code(), absl::StatusCode::kInvalidArgument);
  v = TensorView::Dense(nullptr, DType::kF32, 4);
  EXPECT_EQ(MeasureTensor(v, &stats).code(), absl::StatusCode::kInvalidArgument);
  v = TensorView::Dense(x, DType::kF32, 4);
  v.device = 0;
  EXPECT_EQ(MeasureTensor(v, &stats).code(), absl::StatusCode::kInvalidArgument);
  v.device = -1;
  v.rank = 9;
  EXPECT_EQ(MeasureTensor(v, &stats).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace plumbline
