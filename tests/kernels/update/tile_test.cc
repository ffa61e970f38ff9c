// The emulated device forms of the update check and of the sampled gather equal the CPU references
// in every bit.
#include "kernels/update/tile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "kernels/sample/gather.h"
#include "tests/kernels/device/emulated_batch.h"
#include "tests/kernels/update/batch_case.h"

namespace plumbline {
namespace {

TEST(UpdateTile, ManyUpdatesEqualTheCpuReferenceInEveryBit) {
  const UpdateBatchCase c(1);
  const absl::StatusOr<UpdateBatch> batch = UpdateBatch::Plan(c.updates());
  ASSERT_TRUE(batch.ok()) << batch.status();
  std::vector<uint64_t> results(batch->shape().result_bytes / 8);
  auto* to = reinterpret_cast<std::byte*>(results.data());
  struct Block {
    size_t item;
    int64_t first;
  };
  std::vector<Block> blocks;
  for (size_t i = 0; i < batch->items().size(); ++i) {
    for (int64_t at = 0; at < batch->items()[i].count; at += kUpdateBlock)
      blocks.push_back({i, at});
  }
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937_64(3));
  for (const Block& block : blocks) {
    EmulateBlock(batch->items()[block.item], block.first, to);
  }
  c.ExpectCpuReferences(batch->Finish(to));
}

TEST(UpdateBatch, BatchesThatDoNotFitAreRefused) {
  const float x[4] = {};
  const TensorView v = TensorView::Dense(x, DType::kF32, 4);
  TensorView other = TensorView::Dense(x, DType::kF32, 3);
  const UpdateViews bad[] = {{v, v, v}, {v, v, other}};
  EXPECT_THAT(std::string(UpdateBatch::Plan(bad).status().message()),
              testing::StartsWith("update 1: intended: "));
  other = v;
  other.device = 1;
  const UpdateViews apart[] = {{v, v, v}, {other, other, other}};
  EXPECT_FALSE(UpdateBatch::Plan(apart).ok());
}

TEST(GatherBatch, ManyGathersEqualTheCpuReference) {
  std::vector<ValuesCase> cases;
  std::vector<std::vector<uint64_t>> indices;
  std::vector<GatherRequest> requests;
  int layout = 0;
  for (const DType t : {DType::kF64, DType::kF32, DType::kBF16, DType::kE4M3, DType::kI64}) {
    for (const int64_t n : {1, 10, 840}) {
      layout += layout % 6 == 0 ? 2 : 1;  // the device's data is aligned
      cases.push_back(Lay(t, ValuesMaker(5).Make(t, Kind::kNormal, n), layout));
    }
  }
  for (const ValuesCase& c : cases) {
    indices.push_back(SampleIndices(8, static_cast<uint64_t>(c.view.elements()), 50));
  }
  for (size_t i = 0; i < cases.size(); ++i) requests.push_back({cases[i].view, indices[i]});
  const absl::StatusOr<GatherBatch> batch = GatherBatch::Plan(requests);
  ASSERT_TRUE(batch.ok()) << batch.status();
  std::vector<uint64_t> results(batch->shape().result_bytes / 8);
  auto* to = reinterpret_cast<std::byte*>(results.data());
  for (const GatherItem& item : batch->items()) EmulateGather(item, batch->indices().data(), to);
  const auto gathered = batch->Finish(to);
  for (size_t i = 0; i < cases.size(); ++i) {
    std::vector<std::byte> host(indices[i].size() * DTypeSize(cases[i].view.dtype));
    ASSERT_TRUE(GatherSamples(cases[i].view, indices[i], host.data()).ok());
    EXPECT_EQ(gathered[i], host) << i;
  }
  const uint64_t beyond[] = {0, 4};
  const float x[4] = {};
  const GatherRequest bad[] = {{TensorView::Dense(x, DType::kF32, 4), beyond}};
  EXPECT_EQ(GatherBatch::Plan(bad).status().message(),
            "tensor 0: expected indices less than 4, found 4");
}

}  // namespace
}  // namespace plumbline
