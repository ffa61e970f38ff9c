// Tests pools that span ranks: the verdict on the joined parts equals the verdict on the whole.
#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/dtype.h"
#include "tests/rules/support/routing_parts.h"
#include "tests/rules/support/synthetic_routing.h"
#include "tests/rules/support/verdicts.h"

namespace plumbline::rules {
namespace {

using testing::PartsOf;
using testing::PoolUnit;
using testing::RoutingSpec;
using testing::SyntheticRouting;
using testing::Verdicts;
using testing::VerdictsOf;

constexpr const char* kRule = "causality/moe-future-leak";

Verdicts Judge(std::vector<v1::Batch> parts) { return VerdictsOf(kRule, std::move(parts)); }

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

// Tests that pool_id identifies the members of a group: two groups of two ranks each.
TEST(RoutingJoin, GroupsAreDistinguishedByPoolId) {
  RoutingSpec spec = Spec(RouterPolicy::kScore, 9);
  spec.sequences = 4;
  spec.length = 128;
  spec.pool = PoolUnit::kPack;  // pools of two sequences; each of four ranks has one sequence
  const SyntheticRouting whole(spec);
  const auto verdicts = Judge(PartsOf(whole, {.pool = v1::RoutingConfig::POOL_GROUP}));
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].kind(), v1::Verdict::KIND_FINDING) << verdicts[0].reason();
}

}  // namespace
}  // namespace plumbline::rules
