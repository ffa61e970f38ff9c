// The device form of tensor statistics, with 32 emulated lanes and spans in any order, equals the
// CPU reference in every bit.
#include "kernels/tensor/tile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/kernels/device/emulated_batch.h"
#include "tests/kernels/device/values_case.h"
#include "tests/kernels/tensor/stats_equal.h"

namespace plumbline {
namespace {

std::vector<TensorStats> Emulate(const TensorBatch& batch, uint64_t seed) {
  std::vector<uint64_t> results(batch.shape().result_bytes / 8);
  struct Span {
    const TensorItem* item;
    int64_t first;
  };
  std::vector<Span> spans;
  for (const TensorItem& item : batch.items()) {
    for (int64_t at = 0; at < item.count; at += SpanElements(item.dtype))
      spans.push_back({&item, at});
  }
  EXPECT_EQ(static_cast<int64_t>(spans.size()), batch.shape().work);
  std::shuffle(spans.begin(), spans.end(), std::mt19937_64(seed));
  auto* to = reinterpret_cast<std::byte*>(results.data());
  for (const Span& span : spans) EmulateSpan(*span.item, span.first, to);
  return batch.Finish(to);
}

TEST(TensorTile, ManyTensorsEqualTheCpuReferenceInEveryBit) {
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
  // All elements are measured, or those of drawn tiles.
  for (const int64_t fits_of_all : {kFitsOfAll, int64_t{0}}) {
    SCOPED_TRACE(testing::Message() << "fits of all up to " << fits_of_all);
    const absl::StatusOr<TensorBatch> batch = TensorBatch::Plan(views, fits_of_all);
    ASSERT_TRUE(batch.ok()) << batch.status();
    const std::vector<TensorStats> device = Emulate(*batch, 1 + static_cast<uint64_t>(fits_of_all));
    ASSERT_EQ(device.size(), views.size());
    for (size_t i = 0; i < views.size(); ++i) {
      TensorStats host;
      ASSERT_TRUE(MeasureTensor(views[i], &host, 1, fits_of_all).ok());
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
