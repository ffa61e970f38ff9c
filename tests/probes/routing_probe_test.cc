// Tests the routing probe: a slot returns what was stored in it, for all strides and types. A call
// that cannot be measured is refused with the reason.
#include "probes/routing_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/evidence/routing.h"

namespace plumbline::probes {
namespace {

using ::testing::HasSubstr;

// A router call that owns its tensors.
struct Call {
  explicit Call(int64_t tokens, int64_t experts, int k, uint32_t seed = 1)
      : scores(static_cast<size_t>(tokens * experts)), topk(static_cast<size_t>(tokens * k)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (float& s : scores) s = normal(random);
    for (int64_t t = 0; t < tokens; ++t) {
      for (int j = 0; j < k; ++j) topk[static_cast<size_t>(t * k + j)] = (t + j) % experts;
    }
    call.input.scores = TensorView::Dense(scores.data(), DType::kF32, tokens, experts);
    call.input.topk_indices = TensorView::Dense(topk.data(), DType::kI64, tokens, k);
    call.input.top_k = k;
  }
  std::vector<float> scores;
  std::vector<int64_t> topk;
  RoutingCall call;
};

// Returns a slot with the stored call and 64 guard bytes after it. The guard bytes must not change.
std::vector<std::byte> Stored(const RoutingCall& call, size_t* bytes) {
  *bytes = SlotBytes(call);
  std::vector<std::byte> memory(*bytes + 64, std::byte{0xA5});
  StoreRoutingCall(call, memory.data());
  for (size_t i = *bytes; i < memory.size(); ++i) EXPECT_EQ(memory[i], std::byte{0xA5});
  return memory;
}

TEST(RoutingSlot, GivesBackWhatWasStored) {
  Call c(37, 8, 2);
  c.call.capacity_kind = v1::RoutingConfig::CAPACITY_DECLARED;
  c.call.capacity = 11;
  c.call.pool = v1::RoutingConfig::POOL_SEQUENCE;
  c.call.flatten = v1::RoutingConfig::FLATTEN_BATCH_MAJOR;
  c.call.bias_captured = v1::RoutingConfig::BIAS_CAPTURED_BEFORE;
  c.call.randomness = "jitter";
  c.call.mode = "train";
  c.call.policy = "score-capacity";
  c.call.capacity_source = v1::RoutingConfig::CAPACITY_SOURCE_INFERRED;
  c.call.input.groups = 4;
  c.call.input.top_groups = 2;
  c.call.input.score_function = ScoreFunction::kSigmoid;
  c.call.input.group_score = GroupScore::kSum2;
  c.call.input.scores_are_logits = false;
  size_t bytes = 0;
  const auto memory = Stored(c.call, &bytes);
  const RoutingCall back = LoadRoutingCall(memory.data());
  EXPECT_EQ(back.capacity_kind, c.call.capacity_kind);
  EXPECT_EQ(back.capacity, 11u);
  EXPECT_EQ(back.pool, c.call.pool);
  EXPECT_EQ(back.flatten, c.call.flatten);
  EXPECT_EQ(back.bias_captured, c.call.bias_captured);
  EXPECT_EQ(back.randomness, "jitter");
  EXPECT_EQ(back.mode, "train");
  EXPECT_EQ(back.policy, "score-capacity");
  EXPECT_EQ(back.capacity_source, v1::RoutingConfig::CAPACITY_SOURCE_INFERRED);
  EXPECT_EQ(back.input.top_k, 2);
  EXPECT_EQ(back.input.groups, 4);
  EXPECT_EQ(back.input.top_groups, 2);
  EXPECT_EQ(back.input.score_function, ScoreFunction::kSigmoid);
  EXPECT_EQ(back.input.group_score, GroupScore::kSum2);
  EXPECT_FALSE(back.input.scores_are_logits);
  ASSERT_TRUE(back.input.scores.present());
  EXPECT_EQ(0, std::memcmp(back.input.scores.data, c.scores.data(), c.scores.size() * 4));
  EXPECT_EQ(0, std::memcmp(back.input.topk_indices.data, c.topk.data(), c.topk.size() * 8));
  EXPECT_FALSE(back.input.keep_mask.present());
  EXPECT_FALSE(back.input.pool_id.present());
  // No view points to the trainer's memory.
  const auto* begin = memory.data();
  const auto* data = static_cast<const std::byte*>(back.input.scores.data);
  EXPECT_TRUE(data >= begin && data < begin + bytes);
}

// All strides that a trainer may use: transposed, reversed, broadcast, sliced, one byte off.
TEST(RoutingSlot, PacksAnyStrides) {
  constexpr int64_t kRows = 5, kColumns = 3;
  std::vector<unsigned char> memory(4096 + 1);
  for (size_t i = 0; i < memory.size(); ++i)
    memory[i] = static_cast<unsigned char>(i * 31 + i / 256);
  for (const DType type : {DType::kF64, DType::kF32, DType::kBF16}) {
    const auto size = static_cast<int64_t>(DTypeSize(type));
    for (const auto& [row, column] : std::vector<std::pair<int64_t, int64_t>>{
             {3, 1}, {1, 5}, {-3, 1}, {7, 2}, {0, 1}, {1, 0}, {-1, -5}, {6, -2}}) {
      for (const int64_t skew : {0, 1}) {
        const unsigned char* origin = memory.data() + 100 * size + skew;
        Call c(kRows, kColumns, 1);
        TensorView& v = c.call.input.scores;
        v = TensorView::Dense(origin, type, kRows, kColumns);
        v.stride[0] = row;
        v.stride[1] = column;
        size_t bytes = 0;
        const auto slot = Stored(c.call, &bytes);
        const auto* packed =
            static_cast<const unsigned char*>(LoadRoutingCall(slot.data()).input.scores.data);
        for (int64_t i = 0; i < kRows; ++i) {
          for (int64_t j = 0; j < kColumns; ++j) {
            ASSERT_EQ(
                0, std::memcmp(packed + (i * kColumns + j) * size,
                               origin + (i * row + j * column) * size, static_cast<size_t>(size)))
                << DTypeName(type) << " strides " << row << "," << column << " at " << i << ","
                << j;
          }
        }
      }
    }
  }
}

TEST(RoutingSlot, EmptyTensors) {
  Call c(0, 4, 1);
  size_t bytes = 0;
  const auto memory = Stored(c.call, &bytes);
  EXPECT_EQ(LoadRoutingCall(memory.data()).input.scores.shape[0], 0);
  EXPECT_EQ(SampleBytes(c.call), 0u);
}

// Storing the call in a slot changes no bit of the evidence.
TEST(MeasureRouting, FromASlotEqualsInPlace) {
  Call c(64, 16, 4, 7);
  c.scores[5] = std::numeric_limits<float>::quiet_NaN();
  c.scores[900] = std::numeric_limits<float>::infinity();
  size_t bytes = 0;
  const auto memory = Stored(c.call, &bytes);
  v1::Routing direct, stored;
  ASSERT_TRUE(MeasureRouting(c.call, true, 1 << 20, &direct).ok());
  ASSERT_TRUE(MeasureRouting(LoadRoutingCall(memory.data()), true, 1 << 20, &stored).ok());
  EXPECT_EQ(direct.SerializeAsString(), stored.SerializeAsString());
  EXPECT_EQ(direct.summary().non_finite(), 2u);
  EXPECT_EQ(direct.config().experts(), 16u);
  EXPECT_TRUE(direct.has_sample());
}

TEST(MeasureRouting, SummaryOnlyUnlessSampled) {
  Call c(16, 4, 1);
  v1::Routing out;
  ASSERT_TRUE(MeasureRouting(c.call, false, 1 << 20, &out).ok());
  EXPECT_FALSE(out.has_sample());
  EXPECT_EQ(out.no_sample_reason(), "");
  EXPECT_EQ(out.summary().tokens(), 16u);
}

TEST(MeasureRouting, StatesWhyASampleIsAbsent) {
  Call c(16, 4, 1);
  v1::Routing out;
  ASSERT_TRUE(MeasureRouting(c.call, true, SampleBytes(c.call) - 1, &out).ok());
  EXPECT_FALSE(out.has_sample());
  EXPECT_THAT(out.no_sample_reason(), HasSubstr(std::to_string(SampleBytes(c.call))));
  ASSERT_TRUE(MeasureRouting(c.call, true, SampleBytes(c.call), &out).ok());
  EXPECT_TRUE(out.has_sample());
}

TEST(MeasureRouting, IndexOutOfRangeIsAnError) {
  Call c(16, 4, 1);
  c.topk[3] = 4;
  v1::Routing out;
  const absl::Status s = MeasureRouting(c.call, true, 1 << 20, &out);
  EXPECT_TRUE(absl::IsInvalidArgument(s)) << s;
  EXPECT_THAT(std::string(s.message()), HasSubstr("topk_indices"));
}

struct Refusal {
  const char* name;
  void (*spoil)(Call*);
  const char* text;
};

class Refused : public ::testing::TestWithParam<Refusal> {};

TEST_P(Refused, WithAText) {
  Call c(16, 8, 2);
  ASSERT_TRUE(CheckRoutingCall(c.call).ok());
  GetParam().spoil(&c);
  const absl::Status s = CheckRoutingCall(c.call);
  EXPECT_FALSE(s.ok());
  EXPECT_THAT(std::string(s.message()), HasSubstr(GetParam().text));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Refused,
    ::testing::Values(
        Refusal{"no_scores", [](Call* c) { c->call.input.scores = {}; }, "scores: required"},
        Refusal{"rank1", [](Call* c) { c->call.input.scores.rank = 1; }, "scores: expected [T,E]"},
        Refusal{"no_rows", [](Call* c) { c->call.input.scores.shape[0] = 0; }, "T from 1 to"},
        Refusal{"int_scores", [](Call* c) { c->call.input.scores.dtype = DType::kI32; },
                "scores: expected f64, f32, f16 or bf16, found i32[16,8]"},
        Refusal{"fp8_scores", [](Call* c) { c->call.input.scores.dtype = DType::kE4M3; }, "e4m3"},
        Refusal{"wide", [](Call* c) { c->call.input.scores.shape[1] = kMaxExperts + 1; },
                "E from 1 to"},
        Refusal{"no_experts", [](Call* c) { c->call.input.scores.shape[1] = 0; }, "E from 1 to"},
        Refusal{"k0", [](Call* c) { c->call.input.top_k = 0; }, "top_k = 0"},
        Refusal{"k_above_e", [](Call* c) { c->call.input.top_k = 9; }, "top_k = 9"},
        Refusal{"short_topk", [](Call* c) { c->call.input.topk_indices.shape[0] = 15; },
                "topk_indices: expected [16,2], found i64[15,2]"},
        Refusal{"float_topk", [](Call* c) { c->call.input.topk_indices.dtype = DType::kF64; },
                "topk_indices: expected an integer type"},
        Refusal{"null", [](Call* c) { c->call.input.scores.data = nullptr; }, "null pointer"},
        Refusal{"mixed_places", [](Call* c) { c->call.input.scores.device = 0; },
                "topk_indices: expected on device 0 as the scores, found on the host"},
        Refusal{"unaligned_on_device",
                [](Call* c) {
                  c->call.input.scores.device = c->call.input.topk_indices.device = 1;
                  c->call.input.topk_indices.data =
                      static_cast<const char*>(c->call.input.topk_indices.data) + 4;
                },
                "topk_indices: expected an address that is a multiple"},
        Refusal{"groups", [](Call* c) { c->call.input.groups = 3; }, "groups = 3"},
        Refusal{"top_groups", [](Call* c) { c->call.input.groups = 4; }, "top_groups = 0"},
        Refusal{"pool", [](Call* c) { c->call.pool = 17; }, "pool = 17"},
        Refusal{"flatten", [](Call* c) { c->call.flatten = -1; }, "flatten = -1"},
        Refusal{"capacity_kind", [](Call* c) { c->call.capacity_kind = 3; }, "capacity_kind = 3"},
        Refusal{"score_function",
                [](Call* c) { c->call.input.score_function = static_cast<ScoreFunction>(9); },
                "score_function = 9"},
        Refusal{"probs",
                [](Call* c) {
                  c->call.input.probs = c->call.input.scores;
                  c->call.input.probs.shape[1] = 3;
                },
                "probs: expected [16,8] or [16,2]"},
        Refusal{"position",
                [](Call* c) {
                  c->call.input.position = TensorView::Dense(c->topk.data(), DType::kI64, 16, 1);
                },
                "position: expected [16]"},
        Refusal{"mask",
                [](Call* c) {
                  c->call.input.padding_mask = TensorView::Dense(c->topk.data(), DType::kI64, 16);
                },
                "padding_mask: expected bool or u8"},
        Refusal{"bias",
                [](Call* c) {
                  c->call.input.expert_bias = TensorView::Dense(c->scores.data(), DType::kF32, 7);
                },
                "expert_bias: expected [8]"}),
    [](const auto& p) { return p.param.name; });

}  // namespace
}  // namespace plumbline::probes
