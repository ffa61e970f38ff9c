// Tests batches whose items are arguments: split into as few launches as possible, each complete;
// the last block of a launch writes the results and leaves zeros.
#include "kernels/sample/eager.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/tensor/batch.h"
#include "kernels/update/batch.h"
#include "tests/kernels/device/emulated_block.h"

namespace plumbline {
namespace {

// Returns a batch of tensors with these numbers of elements.
TensorBatch BatchOf(const std::vector<int64_t>& counts, const float* values) {
  std::vector<TensorView> views;
  for (const int64_t n : counts) views.push_back(TensorView::Dense(values, DType::kF32, n));
  absl::StatusOr<TensorBatch> batch = TensorBatch::Plan(views);
  EXPECT_TRUE(batch.ok()) << batch.status();
  return *std::move(batch);
}

// Every item is in one launch, at its place, including empty tensors.
TEST(BatchLaunches, AreAsFewAsTakeTheItemsAndEachIsWhole) {
  const std::vector<float> values(100'000, 1);
  for (const size_t n : {0, 1, 14, 15, 16, 30, 64}) {
    SCOPED_TRACE(n);
    std::vector<int64_t> counts(n);
    for (size_t i = 0; i < n; ++i) counts[i] = static_cast<int64_t>(i % 5) * 25'000;
    const TensorBatch batch = BatchOf(counts, values.data());
    std::vector<std::byte> items(batch.shape().bytes() + 1);
    batch.Put(items.data());
    size_t launches = 0, seen = 0;
    int64_t spans = 0;
    uint64_t results = 0;
    const auto run = [&](const ItemArguments<TensorItem, kTensorsOfLaunch>& arguments, int64_t span,
                         uint64_t result) {
      ++launches;
      EXPECT_EQ(span, spans);
      EXPECT_EQ(result, results);
      for (int i = 0; i < arguments.count; ++i, ++seen) {
        const TensorItem& item = arguments.items()[i];
        EXPECT_EQ(item.count, counts[seen]);
        EXPECT_EQ(item.first_span + span, batch.items()[seen].first_span);
        EXPECT_EQ(item.result + result, batch.items()[seen].result);
        EXPECT_LT(item.result, arguments.result_bytes);
        EXPECT_LE(item.first_span, arguments.spans);
      }
      spans += arguments.spans;
      results += arguments.result_bytes;
      return 0;
    };
    EXPECT_EQ((ForEachLaunch<TensorItem, kTensorsOfLaunch>(batch.shape(), items.data(), run)), 0);
    EXPECT_EQ(launches, (n + kTensorsOfLaunch - 1) / kTensorsOfLaunch);
    EXPECT_EQ(seen, n);
    EXPECT_EQ(spans, batch.shape().work);
    EXPECT_EQ(results, batch.shape().result_bytes);
  }
}

TEST(BatchLaunches, TheFirstFailureEndsThem) {
  const float value = 1;
  const TensorBatch batch = BatchOf(std::vector<int64_t>(40, 1), &value);
  int launches = 0;
  const auto run = [&](const auto&, int64_t, uint64_t) { return ++launches == 2 ? 700 : 0; };
  EXPECT_EQ((ForEachLaunch<TensorItem, kTensorsOfLaunch>(batch.shape(), batch.items().data(), run)),
            700);
  EXPECT_EQ(launches, 2);
}

// The arguments of a kernel are within the limit of every driver.
TEST(BatchLaunches, ArgumentsFit) {
  constexpr size_t kBesides =
      sizeof(SampledPart) + sizeof(EagerCall) + sizeof(GraphCall) + 2 * sizeof(void*);
  EXPECT_LE(sizeof(ItemArguments<TensorItem, kTensorsOfLaunch>) + kBesides, kArgumentBytes);
  EXPECT_LE(sizeof(ItemArguments<UpdateItem, kUpdatesOfLaunch>) + kBesides, kArgumentBytes);
  EXPECT_LE(sizeof(ItemArguments<GatherItem, kGathersOfLaunch>), kArgumentBytes);
}

// Blocks in any order: the last one writes the results once, and leaves zeros.
TEST(EagerBlock, TheLastOneWritesTheResults) {
  for (const uint32_t blocks : {1u, 2u, 5u, 40u}) {
    for (const size_t words : {size_t{1}, size_t{7}, size_t{100}}) {
      SCOPED_TRACE(testing::Message() << blocks << " blocks, " << words << " words");
      uint32_t arrived = 0;
      std::vector<uint32_t> results(words), pinned(words + 1, 9);
      const EagerCall call{&arrived, results.data(), pinned.data(), words};
      for (int launch = 0; launch < 2; ++launch) {  // the second launch uses the memory as the
                                                    // first one left it
        for (uint32_t number = 0; number < blocks; ++number) {
          for (uint32_t& word : results) word += number + 1;
          uint32_t last = 77;
          EndEager(EmulatedBlock{7, {}}, call, 7, blocks, &last);
          EXPECT_EQ(last, number + 1 == blocks ? 1u : 0u);
        }
        EXPECT_EQ(std::vector<uint32_t>(pinned.begin(), pinned.end() - 1),
                  std::vector<uint32_t>(words, blocks * (blocks + 1) / 2));
        EXPECT_EQ(pinned.back(), 9u);
        EXPECT_EQ(results, std::vector<uint32_t>(words));
        EXPECT_EQ(arrived, 0u);
        std::fill(pinned.begin(), pinned.end() - 1, 3u);
      }
    }
  }
}

// All elements are copied, for any number of blocks. Blocks beyond the copiers do not write twice.
TEST(EagerBlock, ElementsOfSeveralTensorsLeave) {
  constexpr int64_t kEach = 11;
  std::vector<float> values(6 * 100);
  std::iota(values.begin(), values.end(), 0.0f);
  for (const uint32_t blocks : {1u, 3u, 16u, 40u}) {
    SCOPED_TRACE(blocks);
    std::vector<uint64_t> indices(6 * kEach);
    std::array<float, 6 * 16> gathered{};
    SampledPart part;
    part.gathers = 6;
    part.samples = 6 * kEach;
    for (int64_t t = 0; t < 6; ++t) {
      GatherItem item = PlanItem(
          TensorView::Dense(&values[100 * static_cast<size_t>(t)], DType::kF32, 100), kEach);
      item.first_span = t * kEach;
      item.result = static_cast<uint64_t>(t) * 64;
      part.gather[t] = item;
      for (int64_t i = 0; i < kEach; ++i)
        indices[static_cast<size_t>(t * kEach + i)] = static_cast<uint64_t>(7 * i + t);
    }
    part.indices = indices.data();
    part.gathered = reinterpret_cast<unsigned char*>(gathered.data());
    for (uint32_t number = blocks; number-- > 0;)
      BeginEager(EmulatedBlock{7, {}}, part, 7, number, blocks);
    for (size_t t = 0; t < 6; ++t) {
      for (size_t i = 0; i < kEach; ++i)
        EXPECT_EQ(gathered[16 * t + i], static_cast<float>(100 * t + 7 * i + t));
    }
  }
}

TEST(EagerBlock, ARowOfAnyStrideLeaves) {
  std::vector<uint16_t> values(5000);
  std::iota(values.begin(), values.end(), uint16_t{0});
  for (const int64_t n : {1, 6, 7, 8, 1000, 1667}) {
    for (const int64_t stride : {1, 3}) {
      for (const uint32_t blocks : {1u, 16u, 40u}) {
        std::vector<uint16_t> row(static_cast<size_t>(n) + 1, 9);
        SampledPart part;
        part.copies = 1;
        part.row = {values.data(), 1, n, 0, stride, 0, 2, 0};
        part.row_to = reinterpret_cast<unsigned char*>(row.data());
        for (uint32_t number = 0; number < blocks; ++number)
          BeginEager(EmulatedBlock{7, {}}, part, 7, number, blocks);
        for (int64_t i = 0; i < n; ++i)
          ASSERT_EQ(row[static_cast<size_t>(i)], static_cast<uint16_t>(i * stride));
        EXPECT_EQ(row.back(), 9);
      }
    }
  }
}

}  // namespace
}  // namespace plumbline
