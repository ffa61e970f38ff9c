// Tensors of any strides that are measured in pieces from a file give the same values as in memory.
#include "audit/readers/checkpoint/scan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "audit/readers/checkpoint/place.h"
#include "audit/readers/checkpoint/row_digests.h"
#include "tests/kernels/tensor/stats_equal.h"
#include "tests/support/files.h"

namespace plumbline::audit {
namespace {

struct Storage {
  explicit Storage(size_t bytes) : data(bytes, '\0') {
    std::mt19937_64 random(5);
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
      const uint64_t word = random();
      std::memcpy(data.data() + i, &word, 8);
    }
    path = folder.Write("storage", "head" + data);
  }

  test::TempFolder folder;
  std::string data, path;
};

StoredTensor Stored(const Storage& storage, DType dtype, std::vector<int64_t> shape,
                    std::vector<int64_t> stride, int64_t offset) {
  StoredTensor tensor;
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  tensor.stride = std::move(stride);
  tensor.first = 4;
  tensor.last = 4 + storage.data.size();
  tensor.begin = 4 + static_cast<uint64_t>(offset) * DTypeSize(dtype);
  return tensor;
}

TensorView ViewOf(const std::string& data, const StoredTensor& tensor) {
  TensorView view;
  view.data = data.data() + (tensor.begin - tensor.first);
  view.dtype = tensor.dtype;
  view.rank = static_cast<int>(tensor.shape.size());
  std::copy(tensor.shape.begin(), tensor.shape.end(), view.shape.begin());
  std::copy(tensor.stride.begin(), tensor.stride.end(), view.stride.begin());
  return view;
}

void ExpectAsInMemory(const Storage& storage, StoredTensor tensor) {
  ASSERT_EQ(CheckStored(tensor), "");
  auto file = InputFile::Open(storage.path);
  ASSERT_TRUE(file.ok());
  TensorScan scan;
  for (const bool swapped : {false, true}) {
    std::string data = storage.data;
    const size_t width = DTypeSize(tensor.dtype);
    for (size_t i = 0; swapped && i + width <= data.size(); i += width)
      std::reverse(data.begin() + static_cast<long>(i),
                   data.begin() + static_cast<long>(i + width));
    tensor.swapped = swapped;
    TensorStats found, expected;
    ASSERT_TRUE(scan.Measure(*file, tensor, &found).ok());
    ASSERT_TRUE(MeasureTensor(ViewOf(data, tensor), &expected).ok());
    ExpectSame(found, expected);
  }
}

TEST(TensorScan, SmallTensorsOfAllStrides) {
  const Storage storage(1 << 16);
  std::mt19937 random(3);
  const DType types[] = {DType::kF64, DType::kF32, DType::kBF16, DType::kI64, DType::kU8};
  for (int round = 0; round < 200; ++round) {
    const DType dtype = types[random() % std::size(types)];
    std::vector<int64_t> shape, stride;
    for (uint32_t axes = random() % 4; axes-- > 0;) {
      shape.push_back(random() % 7);
      stride.push_back(random() % 60);
    }
    SCOPED_TRACE(round);
    ExpectAsInMemory(storage, Stored(storage, dtype, shape, stride, random() % 100));
    if (HasFailure()) return;
  }
}

TEST(TensorScan, TensorsLargerThanThePieces) {
  const Storage storage(size_t{40} << 20);
  const auto expect = [&](std::vector<int64_t> shape, std::vector<int64_t> stride, int64_t offset) {
    SCOPED_TRACE(testing::Message() << "offset " << offset << " shape " << shape[0]);
    ExpectAsInMemory(storage, Stored(storage, DType::kBF16, shape, stride, offset));
  };
  expect({20'000'001}, {1}, 7);               // dense
  expect({4001, 5000}, {1, 4001}, 3);         // turned
  expect({3, 2500, 2600}, {1, 7800, 3}, 1);   // innermost axis outside
  expect({1, 9'000'000}, {5, 2}, 0);          // every second one
  expect({3000, 40, 90}, {5000, 90, 1}, 11);  // a part of each row
  expect({7, 3'000'000}, {0, 1}, 5);          // a row that is repeated
  expect({9000, 1000}, {1, 18'000}, 0);       // far apart
}

TEST(CheckStored, Refuses) {
  const Storage storage(4096);
  const auto bad = [&](std::vector<int64_t> shape, std::vector<int64_t> stride, int64_t offset) {
    return CheckStored(Stored(storage, DType::kF32, shape, stride, offset));
  };
  EXPECT_EQ(bad({32, 32}, {32, 1}, 0), "");
  EXPECT_NE(bad({32, 32}, {32, 1}, 1), "");
  EXPECT_NE(bad({32, 33}, {32, 1}, 0), "");
  EXPECT_NE(bad({-1}, {1}, 0), "");
  EXPECT_NE(bad({2}, {-1}, 1), "");
  EXPECT_NE(bad({INT64_MAX, INT64_MAX}, {1, 1}, 0), "");
  EXPECT_NE(bad({2, 2}, {INT64_MAX, 1}, 0), "");
  EXPECT_NE(bad({int64_t{1} << 40}, {0}, 0), "");  // more work than bytes
  EXPECT_NE(bad({1}, {1}, 1 << 20), "");
  EXPECT_NE(bad({2}, {}, 0), "");
  EXPECT_NE(bad(std::vector<int64_t>(9, 1), std::vector<int64_t>(9, 1), 0), "");
  EXPECT_EQ(bad({0, INT64_MAX}, {INT64_MAX, 1}, 0), "");
}

TEST(PlaceOf, StepsRunsAndRanks) {
  const auto step = [](const char* path) { return PlaceOf(path).step.value_or(-1); };
  EXPECT_EQ(step("/r/step-1000/model.pt"), 1000);
  EXPECT_EQ(step("/r/global_step500/mp_rank_00_model_states.pt"), 500);
  EXPECT_EQ(step("/r/iter_0001000/mp_rank_00/model_optim_rng.pt"), 1000);
  EXPECT_EQ(step("/r/checkpoint-1500/model-00001-of-00002.safetensors"), 1500);
  EXPECT_EQ(step("/r/ckpt_1000.pt"), 1000);
  EXPECT_EQ(step("/r/epoch=3-step=1200.ckpt"), 1200);
  EXPECT_EQ(step("/r/model-00001-of-00002.safetensors"), -1);
  EXPECT_EQ(step("/r/footstep3/model.pt"), -1);
  EXPECT_EQ(step("/r/step-99999999999999999999/model.pt"), -1);
  EXPECT_EQ(PlaceOf("/a/exp/step-1000/model.pt").run, "exp");
  EXPECT_EQ(PlaceOf("/a/exp/ckpt_5.pt").run, "exp");
  EXPECT_EQ(PlaceOf("/a/exp/last.pt").run, "exp");
  EXPECT_EQ(PlaceOf("/a/exp/iter_1/mp_rank_03_002/model_optim_rng.pt").run, "exp");
  const RankTag tag = RankOfPath("/a/exp/iter_1/mp_rank_03_002/model_optim_rng.pt");
  EXPECT_TRUE(tag.ranked && !tag.shard);
  EXPECT_EQ(tag.tensor, 3u);
  EXPECT_EQ(tag.stage, 2u);
  const RankTag zero = RankOfPath("/g/zero_pp_rank_7_mp_rank_01_optim_states.pt");
  EXPECT_TRUE(zero.ranked && zero.shard);
  EXPECT_EQ(zero.data, 7u);
  EXPECT_EQ(zero.tensor, 1u);
}

// Rows of 67 elements of 2 bytes end within a word; for any cut of the bytes, the same rows repeat.
TEST(RowDigests, AnyCutGivesTheSameRows) {
  StoredTensor tensor;
  tensor.dtype = DType::kBF16;
  tensor.shape = {50, 67};
  ASSERT_TRUE(RowDigests::Suits(tensor));
  constexpr size_t kRow = 67 * 2;
  std::mt19937_64 random(3);
  std::string data(50 * kRow, '\0');
  for (char& c : data) c = static_cast<char>(random());
  data.replace(9 * kRow, kRow, data.substr(4 * kRow, kRow));
  data.replace(49 * kRow, kRow, std::string(kRow, '\0'));
  data.replace(20 * kRow, kRow, data.substr(21 * kRow, kRow));
  data[21 * kRow - 1] = static_cast<char>(data[21 * kRow - 1] ^ 1);  // one bit of the last element
  for (int trial = 0; trial < 200; ++trial) {
    RowDigests rows(tensor);
    for (size_t at = 0; at < data.size();) {
      const size_t part =
          std::min<size_t>(data.size() - at, 1 + random() % (trial < 100 ? 9 : 999));
      const std::string piece = data.substr(at, part);
      rows.Add(reinterpret_cast<const std::byte*>(piece.data()), part);
      at += part;
    }
    const std::vector<RepeatedRow> found = rows.Repeated();
    ASSERT_EQ(found.size(), 3u);
    EXPECT_EQ(found[0].row, 4u);
    EXPECT_EQ(found[1].row, 9u);
    EXPECT_EQ(found[0].digest, found[1].digest);
    EXPECT_EQ(found[2].row, 49u);
    EXPECT_EQ(found[2].digest, 0u);
    EXPECT_EQ(rows.looked_at(), 50u);
  }
}

}  // namespace
}  // namespace plumbline::audit
