// The device form of tensor statistics, with 32 emulated lanes and spans in any order, equals the
// host twin in every bit.
#include "kernels/tensor_tile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "tests/kernels/emulated_warp.h"
#include "tests/kernels/tensor_stats_equal.h"
#include "tests/kernels/values_case.h"

namespace plumbline {
namespace {

// Adds to the results as the device's atomics do.
struct PlainSink {
  TensorRaw* raw;
  uint64_t* exponents;

  void Exponent(int index) { ++exponents[index]; }
  void Wide(int which, Uint128 v, int exponent, bool negative) {
    SplitDigits(v, exponent, [&](int i, int64_t part) {
      raw->wides[which].digit[i] += negative ? -part : part;
    });
  }
  void Count(int i, uint64_t n) { raw->counts[i] += n; }
  void AddDigest(Digest digest) {
    raw->digest.low += digest.low;
    raw->digest.high += digest.high;
  }
  void Extremes(uint64_t highest, uint64_t lowest_flipped) {
    raw->highest = std::max(raw->highest, highest);
    raw->lowest_flipped = std::max(raw->lowest_flipped, lowest_flipped);
  }
};

template <typename W, typename Raw>
void MeasureSpan(const TensorItem& item, int64_t first, PlainSink* sink) {
  using Measure = TileMeasure<EmulatedWarp, PlainSink, W, Raw>;
  // Two warps, that take turns.
  Measure warps[] = {Measure(item, &kDigestTable, sink), Measure(item, &kDigestTable, sink)};
  const int64_t end = std::min(item.count, first + kSpanElements);
  for (int64_t at = first; at < end; at += kTileElements) {
    warps[at / kTileElements % 2].Measure(at);
  }
  for (Measure& warp : warps) warp.Finish();
}

std::vector<TensorStats> Emulate(const TensorBatch& batch, uint64_t seed) {
  std::vector<uint64_t> results(batch.result_bytes() / 8);
  struct Span {
    const TensorItem* item;
    int64_t first;
  };
  std::vector<Span> spans;
  for (const TensorItem& item : batch.items()) {
    for (int64_t at = 0; at < item.count; at += kSpanElements) spans.push_back({&item, at});
  }
  EXPECT_EQ(static_cast<int64_t>(spans.size()), batch.spans());
  std::shuffle(spans.begin(), spans.end(), std::mt19937_64(seed));
  for (const Span& span : spans) {
    auto* raw = reinterpret_cast<TensorRaw*>(results.data() + span.item->result / 8);
    PlainSink sink{raw, reinterpret_cast<uint64_t*>(raw + 1)};
    switch (span.item->dtype) {
      case DType::kF64:
        MeasureSpan<uint64_t, uint64_t>(*span.item, span.first, &sink);
        break;
      case DType::kF32:
        MeasureSpan<uint32_t, uint32_t>(*span.item, span.first, &sink);
        break;
      case DType::kF16:
      case DType::kBF16:
        MeasureSpan<uint32_t, uint16_t>(*span.item, span.first, &sink);
        break;
      default:
        MeasureSpan<uint32_t, uint8_t>(*span.item, span.first, &sink);
    }
  }
  return batch.Finish(reinterpret_cast<const std::byte*>(results.data()));
}

TEST(TensorTile, ManyTensorsEqualTheHostTwinInEveryBit) {
  std::vector<ValuesCase> cases;
  std::vector<TensorView> views;
  int layout = 0;
  for (const DType t : kFloatingTypes) {
    for (int kind = 0; kind < static_cast<int>(Kind::kCount); ++kind) {
      for (const int64_t n : {0, 1, 3, 33, 128, 1000, 1024, 1025, 5000}) {
        ++layout;
        if (layout % 6 == 1) ++layout;  // the device's data is aligned
        cases.push_back(
            Lay(t, ValuesMaker(static_cast<uint64_t>(layout)).Make(t, static_cast<Kind>(kind), n),
                layout));
      }
    }
    cases.push_back(Lay(t, ValuesMaker(1).Make(t, Kind::kNormal, 70001), 0));
    cases.push_back(Lay(t, ValuesMaker(1).Make(t, Kind::kFinite, 66000), 3));
  }
  for (const ValuesCase& c : cases) views.push_back(c.view);
  const absl::StatusOr<TensorBatch> batch = TensorBatch::Plan(views);
  ASSERT_TRUE(batch.ok()) << batch.status();
  for (const uint64_t seed : {1, 2}) {
    const std::vector<TensorStats> device = Emulate(*batch, seed);
    ASSERT_EQ(device.size(), views.size());
    for (size_t i = 0; i < views.size(); ++i) {
      TensorStats host;
      ASSERT_TRUE(MeasureTensor(views[i], &host).ok());
      SCOPED_TRACE(testing::Message()
                   << "tensor " << i << " " << DTypeName(views[i].dtype) << " n " << host.count);
      ExpectSame(device[i], host);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(TensorTile, BatchesThatDoNotFitAreRefused) {
  const float x[4] = {};
  TensorView views[] = {TensorView::Dense(x, DType::kF32, 4), TensorView::Dense(x, DType::kI32, 4)};
  EXPECT_EQ(TensorBatch::Plan(views).status().message(),
            "tensor 1: expected a floating dtype, found i32");
  views[1] = views[0];
  views[1].device = 2;
  EXPECT_FALSE(TensorBatch::Plan(views).ok());
  EXPECT_TRUE(TensorBatch::Plan({}).ok());
}

}  // namespace
}  // namespace plumbline
