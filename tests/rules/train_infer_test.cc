// Tests the join of training and inference routing against a direct recomputation, the false alarm
// rate from rounding, planted faults, order of arrival, and memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "analysis/routing/train_infer/join.h"
#include "analysis/routing/train_infer/runs.h"
#include "analysis/routing/train_infer/verdicts.h"
#include "tests/rules/support/plain_routing.h"
#include "tests/rules/support/routing_pair.h"
#include "tests/rules/support/verdicts.h"

namespace plumbline::rules {
namespace {

using testing::At;
using testing::ByDefinition;
using testing::Plain;
using testing::RoutingPair;
using testing::RoutingPairSpec;
using testing::RowOf;
using ::testing::StartsWith;
using testing::Verdicts;
using testing::VerdictsOf;

constexpr char kRule[] = "causality/train-infer-routing";

Verdicts Judge(const std::vector<v1::Batch>& batches) { return VerdictsOf(kRule, batches); }

int Findings(const std::vector<v1::Batch>& batches, const char* cause) {
  return testing::Findings(Judge(batches), kRule, cause);
}

const v1::Routing& RoutingOf(const v1::Batch& batch) { return batch.evidence(0).routing(); }

RoutedSide SideOf(const v1::Routing& routing, size_t most = 1 << 20) {
  RoutedSide side;
  side.Add(routing, true, most);
  side.Finish(most);
  EXPECT_EQ(side.blocked, "");
  return side;
}

TEST(TrainInferJoin, AgreesWithADefinitionByLoops) {
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    SCOPED_TRACE(seed);
    RoutingPairSpec spec{.sequences = 4, .length = 48, .seed = seed};
    spec.experts = seed % 3 == 0 ? 8 : 32;
    spec.top_k = seed % 2 == 0 ? 2 : 4;
    spec.noise = seed % 4 == 0 ? 0.05 : 0.004;
    spec.flip_share = 0.1;
    spec.shuffled = true;
    spec.cut = static_cast<int>(seed % 5);
    const auto batches = RoutingPair(spec);
    const Plain want = ByDefinition(RoutingOf(batches[0]), RoutingOf(batches[1]), 4);
    const RoutingComparison got =
        CompareRouting(SideOf(RoutingOf(batches[0])), SideOf(RoutingOf(batches[1])), 4);
    ASSERT_EQ(got.blocked, "");
    ASSERT_EQ(got.unmarked, "");
    EXPECT_EQ(got.joined, want.joined);
    EXPECT_EQ(got.flips, want.flips);
    EXPECT_EQ(got.order_only, want.order_only);
    EXPECT_EQ(got.large_flips, want.large);
    EXPECT_EQ(got.noisy_flips, want.noisy);
    EXPECT_GT(want.large, 0u);
    EXPECT_NEAR(got.overlap, want.overlap, 1e-12);
    // Values are stored as f32.
    EXPECT_NEAR(got.difference, want.difference, 1e-6);
  }
}

TEST(TrainInferJoin, TheTokensKeptDoNotDependOnTheirOrder) {
  RoutingPairSpec spec{.flip_share = 0.05, .shuffled = true};
  const auto batches = RoutingPair(spec);
  const RoutedSide train = SideOf(RoutingOf(batches[0]), 100);
  const RoutedSide infer = SideOf(RoutingOf(batches[1]), 100);
  ASSERT_EQ(train.tokens.size(), 100u);
  EXPECT_EQ(CompareRouting(train, infer, 4).joined, 100u);
}

// If a token flipped in a lower layer because of rounding, it may flip by any margin in a higher
// layer. That is not a new divergence.
TEST(TrainInfer, WhatFollowsAFlipIsNotCounted) {
  RoutingPairSpec spec{.layers = 1, .noise = 0.02};
  auto batches = RoutingPair(spec);
  const RoutingComparison below =
      CompareRouting(SideOf(RoutingOf(batches[0])), SideOf(RoutingOf(batches[1])), 4);
  ASSERT_GT(below.diverged.size(), 40u);
  ASSERT_EQ(below.large_flips, 0u);
  // layers.1: the same tokens get unrelated scores.
  spec.noise = 0.001;
  spec.seed = 2;
  auto above = RoutingPair(spec);
  v1::RoutingSample& s = *above[1].mutable_evidence(0)->mutable_routing()->mutable_sample();
  for (const TokenKey& key : below.diverged) {
    const auto row = static_cast<size_t>((key.sequence - 100) * spec.length + key.position);
    const auto width = static_cast<size_t>(spec.experts) * sizeof(float);
    std::string& scores = *s.mutable_scores()->mutable_data();
    const std::string mirrored(scores.substr(row * width, width));
    for (size_t e = 0; e < width; e += sizeof(float))
      std::memcpy(scores.data() + row * width + e, mirrored.data() + width - sizeof(float) - e,
                  sizeof(float));
    std::string& chosen = *s.mutable_topk_indices()->mutable_data();
    const auto best = RowOf(above[1].evidence(0).routing(), row).order;
    for (size_t j = 0; j < 4; ++j) {
      const int64_t e = best[j];
      std::memcpy(chosen.data() + (row * 4 + j) * sizeof(e), &e, sizeof(e));
    }
  }
  for (size_t side : {0u, 1u}) {
    *batches[side].add_evidence() = above[side].evidence(0);
    batches[side].mutable_evidence(1)->mutable_site()->set_layer("layers.1");
  }
  EXPECT_EQ(Findings(above, "large-margin-flips"), 1);    // counted if judged alone
  EXPECT_EQ(Findings(batches, "large-margin-flips"), 0);  // not counted after the lower layer
}

// Tests that rounding of any size, Gaussian or bf16, gives no finding.
TEST(TrainInfer, RoundingAloneIsNotAccused) {
  int flips = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    RoutingPairSpec spec{.sequences = 8, .length = 128, .seed = seed};
    spec.noise = std::vector<double>{0.0005, 0.004, 0.02, 0.1}[seed % 4];
    spec.experts = seed % 3 == 0 ? 64 : 16;
    auto batches = RoutingPair(spec);
    if (seed % 5 == 0) {  // inference rounds its logits to bf16 before the choice
      v1::RoutingSample& s = *batches[1].mutable_evidence(0)->mutable_routing()->mutable_sample();
      std::string& data = *s.mutable_scores()->mutable_data();
      for (size_t i = 0; i + 4 <= data.size(); i += 4) data[i] = data[i + 1] = 0;
    }
    const auto verdicts = Judge(batches);
    ASSERT_EQ(verdicts.size(), 1u);
    EXPECT_EQ(verdicts[0].kind(), v1::Verdict::KIND_PASS)
        << seed << " " << verdicts[0].ShortDebugString();
    flips += verdicts[0].details().fields().at("flip_share").number_value() > 0 ? 1 : 0;
  }
  EXPECT_GT(flips, 100);  // The test has relevant cases.
}

// Tests the derived share: if differences are a tenth of the score spread, the share is below it
// for any number of choices; if noise remains on one side, the share is far above.
TEST(TrainInfer, TheShareThatRoundingMovesIsDerived) {
  for (const auto& [experts, k] :
       {std::pair(8, 2), {16, 4}, {64, 4}, {64, 8}, {128, 1}, {256, 8}}) {
    const double most = MostByRounding(experts, k);
    EXPECT_GE(most, 0.1);
    for (const double noise : {0.02, 0.1, 0.7}) {
      RoutingPairSpec spec{.sequences = 8, .length = 256, .experts = experts, .top_k = k};
      spec.noise = noise;
      const auto batches = RoutingPair(spec);
      const RoutingComparison c =
          CompareRouting(SideOf(RoutingOf(batches[0])), SideOf(RoutingOf(batches[1])), 4);
      EXPECT_EQ(1 - c.overlap > most, noise > 0.5)
          << k << " of " << experts << " at " << noise << ": " << 1 - c.overlap << " of " << most;
      if (noise > 0.5) {
        EXPECT_EQ(Findings(batches, "other-scores"), 1);
      }
    }
  }
  EXPECT_EQ(MostByRounding(0, 0), 0.1);
  EXPECT_EQ(MostByRounding(4, 4), 0.1);
}

// Tests scores of any distribution. If differences are a hundredth of the spread, up to a third of
// the choices may change with tied or bounded scores, which is never named different scores. If
// noise remains at half of the spread, it is named.
TEST(TrainInfer, OtherScoresAreReportedForAnyLaw) {
  struct Law {
    const char* name;
    double spread;  // of the quartiles, scaled as a normal standard deviation
  };
  int ties = 0, reported = 0;
  for (const Law& law : {Law{"normal", 1},
                         {"cauchy", 1.48},
                         {"lognormal", 1.08},
                         {"uniform", .37},
                         {"discrete", 1.48},
                         {"relu", .5}}) {
    for (const auto& [experts, k] : {std::pair(8, 2), {64, 8}, {128, 1}, {256, 8}}) {
      for (const double share : {.01, .5}) {
        RoutingPairSpec spec{.length = 192, .experts = experts, .top_k = k, .law = law.name};
        spec.noise = share * law.spread;
        const auto verdicts = Judge(RoutingPair(spec));
        const std::string what = std::string(law.name) + " " + std::to_string(experts) + " " +
                                 std::to_string(k) + ": " + verdicts[0].ShortDebugString();
        const int found = testing::Findings(verdicts, kRule, "other-scores");
        const bool blocked = verdicts[0].reason().starts_with("not-the-same-tokens");
        ties += testing::Findings(verdicts, kRule, "near-ties");
        const auto& details = verdicts[0].details().fields();
        const bool many =
            details.contains("set_overlap") && details.at("set_overlap").number_value() < .9;
        EXPECT_EQ(found + blocked, share > .1 && (many || blocked) ? 1 : 0) << what;
        reported += found + blocked;
        if (share < .1) {
          EXPECT_LT(verdicts[0].finding().level(), v1::LEVEL_WARNING) << what;
        }
      }
    }
  }
  EXPECT_GT(ties, 3);       // The test has relevant cases.
  EXPECT_GE(reported, 18);  // of 24; if few choices change, nothing is named
}

TEST(TrainInfer, PlantedFlipsAreFound) {
  int found = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    RoutingPairSpec spec{.flip_share = 0.02, .seed = seed};
    found += Findings(RoutingPair(spec), "large-margin-flips");
  }
  EXPECT_EQ(found, 50);
}

TEST(TrainInfer, IdenticalScoresAndOtherChoicesAreFound) {
  RoutingPairSpec spec{.noise = 0};
  auto batches = RoutingPair(spec);
  EXPECT_EQ(Judge(batches)[0].kind(), v1::Verdict::KIND_PASS);
  // Inference used the neighbouring expert: 64 tokens with unchanged scores.
  std::string& data = *batches[1]
                           .mutable_evidence(0)
                           ->mutable_routing()
                           ->mutable_sample()
                           ->mutable_topk_indices()
                           ->mutable_data();
  for (size_t row = 0; row < 64; ++row) {
    std::set<int64_t> taken;
    for (size_t j = 0; j < 4; ++j)
      taken.insert(
          At<int64_t>(batches[1].evidence(0).routing().sample().topk_indices(), row * 4 + j));
    int64_t other = 0;
    while (taken.count(other) > 0) ++other;
    std::memcpy(data.data() + row * 4 * sizeof(other), &other, sizeof(other));
  }
  EXPECT_EQ(Findings(batches, "large-margin-flips"), 1);
}

TEST(TrainInfer, EitherSideMayComeFirst) {
  RoutingPairSpec spec{.layers = 3, .flip_share = 0.02, .rollout_role = true};
  const auto batches = RoutingPair(spec);
  const auto text = [](const Verdicts& verdicts) {
    std::string all;
    for (const auto& v : verdicts) all += v.DebugString();
    return all;
  };
  EXPECT_EQ(Findings(batches, "large-margin-flips"), 3);
  EXPECT_EQ(text(Judge({batches[0], batches[1]})), text(Judge({batches[1], batches[0]})));
}

TEST(TrainInfer, OneSideAloneIsNotSpokenOf) {
  RoutingPairSpec spec{};
  EXPECT_TRUE(Judge({RoutingPair(spec)[0]}).empty());
  EXPECT_TRUE(Judge({RoutingPair(spec)[1]}).empty());
}

TEST(TrainInfer, CapacityDropsAreNoZeroGates) {
  RoutingPairSpec spec{};
  spec.zero_gates_every = 20;
  auto batches = RoutingPair(spec);
  EXPECT_EQ(Findings(batches, "zero-gates"), 1);
  batches[1].mutable_evidence(0)->mutable_routing()->mutable_config()->set_capacity_kind(
      v1::RoutingConfig::CAPACITY_DECLARED);
  EXPECT_EQ(Findings(batches, "zero-gates"), 0);
}

TEST(TrainInfer, BrokenRecordingsAreInconclusive) {
  const auto spoil = [](const std::function<void(v1::RoutingSample&)>& change) {
    auto batches = RoutingPair({});
    change(*batches[1].mutable_evidence(0)->mutable_routing()->mutable_sample());
    const auto verdicts = Judge(batches);
    return verdicts.size() == 1 && verdicts[0].kind() == v1::Verdict::KIND_INCONCLUSIVE
               ? verdicts[0].reason()
               : "no: " + std::to_string(verdicts.size());
  };
  EXPECT_THAT(spoil([](auto& s) { s.clear_position(); }), StartsWith("no-positions"));
  EXPECT_THAT(spoil([](auto& s) { s.mutable_scores()->set_shape(1, 7); }),
              StartsWith("bad-tensor"));
  EXPECT_THAT(spoil([](auto& s) { s.mutable_topk_indices()->mutable_data()->pop_back(); }),
              StartsWith("bad-tensor: topk_indices"));
  EXPECT_THAT(spoil([](auto& s) {
                s.mutable_topk_indices()->set_shape(0, std::numeric_limits<int64_t>::max());
              }),
              StartsWith("bad-shape"));
  EXPECT_THAT(spoil([](auto& s) {
                std::string& d = *s.mutable_position()->mutable_data();
                std::fill(d.begin(), d.end(), '\0');
              }),
              StartsWith("ids-repeat"));
  EXPECT_THAT(spoil([](auto& s) {
                std::string& d = *s.mutable_scores()->mutable_data();
                std::fill(d.begin(), d.end(), '\xff');  // NaN
              }),
              StartsWith("non-finite: only 0"));
}

TEST(TrainInfer, WaitingIsBounded) {
  RoutingPairSpec spec{.live = true};
  const v1::Batch batch = RoutingPair(spec)[0];
  TrainInferRuns runs(2048, 4);
  SiteStep step;
  step.role = v1::ROLE_TRAINER;
  step.site = batch.evidence(0).site();
  step.items.push_back({&batch.sources(0), &batch.evidence(0)});
  for (step.step = 0; step.step < 200; ++step.step) EXPECT_TRUE(runs.Take(step).empty());
  EXPECT_GT(runs.given_up(), 0u);
  const auto waiting = runs.Unmatched();
  ASSERT_EQ(waiting.size(), 1u);
  EXPECT_EQ(waiting.begin()->second.last, 199);
  EXPECT_EQ(waiting.begin()->second.count + runs.given_up(), 200u);
}

}  // namespace
}  // namespace plumbline::rules
