// Tests that the memory of the rules per run is bounded for any number of sites, ranks and
// sequences, and that the limit is reached at the same step in any order of arrival.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "rules/engine/close_events.h"
#include "rules/engine/engine.h"
#include "tests/support/batches.h"

namespace plumbline::rules {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;

// Returns evidence of every kind that a rule stores by site: updates, tensors, rollouts. `first` is
// the first site.
v1::Batch Step(uint32_t rank, uint32_t world, int64_t step, int first, int sites) {
  v1::Batch batch = test::BatchOf(test::SourceOf("run", rank, world));
  std::mt19937 random(static_cast<unsigned>(step));
  for (int i = first; i < first + sites; ++i) {
    v1::Evidence& update = *batch.add_evidence();
    update.mutable_site()->set_layer(absl::StrCat("layers.", i));
    update.mutable_site()->set_op("weight");
    update.set_step(step);
    update.set_sample_size(4096);
    v1::Update& of = *update.mutable_update();
    of.mutable_config()->set_optimizer("adamw");
    of.mutable_config()->set_dtype(v1::DTYPE_BF16);
    v1::UpdateSummary& summary = *of.mutable_summary();
    summary.set_count(4096);
    summary.set_intended(4096);
    summary.set_lost(2000 + random() % 1000);
    summary.set_intended_l1(1);
    summary.set_applied_l1(0.5);
    summary.set_lost_l1(0.5);
    summary.set_applied_along(0.5);
    v1::Evidence& tensor = *batch.add_evidence();
    *tensor.mutable_site() = update.site();
    tensor.mutable_site()->set_op("activation");
    tensor.set_step(step);
    tensor.set_sample_size(4096);
    tensor.mutable_tensor()->mutable_summary()->set_count(4096);
    tensor.mutable_tensor()->mutable_summary()->set_amax(1);
  }
  test::AddProgress(&batch, step);
  return batch;
}

class Memory : public ::testing::Test {
 protected:
  std::unique_ptr<Engine> Make(uint64_t rule_bytes, std::vector<std::string>* verdicts) const {
    EngineConfig config;
    config.hosted = true;
    config.run_bytes = rule_bytes * EngineConfig::kRulesPart;
    return *Engine::Create(config, [verdicts](const v1::Verdict& v) {
      if (verdicts != nullptr) verdicts->push_back(v.DebugString());
    });
  }
};

// Tests new sites in every step, up to the maximum per run.
TEST_F(Memory, OfARunIsBoundedHoweverManySitesItHas) {
  std::vector<v1::Verdict> full;
  EngineConfig config;
  config.run_bytes = kMiB * EngineConfig::kRulesPart;
  auto engine = *Engine::Create(config, [&](const v1::Verdict& v) {
    if (v.reason().rfind("memory-full", 0) == 0) full.push_back(v);
  });
  uint64_t most = 0;
  for (int64_t step = 0; step < 100; ++step) {
    ASSERT_TRUE(engine->Add(Step(0, 1, step, static_cast<int>(step) * 200, 200)).ok());
    most = std::max(most, engine->rule_bytes("run"));
  }
  EXPECT_LE(most, kMiB);
  EXPECT_LE(engine->rule_bytes(), kMiB);
  ASSERT_FALSE(full.empty()) << "more than that was remembered: " << most;
  EXPECT_EQ(engine->rules_set_aside(), full.size());
  for (const v1::Verdict& verdict : full) {
    EXPECT_EQ(verdict.kind(), v1::Verdict::KIND_INCONCLUSIVE);
    EXPECT_THAT(verdict.reason(), HasSubstr("the rule stops judging this run"));
  }
  // The measured memory is the stored data: a checkpoint without the names is not larger.
  EXPECT_LT(engine->Checkpoint().size(), 100u * 400 * 200 / 2);
  engine->Finish();
}

TEST_F(Memory, IsMetAtTheSamePlaceAfterRestartsAndInAnyOrderOfRanks) {
  std::vector<std::string> plain, restarted, turned;
  const auto run = [&](bool restart, bool turn, std::vector<std::string>* verdicts) {
    auto engine = Make(kMiB / 4, verdicts);
    for (int64_t step = 0; step < 60; ++step) {
      for (uint32_t i = 0; i < 3; ++i) {
        const uint32_t rank = turn ? 2 - i : i;
        ASSERT_TRUE(engine->Add(Step(rank, 3, step, static_cast<int>(step) * 40, 40)).ok());
      }
      if (!restart || step % 7 != 0) continue;
      const std::string bytes = engine->Checkpoint();
      const uint64_t held = engine->rule_bytes(), aside = engine->rules_set_aside();
      engine = Make(kMiB / 4, verdicts);
      ASSERT_TRUE(engine->Restore(bytes).ok());
      EXPECT_EQ(engine->rule_bytes(), held);
      EXPECT_EQ(engine->rules_set_aside(), aside);
      EXPECT_EQ(engine->Checkpoint(), bytes);
    }
    EXPECT_GT(engine->rules_set_aside(), 0u);
    engine->Finish();
  };
  run(false, false, &plain);
  run(true, false, &restarted);
  run(false, true, &turned);
  EXPECT_EQ(plain, restarted);
  EXPECT_EQ(plain, turned);
  EXPECT_GT(plain.size(), 100u);
}

// Tests that rules with little memory continue.
TEST_F(Memory, TheRuleThatRemembersMostGoesAndTheOthersJudgeOn) {
  std::vector<std::string> verdicts;
  auto engine = Make(kMiB / 4, &verdicts);
  for (int64_t step = 0; step < 60; ++step)
    ASSERT_TRUE(engine->Add(Step(0, 1, step, static_cast<int>(step) * 100, 100)).ok());
  const uint64_t aside = engine->rules_set_aside();
  EXPECT_GT(aside, 0u);
  EXPECT_LT(aside, 10u);
  const size_t before = verdicts.size();
  ASSERT_TRUE(engine->Add(Step(0, 1, 60, 6000, 10)).ok());
  EXPECT_GT(verdicts.size(), before);
}

// Tests the event with which a server reduces memory if all runs together use too much.
TEST_F(Memory, RoomIsMadeByAnEvent) {
  auto engine = Make(64 * kMiB, nullptr), other = Make(64 * kMiB, nullptr);
  for (int64_t step = 0; step < 20; ++step) {
    for (Engine* e : {engine.get(), other.get()})
      ASSERT_TRUE(e->Add(Step(0, 1, step, static_cast<int>(step) * 100, 100)).ok());
  }
  EXPECT_EQ(engine->rules_set_aside(), 0u);
  v1::JudgeEvent event;
  event.mutable_make_room()->set_run("run");
  event.mutable_make_room()->set_bytes(kOfItsRules | (100 << 10));
  ApplyCloses(event, "", engine.get());
  EXPECT_GT(engine->rules_set_aside(), 0u);
  EXPECT_LE(engine->rule_bytes("run"), 100u << 10);
  ApplyCloses(event, "another", other.get());
  EXPECT_EQ(other->rules_set_aside(), 0u);
}

}  // namespace
}  // namespace plumbline::rules
