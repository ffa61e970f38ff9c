// Converts tensors and routing measurements to messages and back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/evidence/routing.h"
#include "kernels/evidence/tensor.h"
#include "tests/kernels/routing/case.h"

namespace plumbline {
namespace {

using testing::HasSubstr;

TEST(TensorEvidence, PacksEveryLayoutDense) {
  RoutingCase c;
  const auto f = [](int64_t i, int64_t j) { return static_cast<double>(i * 10 + j); };
  for (DType t : {DType::kF64, DType::kF32, DType::kBF16, DType::kI16, DType::kU8}) {
    std::string dense;
    for (Layout layout : {Layout::kDense, Layout::kTransposed, Layout::kNegative, Layout::kPadded,
                          Layout::kUnaligned}) {
      const TensorView view = MakeTensor(&c, t, 5, 7, layout, f);
      v1::Tensor tensor;
      ASSERT_TRUE(PackTensor(view, &tensor).ok());
      ASSERT_EQ(tensor.data().size(), 35 * DTypeSize(t));
      EXPECT_EQ(PackedBytes(view), tensor.data().size());
      if (layout == Layout::kDense) dense = tensor.data();
      EXPECT_EQ(tensor.data(), dense);
      const auto back = ViewTensor(tensor, "x");
      ASSERT_TRUE(back.ok()) << back.status();
      EXPECT_TRUE(back->contiguous());
      for (int64_t i = 0; i < 5; ++i) {
        for (int64_t j = 0; j < 7; ++j) EXPECT_EQ(DoubleAt(*back, i, j), f(i, j));
      }
    }
  }
}

TEST(TensorEvidence, PacksBroadcastsPartialRunsScalarsAndNothing) {
  const float row[3] = {1, 2, 3};
  TensorView v = TensorView::Dense(row, DType::kF32, 4, 3);
  v.stride[0] = 0;
  v1::Tensor tensor;
  ASSERT_TRUE(PackTensor(v, &tensor).ok());
  float out[12];
  ASSERT_EQ(tensor.data().size(), sizeof(out));
  std::memcpy(out, tensor.data().data(), sizeof(out));
  for (int i = 0; i < 12; ++i) EXPECT_EQ(out[i], row[i % 3]);

  // [2, 2, 3] with dense rows and planes that are not dense.
  int32_t planes[20];
  for (int i = 0; i < 20; ++i) planes[i] = i;
  v = TensorView::Dense(planes, DType::kI32, 2, 2, 3);
  v.stride[0] = 10;
  ASSERT_TRUE(PackTensor(v, &tensor).ok());
  int32_t got[12];
  std::memcpy(got, tensor.data().data(), sizeof(got));
  EXPECT_THAT(got, testing::ElementsAre(0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15));

  ASSERT_TRUE(PackTensor(TensorView::Dense(row, DType::kF32), &tensor).ok());
  EXPECT_EQ(tensor.data().size(), 4u);
  ASSERT_TRUE(PackTensor(TensorView::Dense(nullptr, DType::kF32, 0, 3), &tensor).ok());
  EXPECT_EQ(tensor.data().size(), 0u);
  EXPECT_TRUE(ViewTensor(tensor, "x").ok());
  EXPECT_FALSE(PackTensor(TensorView{}, &tensor).ok());
}

v1::Tensor Message(v1::DType t, std::vector<int64_t> shape, size_t bytes) {
  v1::Tensor tensor;
  tensor.set_dtype(t);
  for (int64_t n : shape) tensor.add_shape(n);
  tensor.set_data(std::string(bytes, '\1'));
  return tensor;
}

TEST(TensorEvidence, RefusesMessagesThatDoNotAddUp) {
  const auto error = [](const v1::Tensor& t) {
    return std::string(ViewTensor(t, "keep_mask").status().message());
  };
  EXPECT_EQ(error(Message(v1::DTYPE_F32, {2, 3}, 24)), "");
  EXPECT_EQ(error(Message(v1::DTYPE_F32, {2, 3}, 23)),
            "keep_mask: expected 24 bytes of data, found 23");
  EXPECT_EQ(error(Message(v1::DTYPE_F32, {}, 0)), "keep_mask: expected 4 bytes of data, found 0");
  EXPECT_EQ(error(Message(v1::DTYPE_F32, {-1, -1}, 4)),
            "keep_mask: expected extents >= 0, found -1 in axis 1");
  EXPECT_EQ(error(Message(v1::DTYPE_UNSPECIFIED, {1}, 1)),
            "keep_mask: expected a known dtype, found 0");
  EXPECT_EQ(error(Message(static_cast<v1::DType>(99), {1}, 1)),
            "keep_mask: expected a known dtype, found 99");
  EXPECT_THAT(error(Message(v1::DTYPE_F32, std::vector<int64_t>(9, 1), 4)),
              HasSubstr("at most 8 axes"));
  const int64_t big = int64_t{1} << 62;
  EXPECT_THAT(error(Message(v1::DTYPE_F32, {big, 4}, 0)), HasSubstr("a size in 64 bits"));
  EXPECT_THAT(error(Message(v1::DTYPE_F64, {big / 2, 4}, 0)), HasSubstr("a size in 64 bits"));
}

// A measurement survives the message: the views of the sample give the same statistics.
TEST(RoutingEvidence, ASampleGivesTheSameMeasurementBack) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const RoutingCase c = CaseMaker(seed).Make();
    RoutingStats stats;
    ASSERT_TRUE(SummariseRouting(c.in, &stats).ok());
    v1::Routing message;
    ASSERT_TRUE(FillRouting(c.in, stats, true, kMaxSampleBytes, &message).ok());
    ASSERT_TRUE(message.has_sample());
    EXPECT_EQ(message.config().experts(), static_cast<uint32_t>(c.in.scores.shape[1]));

    v1::Routing copy;
    ASSERT_TRUE(copy.ParseFromString(message.SerializeAsString()));
    const auto view = ViewRouting(copy);
    ASSERT_TRUE(view.ok()) << view.status();
    RoutingStats again;
    ASSERT_TRUE(SummariseRouting(*view, &again).ok());
    v1::RoutingSummary summary;
    FillRoutingSummary(again, &summary);
    EXPECT_EQ(summary.SerializeAsString(), message.summary().SerializeAsString());
  }
}

TEST(RoutingEvidence, ASampleAboveTheLimitReportsIt) {
  RoutingCase c;
  c.in.top_k = 1;
  c.in.scores = MakeTensor(&c, DType::kF32, 10, 4, Layout::kDense,
                           [](int64_t, int64_t j) { return static_cast<double>(j); });
  RoutingStats stats;
  ASSERT_TRUE(SummariseRouting(c.in, &stats).ok());
  v1::Routing message;
  ASSERT_TRUE(FillRouting(c.in, stats, true, 159, &message).ok());
  EXPECT_FALSE(message.has_sample());
  EXPECT_EQ(message.no_sample_reason(), "a sample of 160 bytes exceeds the limit of 159 bytes");
  EXPECT_EQ(ViewRouting(message).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(FillRouting(c.in, stats, true, 160, &message).ok());
  EXPECT_TRUE(message.has_sample());
  EXPECT_TRUE(message.no_sample_reason().empty());
}

TEST(RoutingEvidence, ConfigurationOfTheRecorderIsKept) {
  RoutingCase c = CaseMaker(1).Make();
  v1::Routing message;
  message.mutable_config()->set_mode("train");
  message.mutable_config()->set_capacity(7);
  RoutingStats stats;
  ASSERT_TRUE(SummariseRouting(c.in, &stats).ok());
  ASSERT_TRUE(FillRouting(c.in, stats, false, 0, &message).ok());
  EXPECT_EQ(message.config().mode(), "train");
  EXPECT_EQ(message.config().capacity(), 7u);
  EXPECT_EQ(message.config().top_k(), static_cast<uint32_t>(c.in.top_k));
  EXPECT_FALSE(message.has_sample());
}

TEST(RoutingEvidence, DamagedSamplesAreNamed) {
  RoutingCase c;
  c.in.top_k = 1;
  c.in.scores = MakeTensor(&c, DType::kF32, 2, 4, Layout::kDense,
                           [](int64_t, int64_t j) { return static_cast<double>(j); });
  v1::Routing message;
  ASSERT_TRUE(FillRouting(c.in, RoutingStats{}, true, kMaxSampleBytes, &message).ok());
  *message.mutable_sample()->mutable_position() = Message(v1::DTYPE_I32, {2}, 7);
  EXPECT_EQ(ViewRouting(message).status().message(), "position: expected 8 bytes of data, found 7");
  message.mutable_sample()->clear_position();
  message.mutable_config()->set_top_k(0xffffffffu);
  EXPECT_FALSE(ViewRouting(message).ok());
}

}  // namespace
}  // namespace plumbline
