// Pools that span ranks: the verdict on the parts, joined, is the verdict on the whole.
#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/dtype.h"
#include "rules/engine/engine.h"
#include "tests/rules/support/synthetic_routing.h"

namespace plumbline::rules {
namespace {

using testing::PoolUnit;
using testing::RoutingSpec;
using testing::SyntheticRouting;

constexpr const char* kRule = "causality/moe-future-leak";

// Rows [from, to) of a tensor.
void CutRows(v1::Tensor* tensor, int64_t from, int64_t to) {
  if (tensor->shape_size() == 0) return;
  const size_t row = tensor->data().size() / static_cast<size_t>(tensor->shape(0));
  *tensor->mutable_data() =
      tensor->data().substr(static_cast<size_t>(from) * row, static_cast<size_t>(to - from) * row);
  tensor->set_shape(0, to - from);
}

// Sequence ids from 0, as a rank that numbers its own would have them.
void NumberOwnSequences(v1::Tensor* ids) {
  std::map<int64_t, int64_t> dense;
  std::string& data = *ids->mutable_data();
  for (size_t at = 0; at < data.size(); at += sizeof(int64_t)) {
    int64_t id = 0;
    std::memcpy(&id, &data[at], sizeof id);
    id = dense.try_emplace(id, static_cast<int64_t>(dense.size())).first->second;
    std::memcpy(&data[at], &id, sizeof id);
  }
}

struct Split {
  uint32_t ranks = 4;
  uint32_t world = 4;  // as the sources say
  v1::RoutingConfig::Pool pool = v1::RoutingConfig::POOL_WORLD;
  bool keep_pool_id = true;
  bool own_numbers = false;
  std::vector<uint32_t> absent;
};

// One batch a rank: equal shares of the rows.
std::vector<v1::Batch> PartsOf(const SyntheticRouting& whole, const Split& split) {
  std::vector<v1::Batch> parts;
  const v1::Evidence evidence = whole.Evidence();
  const int64_t rows = evidence.routing().sample().scores().shape(0);
  for (uint32_t rank = 0; rank < split.ranks; ++rank) {
    if (std::count(split.absent.begin(), split.absent.end(), rank)) continue;
    v1::Batch batch = whole.Batch(rank, split.world);
    v1::Routing& routing = *batch.mutable_evidence(0)->mutable_routing();
    routing.mutable_config()->set_pool(split.pool);
    v1::RoutingSample& s = *routing.mutable_sample();
    const int64_t from = rows * rank / split.ranks, to = rows * (rank + 1) / split.ranks;
    for (v1::Tensor* tensor : {s.mutable_scores(), s.mutable_sequence_id(), s.mutable_position()}) {
      CutRows(tensor, from, to);
    }
    if (s.has_topk_indices()) CutRows(s.mutable_topk_indices(), from, to);
    if (s.has_keep_mask()) CutRows(s.mutable_keep_mask(), from, to);
    if (s.has_pool_id()) CutRows(s.mutable_pool_id(), from, to);
    if (!split.keep_pool_id) s.clear_pool_id();
    if (split.own_numbers) NumberOwnSequences(s.mutable_sequence_id());
    parts.push_back(std::move(batch));
  }
  return parts;
}

std::vector<v1::Verdict> Judge(std::vector<v1::Batch> parts) {
  std::vector<v1::Verdict> verdicts;
  auto engine = Engine::Create({.rules = {kRule}}, [&](const v1::Verdict& verdict) {
    if (verdict.rule() == kRule) verdicts.push_back(verdict);
  });
  EXPECT_TRUE(engine.ok());
  for (v1::Batch& part : parts) EXPECT_TRUE((*engine)->Add(std::move(part)).ok());
  (*engine)->Finish();
  return verdicts;
}

RoutingSpec Spec(RouterPolicy policy, uint64_t seed = 5) {
  RoutingSpec spec;
  spec.policy = policy;
  spec.sequences = 8;
  spec.length = 64;
  spec.seed = seed;
  return spec;
}

TEST(RoutingJoin, PartsOfAPoolAreJudgedAsTheWhole) {
  for (RouterPolicy policy :
       {RouterPolicy::kScore, RouterPolicy::kFifo, RouterPolicy::kRankMajor}) {
    const SyntheticRouting whole(Spec(policy));
    const auto one = Judge({whole.Batch()});
    ASSERT_EQ(one.size(), 1u);
    for (bool own_numbers : {false, true}) {
      const auto joined = Judge(PartsOf(whole, {.own_numbers = own_numbers}));
      ASSERT_EQ(joined.size(), 1u) << PolicyName(policy);
      EXPECT_EQ(joined[0].kind(), one[0].kind()) << joined[0].reason();
      EXPECT_EQ(joined[0].finding().strength(), one[0].finding().strength());
      EXPECT_EQ(joined[0].details().fields().at("policy").string_value(),
                one[0].details().fields().at("policy").string_value());
      EXPECT_EQ(joined[0].site().ranks_size(), 4);
    }
  }
}

TEST(RoutingJoin, OneRankOfThePoolAloneIsNotJudged) {
  const SyntheticRouting whole(Spec(RouterPolicy::kScore));
  const auto alone = Judge(PartsOf(whole, {.world = 0, .absent = {1, 2, 3}}));
  ASSERT_EQ(alone.size(), 1u);
  EXPECT_EQ(alone[0].kind(), v1::Verdict::KIND_INCONCLUSIVE);
  EXPECT_THAT(alone[0].reason(), ::testing::StartsWith("pool-spans-ranks:"));
}

TEST(RoutingJoin, MissingRanksAreNamed) {
  const SyntheticRouting whole(Spec(RouterPolicy::kScore));
  for (uint32_t world : {4u, 0u}) {
    const auto verdicts = Judge(PartsOf(whole, {.world = world, .absent = {1, 2}}));
    ASSERT_EQ(verdicts.size(), 1u);
    EXPECT_EQ(verdicts[0].kind(), v1::Verdict::KIND_INCONCLUSIVE);
    EXPECT_THAT(verdicts[0].reason(), ::testing::StartsWith("missing-ranks:"));
    EXPECT_THAT(verdicts[0].reason(), ::testing::HasSubstr("ranks 1, 2"));
  }
}

TEST(RoutingJoin, AWorldWithoutPoolIdsIsOnePoolByMetadata) {
  const SyntheticRouting whole(Spec(RouterPolicy::kScore));
  const auto verdicts = Judge(PartsOf(whole, {.keep_pool_id = false}));
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].kind(), v1::Verdict::KIND_FINDING) << verdicts[0].reason();
}

TEST(RoutingJoin, ArrivalOrderDoesNotMatter) {
  const SyntheticRouting whole(Spec(RouterPolicy::kScore));
  auto parts = PartsOf(whole, {.own_numbers = true});
  const auto forward = Judge(parts);
  std::reverse(parts.begin(), parts.end());
  const auto backward = Judge(parts);
  ASSERT_EQ(forward.size(), 1u);
  ASSERT_EQ(backward.size(), 1u);
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(forward[0], backward[0]));
}

TEST(RoutingJoin, RanksThatDoNotFitTogetherBlock) {
  const SyntheticRouting whole(Spec(RouterPolicy::kScore));
  auto parts = PartsOf(whole, {});
  parts[2].mutable_evidence(0)->mutable_routing()->mutable_sample()->clear_keep_mask();
  const auto verdicts = Judge(parts);
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_THAT(verdicts[0].reason(), ::testing::StartsWith("ranks-differ: keep_mask of rank 2"));
}

// A group's members are told by pool_id; two groups of two ranks each.
TEST(RoutingJoin, GroupsAreToldByPoolId) {
  RoutingSpec spec = Spec(RouterPolicy::kScore, 9);
  spec.sequences = 4;
  spec.length = 128;
  spec.pool = PoolUnit::kPack;  // pools of two sequences; four ranks hold one sequence each
  const SyntheticRouting whole(spec);
  const auto verdicts = Judge(PartsOf(whole, {.pool = v1::RoutingConfig::POOL_GROUP}));
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].kind(), v1::Verdict::KIND_FINDING) << verdicts[0].reason();
}

}  // namespace
}  // namespace plumbline::rules
