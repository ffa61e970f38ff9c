// Checks error messages about inputs that do not fit together: the tensor, what was expected, what
// was found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/routing/routing.h"
#include "tests/kernels/routing/case.h"

namespace plumbline {
namespace {

class RoutingErrors : public testing::Test {
 protected:
  void SetUp() override {
    in_.scores = Numbers(DType::kF32, 4, 8);
    in_.top_k = 2;
    in_.topk_indices = Numbers(DType::kI32, 4, 2);
    ASSERT_EQ(Error(), "");
  }

  TensorView Numbers(DType t, int64_t rows, int64_t columns) {
    return MakeTensor(&case_, t, rows, columns, Layout::kDense,
                      [](int64_t, int64_t j) { return static_cast<double>(j); });
  }

  std::string Error() const {
    RoutingStats stats;
    const absl::Status status = SummariseRouting(in_, &stats);
    EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }

  RoutingCase case_;
  RoutingInput in_;
};

TEST_F(RoutingErrors, Scores) {
  in_.scores = TensorView{};
  EXPECT_EQ(Error(), "router_logits: expected a tensor [T, E], found none");
  in_.scores = Numbers(DType::kF32, 4, 1024);
  EXPECT_EQ(Error(), "router_logits: expected shape [T, E] with E <= 512, found [4, 1024]");
  in_.scores_are_logits = false;
  EXPECT_EQ(Error(), "router_scores: expected shape [T, E] with E <= 512, found [4, 1024]");
  in_.scores = Numbers(DType::kF32, 0, 8);
  EXPECT_EQ(Error(), "router_scores: expected at least one row, found [0, 8]");
  in_.scores = Numbers(DType::kI32, 4, 8);
  EXPECT_EQ(Error(), "router_scores: expected dtype f64, f32, f16 or bf16, found i32");
  in_.scores = Numbers(DType::kF32, 4, -1);
  EXPECT_EQ(Error(), "router_scores: expected shape [T, E] with E <= 512, found [4]");
  in_.scores = Numbers(DType::kF32, 4, 8);
  in_.scores.data = nullptr;
  EXPECT_EQ(Error(), "router_scores: expected data, found a null pointer");
  in_.scores.shape[0] = int64_t{1} << 40;
  EXPECT_THAT(Error(), testing::HasSubstr("expected at most 67108864 rows"));
}

TEST_F(RoutingErrors, Choices) {
  in_.topk_indices = MakeTensor(&case_, DType::kI64, 4, 2, Layout::kDense,
                                [](int64_t i, int64_t j) { return i >= 2 && j == 1 ? 8 : 0; });
  EXPECT_EQ(Error(), "topk_indices: expected values in [-1, 7], found 8 at row 2, choice 1");
  in_.topk_indices = MakeTensor(&case_, DType::kI64, 4, 2, Layout::kDense,
                                [](int64_t i, int64_t) { return i == 3 ? -2 : -1; });
  EXPECT_EQ(Error(), "topk_indices: expected values in [-1, 7], found -2 at row 3, choice 0");
  in_.topk_indices = Numbers(DType::kI32, 4, 3);
  EXPECT_EQ(Error(), "topk_indices: expected shape [4, 2], found [4, 3]");
  in_.topk_indices = Numbers(DType::kF32, 4, 2);
  EXPECT_EQ(Error(), "topk_indices: expected an integer or bool dtype, found f32");
  in_.topk_indices = TensorView{};
  in_.keep_mask = Numbers(DType::kBool, 4, 2);
  EXPECT_THAT(Error(), testing::MatchesRegex("keep_mask: expected topk_indices .*, found none"));
}

TEST_F(RoutingErrors, Options) {
  in_.topk_indices = TensorView{};
  for (int k : {0, -3, 9}) {
    in_.top_k = k;
    EXPECT_EQ(Error(), "top_k: expected a value in [1, 8], found " + std::to_string(k));
  }
  in_.top_k = 2;
  in_.groups = 3;
  EXPECT_EQ(Error(), "groups: expected a divisor of E = 8, found 3");
  in_.groups = 4;
  in_.top_groups = 5;
  EXPECT_EQ(Error(), "top_groups: expected a value in [1, 4], found 5");
  in_.top_groups = 1;
  in_.top_k = 3;
  EXPECT_EQ(Error(), "top_k: expected a value in [1, 2], found 3");
  in_.top_k = 2;
  in_.score_function = static_cast<ScoreFunction>(9);
  EXPECT_EQ(Error(), "score_function: expected identity, softmax or sigmoid, found 9");
}

TEST_F(RoutingErrors, OtherTensors) {
  in_.expert_bias = Numbers(DType::kF32, 9, -1);
  EXPECT_EQ(Error(), "expert_bias: expected shape [8], found [9]");
  in_.expert_bias = TensorView{};
  in_.routing_map = Numbers(DType::kBool, 8, 4);
  EXPECT_EQ(Error(), "routing_map: expected shape [4, 8], found [8, 4]");
  in_.routing_map = TensorView{};
  in_.probs = Numbers(DType::kF32, 4, 5);
  EXPECT_EQ(Error(), "probs: expected shape [4, 8] or [4, 2], found [4, 5]");
  in_.probs = TensorView{};
  in_.sequence_id = Numbers(DType::kF32, 4, -1);
  EXPECT_EQ(Error(), "sequence_id: expected an integer or bool dtype, found f32");
  in_.sequence_id = TensorView{};
  in_.pool_id = Numbers(DType::kI32, 3, -1);
  EXPECT_EQ(Error(), "pool_id: expected shape [4], found [3]");
  in_.pool_id = TensorView{};
  in_.position = MakeTensor(&case_, DType::kI32, 4, -1, Layout::kDense,
                            [](int64_t i, int64_t) { return i == 1 ? -5 : 0; });
  EXPECT_EQ(Error(), "position: expected values in [0, 2^58], found -5 at row 1");
  in_.padding_mask = MakeTensor(&case_, DType::kBool, 4, -1, Layout::kDense,
                                [](int64_t i, int64_t) { return i == 1; });
  EXPECT_EQ(Error(), "");  // padding rows may hold any position
}

TEST_F(RoutingErrors, Devices) {
  in_.topk_indices.device = 1;
  EXPECT_THAT(Error(), testing::HasSubstr("topk_indices: expected a tensor on the device of"));
  in_.scores.device = 1;
  EXPECT_THAT(Error(), testing::HasSubstr("expected a host tensor, found one on a device"));
}

}  // namespace
}  // namespace plumbline
