// Tests the cost of a step: the textbook example, identities of the formulas on random plans,
// invalid values.
#include "calculators/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace plumbline::plan {
namespace {

using testing::HasSubstr;

// Returns 100 B dense parameters on 64 H100: 989 TFLOP/s at 40 %, 50 GB/s per GPU, domains of 8.
Input Textbook() {
  Input in;
  in.model = {.parameters = 100e9, .layers = 80, .hidden = 10240, .heads = 80, .sequence = 4096};
  in.cluster = {.gpus = 64,
                .peak = 989e12,
                .mfu = 0.4,
                .memory = 80e9,
                .domain = 8,
                .link = 50e9,
                .domain_link = 450e9};
  in.layout.batch_tokens = 64 * 4096;
  return in;
}

TEST(Plan, TheTextbooksCrossover) {
  Input in = Textbook();
  EXPECT_NEAR(NetworkSeconds(in), 1.5, 1e-9);
  EXPECT_NEAR(CriticalTokens(in), 989, 0.5);
  in.layout.gradient_bytes = 4;
  EXPECT_NEAR(CriticalTokens(in), 1319, 0.5);
  in = Textbook();
  in.cluster.rails = false;
  EXPECT_NEAR(NetworkSeconds(in), 12, 1e-9);
  EXPECT_NEAR(CriticalTokens(in), 7912, 0.5);
  in = Textbook();
  in.model.active = 10e9;  // sparse: needs ten times as many tokens
  EXPECT_NEAR(CriticalTokens(in), 9890, 5);
}

TEST(Plan, NothingLeavesADomainFasterThanItsOwnLink) {
  Input in = Textbook();
  in.cluster.domain = 16;  // 16 links of 50 GB/s would be 800
  EXPECT_EQ(GroupBandwidth(in), 450e9);
  in.cluster.gpus = 8;
  EXPECT_EQ(GroupBandwidth(in), 450e9);  // all GPUs are in one domain
}

TEST(Plan, BubblesOfTheLiterature) {
  EXPECT_EQ(BubbleShare(1, 1, 1), 0);
  EXPECT_DOUBLE_EQ(BubbleShare(4, 12, 1), 3.0 / 15);
  EXPECT_DOUBLE_EQ(BubbleShare(4, 12, 2), 3.0 / 27);
}

TEST(Plan, StateOfAdamInMixedPrecisionIsSixteenBytes) {
  const auto states = StateOfShardings(Textbook());
  ASSERT_EQ(states.size(), 4u);
  EXPECT_DOUBLE_EQ(states[0].total(), 1600e9);
  EXPECT_DOUBLE_EQ(states[1].total(), 400e9 + 1200e9 / 64);
  EXPECT_DOUBLE_EQ(states[2].total(), 200e9 + 1400e9 / 64);
  EXPECT_DOUBLE_EQ(states[3].total(), 1600e9 / 64);
}

// Korthikanti et al. 2022: a layer has s b h (34 + 5 a s / h) bytes.
TEST(Plan, ActivationsOfALayer) {
  Input in = Textbook();
  in.model.layers = 1;
  in.model.hidden = 12288;
  in.model.heads = 96;
  in.model.sequence = 2048;
  const double sbh = 2048.0 * 12288;
  EXPECT_DOUBLE_EQ(Activations(in).all, sbh * (34 + 5.0 * 96 * 2048 / 12288));
  EXPECT_DOUBLE_EQ(Activations(in).selective, sbh * 34);
  in.model.hidden = 0;
  EXPECT_TRUE(std::isnan(Activations(in).full));
}

Input Random(std::mt19937_64& draw) {
  const auto power = [&](int most) {
    return static_cast<double>(1 << std::uniform_int_distribution<int>(0, most)(draw));
  };
  Input in = Textbook();
  in.model.parameters = 1e9 * power(10);
  in.model.active = in.model.parameters / power(4);
  in.layout.tensor = power(3);
  in.layout.stages = power(3);
  in.layout.virtual_stages = power(2);
  in.cluster.gpus = in.layout.tensor * in.layout.stages * power(8);
  in.layout.batch_tokens = 4096 * power(14);
  in.layout.sharding = static_cast<Sharding>(std::uniform_int_distribution<int>(0, 3)(draw));
  in.layout.gradient_bytes = power(2);
  in.cluster.domain = power(6);
  return in;
}

// Tests that compute and network times are equal at the crossover, for any batch.
TEST(Plan, AtTheCrossoverComputingAndNetworkAreEqual) {
  std::mt19937_64 draw(7);
  for (int i = 0; i < 2000; ++i) {
    Input in = Random(draw);
    const double critical = CriticalTokens(in);
    if (critical == 0) continue;
    in.layout.batch_tokens = critical * in.cluster.gpus;
    const Cluster& c = in.cluster;
    const double even = 6 * in.layout.batch_tokens * in.model.used() / (c.peak * c.mfu * c.gpus);
    EXPECT_NEAR(even / NetworkSeconds(in), 1, 1e-12);
    EXPECT_GE(ComputeSeconds(in), even);
    EXPECT_NEAR(CriticalTokens(in) / critical, 1, 1e-12);
  }
}

// GPUs without a sequence do not shorten the step.
TEST(Plan, MoreGpusThanSequencesAreIdle) {
  Input in = Textbook();
  in.layout.batch_tokens = 1000 * 4096;
  in.cluster.gpus = 1024;
  const double one = ComputeSeconds(in);
  in.cluster.gpus = 2048;
  EXPECT_NEAR(ComputeSeconds(in), one, 1e-9 * one);
  in.cluster.gpus = 512;  // two sequences for most replicas
  EXPECT_NEAR(ComputeSeconds(in), 2 * one, 1e-9 * one);
  in.cluster.gpus = 500;
  EXPECT_NEAR(ComputeSeconds(in), 2 * one, 1e-9 * one);
  // A batch in tokens that is no multiple of the sequence has as many whole sequences as fit.
  in.layout.batch_tokens = 4e6;
  in.cluster.gpus = 976;
  EXPECT_NEAR(ComputeSeconds(in), one, 2e-3 * one);
  std::mt19937_64 draw(9);
  for (int i = 0; i < 500; ++i) {
    Input with = Random(draw);
    const double before = ComputeSeconds(with);
    with.cluster.gpus *= 2;
    EXPECT_LE(ComputeSeconds(with), before * (1 + 1e-9));
    if (Sequences(with) < DataParallel(with) / 2)
      EXPECT_NEAR(ComputeSeconds(with), before, 1e-9 * before);
  }
}

TEST(Plan, AStepIsNoShorterThanItsParts) {
  std::mt19937_64 draw(8);
  for (int i = 0; i < 2000; ++i) {
    const auto plan = MakePlan(Random(draw));
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_GE(plan->step_seconds, plan->network_seconds);
    EXPECT_GE(plan->step_seconds, plan->compute_seconds);
    EXPECT_GE(plan->exposed_share, 0);
    EXPECT_LT(plan->exposed_share, 1);
    ASSERT_GE(plan->bottlenecks.size(), 3u);
    for (const StageCost& s : plan->stages) EXPECT_GE(s.micro_batches, 1);
    for (const BottleneckShare& t : plan->bottlenecks)
      EXPECT_TRUE(t.share >= 0) << BottleneckName(t.bottleneck);
  }
}

TEST(Plan, WhatDoesNotFitIsTheFirstBottleneck) {
  Input in = Textbook();
  EXPECT_EQ(MakePlan(in)->bottlenecks[0].bottleneck, Bottleneck::kActivations);  // 114 GB of 80
  in.model.hidden = 0;
  in.layout.sharding = Sharding::kNone;
  EXPECT_EQ(MakePlan(in)->bottlenecks[0].bottleneck, Bottleneck::kState);
  in.layout.sharding = Sharding::kWeights;
  in.layout.batch_tokens = 64 * 512;  // below the crossover
  in.model.sequence = 512;
  EXPECT_EQ(MakePlan(in)->bottlenecks[0].bottleneck, Bottleneck::kNetwork);
}

TEST(Plan, MistakesAreNamed) {
  const auto message = [](auto change) {
    Input in = Textbook();
    change(in);
    return std::string(MakePlan(in).status().message());
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(message([](Input& i) { i.model.parameters = kNan; }), HasSubstr("parameters"));
  EXPECT_THAT(message([](Input& i) { i.model.active = 2e12; }), HasSubstr("active"));
  EXPECT_THAT(message([](Input& i) { i.cluster.mfu = 1.2; }), HasSubstr("mfu"));
  EXPECT_THAT(message([](Input& i) { i.cluster.gpus = 63.5; }), HasSubstr("gpus"));
  EXPECT_THAT(message([](Input& i) { i.layout.tensor = 3; }), HasSubstr("multiple of"));
  EXPECT_THAT(message([](Input& i) {
                i.layout.stages = 64;
                i.layout.virtual_stages = 2;
              }),
              HasSubstr("at most the 80 layers"));
  EXPECT_THAT(message([](Input& i) { i.layout.batch_tokens = 0; }), HasSubstr("batch"));
  EXPECT_THAT(message([](Input& i) { i.cluster.link = kNan; }), HasSubstr("link"));
}

}  // namespace
}  // namespace plumbline::plan
