// Converts states of tensors and updates to messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/load.h"
#include "kernels/evidence/tensor.h"
#include "kernels/evidence/tensor_state.h"
#include "kernels/evidence/update.h"
#include "kernels/sample/gather.h"
#include "tests/kernels/device/values_case.h"

namespace plumbline {
namespace {

std::vector<float> Counting(size_t n) {
  std::vector<float> x(n);
  std::iota(x.begin(), x.end(), 0.0f);
  return x;
}

std::vector<double> Numbers(const v1::Tensor& tensor) {
  const TensorView view = ViewTensor(tensor, "tensor").value();
  std::vector<double> out;
  for (int64_t i = 0; i < view.elements(); ++i) {
    out.push_back(LoadDouble(view.data, view.dtype, i));
  }
  return out;
}

TEST(TensorStateEvidence, SummaryComesBackAsItWas) {
  for (const DType t : kFloatingTypes) {
    const auto data = ValuesMaker(1).Make(t, Kind::kBits, 3000);
    TensorStateOptions options;
    options.role = "weight";
    options.target_format = DType::kE4M3;
    options.replicas = "dp";
    v1::TensorState state;
    const TensorView view = TensorView::Dense(data.data(), t, 30, 100);
    ASSERT_TRUE(FillTensorState(view, options, &state).ok());
    v1::TensorState copy;
    ASSERT_TRUE(copy.ParseFromString(state.SerializeAsString()));
    EXPECT_EQ(copy.role(), "weight");
    EXPECT_EQ(copy.replicas(), "dp");
    EXPECT_EQ(copy.target_format(), v1::DTYPE_E4M3);
    EXPECT_THAT(copy.shape(), testing::ElementsAre(30, 100));
    EXPECT_FALSE(copy.has_sample());
    TensorStats stats;
    ASSERT_TRUE(MeasureTensor(view, &stats).ok());
    v1::TensorSummary again;
    FillTensorSummary(StatsOf(copy.summary(), t), &again);
    v1::TensorSummary direct;
    FillTensorSummary(stats, &direct);
    EXPECT_EQ(again.SerializeAsString(), direct.SerializeAsString());
    EXPECT_EQ(direct.fits_size(), kFormatFits);
  }
}

TEST(TensorStateEvidence, ElementsAreSampledWithTheirOffsets) {
  const std::vector<float> x = Counting(100000);
  TensorStateOptions options;
  options.with_sample = true;
  options.key = SampleKey("run", 3, "layers.1", "weight");
  v1::TensorState state;
  TensorView view = TensorView::Dense(x.data(), DType::kF32, 1000, 100);
  ASSERT_TRUE(FillTensorState(view, options, &state).ok());
  const std::vector<uint64_t> drawn = SampleIndices(options.key, 100000);
  const std::vector<double> values = Numbers(state.sample().values());
  const std::vector<double> indices = Numbers(state.sample().offsets());
  EXPECT_EQ(indices, std::vector<double>(drawn.begin(), drawn.end()));
  ASSERT_EQ(values.size(), kMaxSamples);
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], indices[i]);
}

TEST(TensorStateEvidence, ProbabilitiesAndPositionsAreSampledInRows) {
  const std::vector<float> x = Counting(120000);
  for (const int64_t width : {1, 7, 100, 4096, 5000, 120000}) {
    TensorStateOptions options;
    options.role = "probabilities";
    options.with_sample = true;
    options.key = 99;
    const int64_t all = 120000 / width;
    v1::TensorState state;
    ASSERT_TRUE(
        FillTensorState(TensorView::Dense(x.data(), DType::kF32, all, width), options, &state)
            .ok());
    const v1::TensorSample& sample = state.sample();
    EXPECT_FALSE(sample.has_offsets());
    const int64_t rows = std::min(all, std::max<int64_t>(1, 4096 / width));
    EXPECT_THAT(sample.values().shape(), testing::ElementsAre(rows, width));
    const std::vector<double> values = Numbers(sample.values());
    const auto first = static_cast<double>(sample.first_row() * static_cast<uint64_t>(width));
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], first + static_cast<double>(i));
    }
  }
}

TEST(TensorStateEvidence, RowsBeyondTheLimitAreNotSampledAndItStatesWhy) {
  const std::vector<float> x = Counting(4000);
  TensorStateOptions options;
  options.role = "positions";
  options.with_sample = true;
  options.max_bytes = 15999;
  v1::TensorState state;
  ASSERT_TRUE(
      FillTensorState(TensorView::Dense(x.data(), DType::kF32, 1, 4000), options, &state).ok());
  EXPECT_FALSE(state.has_sample());
  EXPECT_THAT(state.no_sample_reason(), testing::HasSubstr("16000 bytes"));
}

TEST(TensorStateEvidence, StridedScalarAndEmptyTensors) {
  const std::vector<float> x = Counting(12);
  TensorStateOptions options;
  options.role = "positions";
  options.with_sample = true;
  v1::TensorState state;
  TensorView transposed = TensorView::Dense(x.data(), DType::kF32, 3, 4);
  std::swap(transposed.shape[0], transposed.shape[1]);
  std::swap(transposed.stride[0], transposed.stride[1]);
  ASSERT_TRUE(FillTensorState(transposed, options, &state).ok());
  EXPECT_THAT(Numbers(state.sample().values()),
              testing::ElementsAre(0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11));
  ASSERT_TRUE(FillTensorState(TensorView::Dense(x.data(), DType::kF32), options, &state).ok());
  EXPECT_THAT(state.sample().values().shape(), testing::ElementsAre(1, 1));
  ASSERT_TRUE(FillTensorState(TensorView::Dense(nullptr, DType::kF32, 0, 5), options, &state).ok());
  EXPECT_THAT(state.sample().values().shape(), testing::ElementsAre(0, 5));
  EXPECT_EQ(state.summary().count(), 0u);
  EXPECT_FALSE(FillTensorState(TensorView(), options, &state).ok());
}

TEST(UpdateEvidence, SummaryAndSampleOfOneUpdate) {
  const auto before = ValuesMaker(1).Make(DType::kBF16, Kind::kNormal, 20000);
  const auto after = ValuesMaker(2).Make(DType::kBF16, Kind::kNormal, 20000);
  const std::vector<float> intended = Counting(20000);
  UpdateInput in;
  in.before = TensorView::Dense(before.data(), DType::kBF16, 20000);
  in.after = TensorView::Dense(after.data(), DType::kBF16, 20000);
  in.intended = TensorView::Dense(intended.data(), DType::kF32, 20000);
  in.moment_before = in.intended;
  UpdateOptions options;
  options.with_sample = true;
  options.key = 7;
  options.max_samples = 100;
  v1::Update update;
  update.mutable_config()->set_optimizer("adam");
  ASSERT_TRUE(FillUpdate(in, options, &update).ok());
  EXPECT_EQ(update.config().optimizer(), "adam");
  EXPECT_EQ(update.config().dtype(), v1::DTYPE_BF16);
  EXPECT_EQ(update.config().moment_dtype(), v1::DTYPE_F32);
  EXPECT_EQ(update.summary().intended(), 19999u);
  const std::vector<double> offsets = Numbers(update.sample().offsets());
  const std::vector<double> values = Numbers(update.sample().intended());
  ASSERT_EQ(values.size(), 100u);
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(values[i], offsets[i]);
  EXPECT_TRUE(update.sample().has_moment_before());
  EXPECT_FALSE(update.sample().has_gradient());
  UpdateStats stats;
  ASSERT_TRUE(CheckUpdate(in.before, in.after, in.intended, &stats).ok());
  v1::UpdateSummary direct;
  FillUpdateSummary(stats, &direct);
  v1::UpdateSummary again;
  FillUpdateSummary(StatsOf(update.summary()), &again);
  EXPECT_EQ(again.SerializeAsString(), direct.SerializeAsString());
  in.gradient = TensorView::Dense(intended.data(), DType::kF32, 19999);
  EXPECT_THAT(std::string(FillUpdateSample(in, options, &update).message()),
              testing::StartsWith("gradient: "));
}

}  // namespace
}  // namespace plumbline
