// Evidence that comes after its step was closed: told at once, one finding a cause, also by an
// engine that took over from another.
#include <gtest/gtest.h>

#include "rules/engine/engine.h"
#include "rules/engine/told_closes.h"
#include "tests/support/batches.h"

namespace plumbline::rules {
namespace {

v1::Batch Step(uint32_t rank, int64_t step) {
  v1::Batch batch = test::BatchOf(test::SourceOf("run", rank, 2));
  for (const char* op : {"a", "b", "c"}) test::AddScalar(&batch, op, step, 1);
  test::AddProgress(&batch, step).set_newest_step(step + 1);
  return batch;
}

class Late : public ::testing::Test {
 protected:
  std::unique_ptr<Engine> Make() {
    EngineConfig config;
    config.hosted = true;
    auto engine = Engine::Create(config, [this](const v1::Verdict& verdict) {
      if (verdict.rule() == "meta/data-loss") findings_.push_back(verdict.finding());
    });
    EXPECT_TRUE(engine.ok()) << engine.status();
    (*engine)->SetOnLate(
        [this](const std::string&, const std::string&, uint64_t items) { late_ += items; });
    return std::move(*engine);
  }
  // Rank 1 does not come back to a server that was away.
  std::unique_ptr<Engine> ClosedOverRankOne() {
    auto engine = Make();
    EXPECT_TRUE(engine->Add(Step(1, 0)).ok());
    for (int64_t step = 0; step < 10; ++step) EXPECT_TRUE(engine->Add(Step(0, step)).ok());
    EXPECT_EQ(engine->closed_step("run"), 0);
    v1::JudgeEvent event;
    *event.mutable_ranks_gone()->add_sources() = test::SourceOf("run", 1, 2);
    event.mutable_ranks_gone()->set_cause(v1::RanksGone::CAUSE_SERVER_AWAY);
    TellCloses(event, "another", engine.get());
    EXPECT_EQ(engine->closed_step("run"), 0);
    TellCloses(event, "", engine.get());
    EXPECT_EQ(engine->closed_step("run"), 9);
    return engine;
  }

  std::vector<v1::Finding> findings_;
  uint64_t late_ = 0;
};

TEST_F(Late, OneFindingOfAllSitesAtOnceWithTheTrueCause) {
  auto engine = ClosedOverRankOne();
  EXPECT_TRUE(findings_.empty());
  ASSERT_TRUE(engine->Add(Step(1, 1)).ok());
  ASSERT_EQ(findings_.size(), 1u);
  EXPECT_EQ(late_, 3u);
  EXPECT_EQ(findings_[0].cause().id(), "late-server-away");
  EXPECT_EQ(findings_[0].site().op(), "late-server-away");
  EXPECT_EQ(findings_[0].witness().fields().at("sites").struct_value().fields_size(), 3);
  EXPECT_EQ(engine->coverage().dropped, 0u);
}

TEST_F(Late, AnEngineThatTakesOverGoesOnCounting) {
  auto engine = ClosedOverRankOne();
  ASSERT_TRUE(engine->Add(Step(1, 1)).ok());
  v1::Batch half = Step(1, 2);  // of a step that is not whole yet
  half.clear_progress();
  ASSERT_TRUE(engine->Add(std::move(half)).ok());
  auto again = Make();
  ASSERT_TRUE(again->Restore(engine->Checkpoint()).ok());
  EXPECT_EQ(again->Checkpoint(), engine->Checkpoint());
  EXPECT_EQ(findings_.size(), 2u);  // at the first, and when it had doubled
  ASSERT_TRUE(again->Add(Step(1, 3)).ok());
  EXPECT_EQ(findings_.size(), 2u);
  again->Finish();
  EXPECT_EQ(findings_.size(), 3u);
  EXPECT_EQ(findings_[2].measured().value(), 9.0 / 42);
}

}  // namespace
}  // namespace plumbline::rules
