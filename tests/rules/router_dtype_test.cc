// Tests the dtype rule on samples: bf16 stored as f32, genuine f32, and malformed tensors.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "tests/rules/support/synthetic_routing.h"
#include "tests/rules/support/verdicts.h"

namespace plumbline::rules {
namespace {

using testing::RoutingSpec;
using testing::SyntheticRouting;
using testing::Verdicts;
using testing::VerdictsOf;

Verdicts Judge(v1::Batch batch) { return VerdictsOf("precision/router-dtype", {std::move(batch)}); }

// Returns a router of 64 experts over 2,048 tokens. `change` is applied to each f32 score.
template <typename Change>
v1::Batch Changed(Change change) {
  RoutingSpec spec{.length = 512, .experts = 64, .top_k = 8};
  v1::Batch batch = SyntheticRouting(spec).Batch();
  std::string& data = *batch.mutable_evidence(0)
                           ->mutable_routing()
                           ->mutable_sample()
                           ->mutable_scores()
                           ->mutable_data();
  for (size_t i = 0; i < data.size() / sizeof(float); ++i) {
    float v;
    std::memcpy(&v, data.data() + i * sizeof(float), sizeof(v));
    v = change(v, i);
    std::memcpy(data.data() + i * sizeof(float), &v, sizeof(v));
  }
  return batch;
}

float ToBf16(float v) {
  const uint32_t bits = std::bit_cast<uint32_t>(v);
  return std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u);
}

TEST(RouterDtype, F32ThatWasBf16IsSeen) {
  const auto verdicts = Judge(Changed([](float v, size_t) { return ToBf16(v); }));
  ASSERT_EQ(verdicts.size(), 2u);
  EXPECT_EQ(verdicts[0].finding().level(), v1::LEVEL_NOTE);
  EXPECT_EQ(verdicts[0].finding().cause().id(), "cast-too-late");
  EXPECT_EQ(verdicts[1].finding().level(), v1::LEVEL_WARNING);
  // Exact ties only: about 4.3 %.
  EXPECT_NEAR(verdicts[1].finding().measured().value(), 0.043, 0.015);
}

TEST(RouterDtype, OneRealF32AmongThemAcquits) {
  const auto verdicts =
      Judge(Changed([](float v, size_t i) { return i == 3000 ? v * 1.00001f : ToBf16(v); }));
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].kind(), v1::Verdict::KIND_PASS);
}

TEST(RouterDtype, NansDoNotLookLikeBf16) {
  const auto nan = Judge(Changed([](float, size_t) { return std::nanf(""); }));
  ASSERT_EQ(nan.size(), 1u);
  EXPECT_EQ(nan[0].kind(), v1::Verdict::KIND_INCONCLUSIVE);
  const auto some = Judge(Changed([](float v, size_t i) { return i % 7 == 0 ? HUGE_VALF : v; }));
  ASSERT_EQ(some.size(), 1u);
  EXPECT_NE(some[0].kind(), v1::Verdict::KIND_FINDING);
}

TEST(RouterDtype, BrokenTensorsDoNoHarm) {
  v1::Batch batch = Changed([](float v, size_t) { return v; });
  auto* scores = batch.mutable_evidence(0)->mutable_routing()->mutable_sample()->mutable_scores();
  scores->mutable_data()->resize(10);
  EXPECT_EQ(Judge(batch).size(), 1u);
  scores->clear_data();
  scores->set_dtype(static_cast<v1::DType>(99));
  const auto verdicts = Judge(batch);
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].reason().substr(0, 13), "dtype-unknown");
}

}  // namespace
}  // namespace plumbline::rules
