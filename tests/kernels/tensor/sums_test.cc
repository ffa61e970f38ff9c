// Tests sums by tiles: within their error bound of MPFR's, and equal with and without vector
// instructions.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/load.h"
#include "kernels/tensor/loops_avx2.h"
#include "kernels/tensor/sum_order.h"
#include "kernels/tensor/totals.h"
#include "kernels/tensor/words.h"
#include "tests/kernels/device/values_case.h"
#include "tests/kernels/tensor/exact_reference.h"
#include "tests/kernels/tensor/ordered_reference.h"
#include "tests/kernels/tensor/stats_equal.h"

namespace plumbline {
namespace {

class TensorSumsOf : public testing::TestWithParam<DType> {};

// Compares with MPFR's exact sums, for values of all kinds over several tiles.
TEST_P(TensorSumsOf, KeepTheirBound) {
  const DType t = GetParam();
  const bool tiles = SummedByTiles(t);
  const double sum_error = !tiles ? 0 : (t == DType::kF32 ? kSumError32 : kSumError16);
  const double squares_error = !tiles ? 0 : (t == DType::kF32 ? kSquaresError32 : kSquaresError16);
  for (int kind = 0; kind < static_cast<int>(Kind::kCount); ++kind) {
    for (const int64_t n : {5, 1000, 70001}) {
      const std::vector<std::byte> data = ValuesMaker(23).Make(t, static_cast<Kind>(kind), n);
      TensorStats stats;
      ASSERT_TRUE(MeasureTensor(TensorView::Dense(data.data(), t, n), &stats, 2).ok());
      ExactReference sum, squares, l1;
      for (int64_t i = 0; i < n; ++i) {
        const double x = LoadDouble(data.data(), t, i);
        if (!std::isfinite(x)) continue;
        sum.Add(x);
        squares.AddProduct(x, x);
        l1.Add(std::abs(x));
      }
      if (std::isnan(stats.sum) || !std::isfinite(l1.Nearest()) ||
          !std::isfinite(squares.Nearest())) {
        continue;
      }
      SCOPED_TRACE(testing::Message() << "kind " << kind << " n " << n);
      const double magnitudes = l1.Nearest(), all_squares = squares.Nearest();
      const double ulp = 0x1p-52;  // of the sums themselves, rounded in both
      EXPECT_LE(std::abs(stats.sum - sum.Nearest()),
                sum_error * magnitudes + ulp * std::abs(stats.sum));
      EXPECT_LE(std::abs(stats.l1 - magnitudes), (sum_error + ulp) * magnitudes);
      EXPECT_LE(std::abs(stats.sum_squares - all_squares), (squares_error + ulp) * all_squares);
    }
  }
}

// Equal bit for bit, around the ends of tiles, from any layout.
TEST(TensorSums, AreThoseOfTheWrittenOrder) {
  int layout = 0;
  for (const DType t : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (int kind = 0; kind < static_cast<int>(Kind::kCount); ++kind) {
      for (const int64_t n : {1, 4095, 16384, 16385, 32767, 32769, 70001}) {
        const auto seed = static_cast<uint64_t>(kind) * 7919 + static_cast<uint64_t>(n);
        const ValuesCase c =
            Lay(t, ValuesMaker(seed).Make(t, static_cast<Kind>(kind), n), layout++);
        TensorStats stats;
        ASSERT_TRUE(MeasureTensor(c.view, &stats, 1 + layout % 3).ok());
        if (std::isnan(stats.sum)) continue;
        std::vector<double> values;
        const auto count = static_cast<int64_t>(c.dense.size() / DTypeSize(t));
        for (int64_t i = 0; i < count; ++i) values.push_back(LoadDouble(c.dense.data(), t, i));
        ExactReference sum, squares, l1;
        ReferenceSums(t, values, &sum, &squares, &l1);
        double high = 0, low = 0;
        sum.Nearest(&high, &low);
        SCOPED_TRACE(testing::Message() << DTypeName(t) << " kind " << kind << " n " << n);
        EXPECT_EQ(Bits(stats.sum), Bits(high));
        EXPECT_EQ(Bits(stats.sum_low), Bits(low));
        squares.Nearest(&high, &low);
        EXPECT_EQ(Bits(stats.sum_squares), Bits(high));
        EXPECT_EQ(Bits(stats.sum_squares_low), Bits(low));
        EXPECT_EQ(Bits(stats.l1), Bits(l1.Nearest()));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Floating, TensorSumsOf, testing::ValuesIn(kFloatingTypes),
                         [](const auto& test) { return DTypeName(test.param); });

// Compares with the sums of machines without AVX2.
template <typename Values>
void ExpectPortableRoundsAgree() {
#if defined(__x86_64__)
  if (!Avx2Loops::Supported()) return;
  for (int kind = 0; kind < static_cast<int>(Kind::kCount); ++kind) {
    constexpr int64_t kCount = kSumTileBytes / sizeof(typename Values::Raw);
    const std::vector<std::byte> data =
        ValuesMaker(12).Make(Values::kType, static_cast<Kind>(kind), kCount);
    TileLanes lanes[2] = {};
    for (int round = 0; round < kSumRounds; ++round) {
      const std::byte* blocks[kSumBlocks];
      for (int b = 0; b < kSumBlocks; ++b)
        blocks[b] = data.data() + (round * kSumBlocks + b) * kDigestBlockBytes;
      PortableLoops::AddRound(Values{}, blocks, kSumThreads, &lanes[0]);
      Avx2Loops::AddRound(Values{}, blocks, kSumThreads, &lanes[1]);
    }
    for (int i = 0; i < kSumThreads; ++i) {
      EXPECT_EQ(Bits(lanes[0].sum[i]), Bits(lanes[1].sum[i])) << i;
      EXPECT_EQ(Bits(lanes[0].magnitudes[i]), Bits(lanes[1].magnitudes[i])) << i;
      EXPECT_EQ(Bits(lanes[0].squares[i]), Bits(lanes[1].squares[i])) << i;
    }
  }
#endif
}

TEST(TensorSums, PortableRoundsAgree) {
  ExpectPortableRoundsAgree<BF16Values>();
  ExpectPortableRoundsAgree<F16Values>();
  ExpectPortableRoundsAgree<F32Values>();
}

// Compares with the loops of machines without AVX2, on words of W.
template <typename W>
void ExpectPortableLoopsAgree(DType t) {
  for (int kind = 0; kind < static_cast<int>(Kind::kCount); ++kind) {
    constexpr int64_t kCount = 5 * kChunk;
    std::vector<std::byte> data = ValuesMaker(11).Make(t, static_cast<Kind>(kind), kCount);
    TensorStats stats;
    ASSERT_TRUE(MeasureTensor(TensorView::Dense(data.data(), t, kCount), &stats).ok());
    TensorTotals totals(t);
    WordMeasure<W, PortableLoops> words(&totals);
    for (int64_t i = 0; i < kCount; i += kChunk) {
      words.Measure(reinterpret_cast<W*>(data.data()) + i, kChunk, 0, {&totals.whole, nullptr});
    }
    words.Finish();
    totals.count = kCount;
    totals.digest = {stats.digest_low, stats.digest_high};
    TensorStats found = totals.Finish();
    if (SummedByTiles(t)) {  // their sums do not use words
      found.sum = stats.sum;
      found.sum_low = stats.sum_low;
      found.sum_squares = stats.sum_squares;
      found.sum_squares_low = stats.sum_squares_low;
      found.l1 = stats.l1;
    }
    ExpectSame(found, stats);
    const Digest digest = PortableLoops::DigestWords(data.data(), 256, {1, 2});
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
      const Digest other = Avx2Loops::DigestWords(data.data(), 256, {1, 2});
      EXPECT_EQ(digest.low, other.low);
      EXPECT_EQ(digest.high, other.high);
    }
#endif
  }
}

TEST(TensorSums, PortableLoopsAgree) {
  ExpectPortableLoopsAgree<uint64_t>(DType::kF64);
  ExpectPortableLoopsAgree<uint32_t>(DType::kF32);
  ExpectPortableLoopsAgree<uint16_t>(DType::kBF16);
}

}  // namespace
}  // namespace plumbline
