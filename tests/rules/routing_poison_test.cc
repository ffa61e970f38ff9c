// Tests recordings that are broken, non-finite or without the required fields: never a crash, never
// a pass.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>

#include "tests/rules/support/synthetic_routing.h"
#include "tests/rules/support/verdicts.h"

namespace plumbline::rules {
namespace {

using testing::Only;
using testing::PoolUnit;
using testing::Recorded;
using testing::RoutingSpec;
using testing::SyntheticRouting;
using testing::VerdictsOn;

v1::Verdict Judge(v1::Batch batch, const char* rule = "causality/moe-future-leak") {
  return Only(VerdictsOn({std::move(batch)}, {}), rule);
}

v1::RoutingSample& SampleOf(v1::Batch& batch) {
  return *batch.mutable_evidence(0)->mutable_routing()->mutable_sample();
}

template <typename T>
void Poke(v1::Tensor& tensor, size_t index, T value) {
  std::memcpy(tensor.mutable_data()->data() + index * sizeof(T), &value, sizeof(T));
}

// Returns the id of the reason of an inconclusive verdict, or the verdict itself if it is
// conclusive.
std::string WhyNot(const v1::Batch& batch) {
  const v1::Verdict verdict = Judge(batch);
  if (verdict.kind() != v1::Verdict::KIND_INCONCLUSIVE) return verdict.DebugString();
  return verdict.reason().substr(0, verdict.reason().find(':'));
}

TEST(RoutingPoison, NonFiniteScoresNeverPass) {
  for (RouterPolicy policy : {RouterPolicy::kTokenChoice, RouterPolicy::kFifo}) {
    for (float poison :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      v1::Batch batch = SyntheticRouting({.policy = policy}).Batch();
      Poke(*SampleOf(batch).mutable_scores(), 10 * 8 + 3, poison);
      EXPECT_EQ(WhyNot(batch), "non-finite");
    }
  }
  v1::Batch batch = SyntheticRouting({}).Batch();
  for (size_t i = 0; i < 256 * 8; ++i) {
    Poke(*SampleOf(batch).mutable_scores(), i, std::numeric_limits<float>::quiet_NaN());
  }
  EXPECT_EQ(WhyNot(batch), "non-finite");
}

// Tests that -inf masks an expert: if a row avoided it, the row is judged; if a row was routed to
// it, its scores do not explain the choice; if too few experts remain, the row has no choice.
TEST(RoutingPoison, MaskedExpertsAreNoCandidates) {
  constexpr float kMasked = -std::numeric_limits<float>::infinity();
  v1::Batch batch = SyntheticRouting({.policy = RouterPolicy::kTokenChoice}).Batch();
  const std::string indices = SampleOf(batch).topk_indices().data();
  std::set<int64_t> chosen;
  for (size_t j = 0; j < 2; ++j) {
    int64_t e;
    std::memcpy(&e, indices.data() + (10 * 2 + j) * sizeof(e), sizeof(e));
    chosen.insert(e);
  }
  for (size_t e = 0; e < 8; ++e) {
    if (chosen.count(static_cast<int64_t>(e)) == 0) {
      Poke(*SampleOf(batch).mutable_scores(), 10 * 8 + e, kMasked);
    }
  }
  EXPECT_EQ(Judge(batch).kind(), v1::Verdict::KIND_PASS) << Judge(batch).reason();
  Poke(*SampleOf(batch).mutable_scores(), 10 * 8 + static_cast<size_t>(*chosen.begin()), kMasked);
  EXPECT_EQ(WhyNot(batch), "non-finite");
  batch = SyntheticRouting({.policy = RouterPolicy::kTokenChoice}).Batch();
  Poke(*SampleOf(batch).mutable_scores(), 10 * 8 + static_cast<size_t>(*chosen.begin()), kMasked);
  EXPECT_EQ(WhyNot(batch), "choices-unexplained");
}

TEST(RoutingPoison, AProofElsewhereSurvivesANan) {
  v1::Batch batch = SyntheticRouting({.policy = RouterPolicy::kScore}).Batch();
  Poke(*SampleOf(batch).mutable_scores(), 10 * 8 + 3, std::numeric_limits<float>::quiet_NaN());
  const v1::Verdict verdict = Judge(batch);
  EXPECT_EQ(verdict.kind(), v1::Verdict::KIND_FINDING) << verdict.reason();
}

TEST(RoutingPoison, IndicesThatAreNone) {
  v1::Batch batch = SyntheticRouting({}).Batch();
  Poke<int64_t>(*SampleOf(batch).mutable_topk_indices(), 5, -1);
  EXPECT_EQ(WhyNot(batch), "no-choice");
  Poke<int64_t>(*SampleOf(batch).mutable_topk_indices(), 5, 8);
  EXPECT_EQ(WhyNot(batch), "index-out-of-range");
  Poke<int64_t>(*SampleOf(batch).mutable_topk_indices(), 5, std::numeric_limits<int64_t>::min());
  EXPECT_EQ(WhyNot(batch), "index-out-of-range");
  batch = SyntheticRouting({}).Batch();
  const int64_t first =
      *reinterpret_cast<const int64_t*>(SampleOf(batch).topk_indices().data().data());
  Poke<int64_t>(*SampleOf(batch).mutable_topk_indices(), 1, first);
  EXPECT_EQ(WhyNot(batch), "index-repeated");
}

TEST(RoutingPoison, ShapesThatLie) {
  v1::Batch batch = SyntheticRouting({}).Batch();
  batch.mutable_evidence(0)->mutable_routing()->mutable_config()->set_top_k(9);
  EXPECT_EQ(WhyNot(batch), "k-exceeds-experts");
  batch.mutable_evidence(0)->mutable_routing()->mutable_config()->set_top_k(0);
  EXPECT_EQ(WhyNot(batch), "no-top-k");
  batch = SyntheticRouting({}).Batch();
  SampleOf(batch).mutable_scores()->set_shape(0, 0);
  EXPECT_EQ(WhyNot(batch), "bad-tensor");
  SampleOf(batch).mutable_scores()->set_shape(0, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(WhyNot(batch), "bad-tensor");
  SampleOf(batch).mutable_scores()->set_shape(0, 257);
  EXPECT_EQ(WhyNot(batch), "bad-tensor");
  SampleOf(batch).clear_scores();
  EXPECT_EQ(WhyNot(batch), "no-scores");
  batch = SyntheticRouting({}).Batch();
  SampleOf(batch).mutable_keep_mask()->mutable_data()->pop_back();
  EXPECT_EQ(WhyNot(batch), "bad-tensor");
}

TEST(RoutingPoison, RepeatedPositions) {
  v1::Batch batch = SyntheticRouting({.policy = RouterPolicy::kScore}).Batch();
  Poke<int32_t>(*SampleOf(batch).mutable_position(), 5, 4);
  EXPECT_EQ(WhyNot(batch), "repeated-position");
}

TEST(RoutingPoison, MissingFieldsAreNamed) {
  v1::Batch batch = SyntheticRouting({.policy = RouterPolicy::kScore}).Batch();
  SampleOf(batch).clear_sequence_id();
  EXPECT_EQ(WhyNot(batch), "no-sequence-ids");
  batch = SyntheticRouting({.policy = RouterPolicy::kScore}).Batch();
  SampleOf(batch).clear_position();
  EXPECT_EQ(WhyNot(batch), "no-positions");
  batch = SyntheticRouting({.policy = RouterPolicy::kScore}).Batch();
  SampleOf(batch).clear_topk_indices();
  SampleOf(batch).clear_keep_mask();
  EXPECT_EQ(WhyNot(batch), "no-choices");
}

TEST(RoutingPoison, RandomnessOfTheTokensOwnIsNotAccused) {
  v1::Batch batch = SyntheticRouting({.policy = RouterPolicy::kScore}).Batch();
  batch.mutable_evidence(0)->mutable_routing()->mutable_config()->set_randomness("second-expert");
  // Noise that is not in the recorded scores: one row is negated.
  for (size_t e = 0; e < 8; ++e) {
    float x;
    std::memcpy(&x, SampleOf(batch).scores().data().data() + e * sizeof(x), sizeof(x));
    Poke(*SampleOf(batch).mutable_scores(), e, -x);
  }
  EXPECT_EQ(WhyNot(batch), "randomness-declared");
}

// Tests that the top-k of the scores explains every choice, because the declared noise is already
// included.
TEST(RoutingPoison, NoiseThatTheScoresHoldIsNoRandomness) {
  for (RouterPolicy policy : {RouterPolicy::kScore, RouterPolicy::kTokenChoice}) {
    v1::Batch batch = SyntheticRouting({.policy = policy}).Batch();
    batch.mutable_evidence(0)->mutable_routing()->mutable_config()->set_randomness("jitter");
    const bool leaks = policy == RouterPolicy::kScore;
    EXPECT_EQ(Judge(batch).kind(), leaks ? v1::Verdict::KIND_FINDING : v1::Verdict::KIND_PASS);
  }
}

TEST(RoutingPoison, ChoicesThatScoresDoNotExplain) {
  v1::Batch batch = SyntheticRouting({}).Batch();
  // Unrecorded noise: all scores of one row are reversed.
  for (size_t e = 0; e < 8; ++e) Poke(*SampleOf(batch).mutable_scores(), e, static_cast<float>(e));
  for (size_t j = 0; j < 2; ++j)
    Poke<int64_t>(*SampleOf(batch).mutable_topk_indices(), j, static_cast<int64_t>(j));
  EXPECT_EQ(WhyNot(batch), "choices-unexplained");
}

TEST(RoutingNearMiss, ChunksWithPoolIdPass) {
  RoutingSpec spec{.policy = RouterPolicy::kFifoChunks};
  spec.length = 256;
  const v1::Verdict verdict = Judge(SyntheticRouting(spec).Batch());
  EXPECT_EQ(verdict.kind(), v1::Verdict::KIND_PASS) << verdict.reason();
  EXPECT_EQ(verdict.details().fields().at("policy").string_value(), "fifo-capacity");
}

TEST(RoutingNearMiss, ChunksWithoutPoolIdAreNotAccused) {
  for (bool declare : {true, false}) {
    RoutingSpec spec{.policy = RouterPolicy::kFifoChunks};
    spec.length = 256;
    spec.record_pool_id = false;
    spec.declare_capacity = declare;
    // The cut is found and replayed. It passes and states its assumption.
    const v1::Verdict verdict = Judge(SyntheticRouting(spec).Batch());
    EXPECT_EQ(verdict.kind(), v1::Verdict::KIND_PASS) << verdict.DebugString();
    const auto& listed = verdict.assumptions();
    EXPECT_TRUE(std::any_of(listed.begin(), listed.end(), [](const std::string& assumption) {
      return assumption.find("capacity applies as the refusals show") == 0;
    }));
  }
}

// Tests scores that were normalised over tokens. They depend on other tokens.
TEST(RoutingNearMiss, ScoresNormalisedOverTheTokensAreAWarning) {
  constexpr int kTokens = 64, kExperts = 4;
  for (bool over_tokens : {true, false}) {
    std::mt19937_64 rng(7);
    std::normal_distribution<float> normal;
    std::vector<float> scores(kTokens * kExperts);
    for (float& x : scores) x = std::exp(normal(rng));
    for (int e = 0; e < kExperts && over_tokens; ++e) {
      float sum = 0;
      for (int t = 0; t < kTokens; ++t) sum += scores[static_cast<size_t>(t * kExperts + e)];
      for (int t = 0; t < kTokens; ++t) scores[static_cast<size_t>(t * kExperts + e)] /= sum;
    }
    RoutingSpec spec{.policy = RouterPolicy::kTokenChoice};
    spec.sequences = 1;
    spec.length = kTokens;
    spec.experts = kExperts;
    spec.top_k = 1;
    v1::Batch batch = SyntheticRouting(spec).Batch();
    v1::RoutingSample& sample = *batch.mutable_evidence(0)->mutable_routing()->mutable_sample();
    sample.set_scores_are_logits(false);
    sample.clear_keep_mask();
    sample.clear_probs();
    sample.mutable_scores()->mutable_data()->assign(reinterpret_cast<const char*>(scores.data()),
                                                    scores.size() * sizeof(float));
    std::vector<int64_t> chosen(kTokens);
    for (int t = 0; t < kTokens; ++t) {
      const auto row = scores.begin() + t * kExperts;
      chosen[static_cast<size_t>(t)] = std::max_element(row, row + kExperts) - row;
    }
    sample.mutable_topk_indices()->mutable_data()->assign(
        reinterpret_cast<const char*>(chosen.data()), chosen.size() * sizeof(int64_t));
    const v1::Verdict verdict = Judge(batch);
    EXPECT_EQ(verdict.kind(), over_tokens ? v1::Verdict::KIND_FINDING : v1::Verdict::KIND_PASS)
        << verdict.DebugString();
    if (!over_tokens) continue;
    EXPECT_EQ(verdict.finding().level(), v1::LEVEL_WARNING);
    EXPECT_EQ(verdict.finding().strength(), v1::STRENGTH_HEURISTIC);
  }
}

TEST(RoutingNearMiss, AFullExpertThatRefusedNone) {
  RoutingSpec spec{.policy = RouterPolicy::kFifo};
  spec.capacity_factor = 8;  // nothing is refused
  SyntheticRouting routing(spec);
  ASSERT_EQ(routing.dropped(), 0);
  v1::Batch batch = routing.Batch();
  // Declares exactly the largest load: that expert is full and has refused no token.
  std::vector<uint64_t> load(8, 0);
  for (int32_t e : routing.result().indices) ++load[static_cast<size_t>(e)];
  batch.mutable_evidence(0)->mutable_routing()->mutable_config()->set_capacity(
      *std::max_element(load.begin(), load.end()));
  const v1::Verdict verdict = Judge(batch);
  EXPECT_EQ(verdict.kind(), v1::Verdict::KIND_INCONCLUSIVE);
  EXPECT_EQ(verdict.details().fields().at("saturated_experts").number_value(), 1);
}

TEST(RoutingNearMiss, OwnTokenThresholdIsNotAccused) {
  for (bool declare : {true, false}) {
    v1::Batch batch = SyntheticRouting({.policy = RouterPolicy::kOwnThreshold}).Batch();
    auto* config = batch.mutable_evidence(0)->mutable_routing()->mutable_config();
    if (declare) config->set_capacity_kind(v1::RoutingConfig::CAPACITY_DECLARED);
    if (declare) config->set_capacity(64);
    EXPECT_EQ(Judge(batch).kind(), v1::Verdict::KIND_INCONCLUSIVE);
  }
}

TEST(RoutingNearMiss, RowsStoredInAnotherOrderThanQueuedPass) {
  for (bool seq_major : {true, false}) {
    RoutingSpec spec{.policy = RouterPolicy::kFifo};
    spec.length = 256;
    spec.seq_major = seq_major;
    spec.shuffle_rows = true;
    const v1::Verdict verdict = Judge(SyntheticRouting(spec).Batch());
    EXPECT_EQ(verdict.kind(), v1::Verdict::KIND_PASS) << verdict.DebugString();
    EXPECT_EQ(verdict.details().fields().at("flatten_order").string_value(),
              seq_major ? "seq-major" : "batch-major");
  }
}

TEST(RoutingNearMiss, ABiasFittedOnTheBatchDoesNotAcquit) {
  v1::Batch batch = SyntheticRouting({}).Batch();
  auto& bias = *SampleOf(batch).mutable_expert_bias();
  bias.set_dtype(v1::DTYPE_F32);
  bias.add_shape(8);
  // Too small to change a choice, but present.
  for (int e = 0; e < 8; ++e) {
    const float b = 1e-7f * static_cast<float>(e);
    bias.mutable_data()->append(reinterpret_cast<const char*>(&b), sizeof(b));
  }
  v1::Verdict verdict = Judge(batch);
  EXPECT_EQ(verdict.kind(), v1::Verdict::KIND_PASS) << verdict.reason();
  EXPECT_THAT(verdict.assumptions(),
              ::testing::Contains(::testing::HasSubstr("bias was recorded before")));
  batch.mutable_evidence(0)->mutable_routing()->mutable_config()->set_bias_captured(
      v1::RoutingConfig::BIAS_CAPTURED_AFTER);
  EXPECT_EQ(WhyNot(batch), "bias-captured-after");
}

TEST(RoutingNearMiss, OneRecordedSequenceDoesNotNameTheOtherCompetitors) {
  RoutingSpec spec{.policy = RouterPolicy::kFifo};
  spec.sequences = 1;
  spec.length = 512;
  EXPECT_EQ(Judge(SyntheticRouting(spec).Batch(), "causality/moe-batch-dependence").kind(),
            v1::Verdict::KIND_INCONCLUSIVE);
  spec.sequences = 4;
  spec.pool = PoolUnit::kSequence;
  EXPECT_EQ(Judge(SyntheticRouting(spec).Batch(), "causality/moe-batch-dependence").kind(),
            v1::Verdict::KIND_PASS);
}

}  // namespace
}  // namespace plumbline::rules
