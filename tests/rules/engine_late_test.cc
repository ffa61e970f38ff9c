// Tests evidence that arrives after its step was closed: reported immediately, one finding per
// cause, also after a restore in another engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "rules/engine/close_events.h"
#include "rules/engine/engine.h"
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
      if (verdict.rule() == "precision/non-finite" && verdict.has_finding())
        non_finite_.push_back(verdict.finding());
    });
    EXPECT_TRUE(engine.ok()) << engine.status();
    (*engine)->SetOnLate(
        [this](const std::string&, const std::string&, uint64_t items) { late_ += items; });
    return std::move(*engine);
  }
  // Returns an engine that closed steps 1 to 9 without rank 1, which did not return after the
  // server was away.
  std::unique_ptr<Engine> ClosedOverRankOne() {
    auto engine = Make();
    EXPECT_TRUE(engine->Add(Step(1, 0)).ok());
    for (int64_t step = 0; step < 10; ++step) EXPECT_TRUE(engine->Add(Step(0, step)).ok());
    EXPECT_EQ(engine->closed_step("run"), 0);
    v1::JudgeEvent event;
    *event.mutable_ranks_gone()->add_sources() = test::SourceOf("run", 1, 2);
    event.mutable_ranks_gone()->set_cause(v1::RanksGone::CAUSE_SERVER_AWAY);
    ApplyCloses(event, "another", engine.get());
    EXPECT_EQ(engine->closed_step("run"), 0);
    ApplyCloses(event, "", engine.get());
    EXPECT_EQ(engine->closed_step("run"), 9);
    return engine;
  }

  std::vector<v1::Finding> findings_, non_finite_;
  uint64_t late_ = 0;
};

// Tests that steps stay open while a rank of the world has not appeared.
TEST_F(Late, NoStepIsClosedWhileARankOfTheWorldIsAwaited) {
  auto engine = Make();
  EXPECT_TRUE(engine->Add(Step(0, 0)).ok());
  EXPECT_TRUE(engine->Add(Step(0, 1)).ok());
  EXPECT_EQ(engine->closed_step("run"), -1);
  EXPECT_TRUE(engine->Add(Step(1, 0)).ok());
  EXPECT_EQ(engine->closed_step("run"), 0);
}

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Returns a step of rank 1 with a loss and a tensor with `nan` NaN values.
v1::Batch Watched(int64_t step, double loss, uint64_t nan, const char* role = "activation") {
  v1::Batch batch = test::BatchOf(test::SourceOf("run", 1, 2));
  test::AddScalar(&batch, "loss", step, loss);
  v1::Evidence& tensor = *batch.add_evidence();
  tensor.mutable_site()->set_layer("layers.3");
  tensor.mutable_site()->set_op(role);
  tensor.set_step(step);
  tensor.set_order(1);
  tensor.mutable_tensor()->set_dtype(v1::DTYPE_BF16);
  tensor.mutable_tensor()->set_role(role);
  tensor.mutable_tensor()->mutable_summary()->set_count(64);
  tensor.mutable_tensor()->mutable_summary()->set_nan(nan);
  test::AddProgress(&batch, step).set_newest_step(step + 1);
  return batch;
}

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
  v1::Batch half = Step(1, 2);  // of a step that is not complete yet
  half.clear_progress();
  ASSERT_TRUE(engine->Add(std::move(half)).ok());
  auto again = Make();
  ASSERT_TRUE(again->Restore(engine->Checkpoint()).ok());
  EXPECT_EQ(again->Checkpoint(), engine->Checkpoint());
  EXPECT_EQ(findings_.size(), 2u);  // at the first, and after the number had doubled
  ASSERT_TRUE(again->Add(Step(1, 3)).ok());
  EXPECT_EQ(findings_.size(), 2u);
  again->Finish();
  EXPECT_EQ(findings_.size(), 3u);
  EXPECT_EQ(findings_[2].measured().value(), 9.0 / 42);
}

// The rule stores steps in order. Late evidence is judged separately.
TEST_F(Late, ANaNIsFoundAndItsFloodIsNot) {
  auto engine = ClosedOverRankOne();
  ASSERT_TRUE(engine->Add(Watched(1, 1, 0)).ok());
  EXPECT_TRUE(non_finite_.empty());
  for (int64_t step = 2; step < 5; ++step) ASSERT_TRUE(engine->Add(Watched(step, kNaN, 3)).ok());
  ASSERT_EQ(non_finite_.size(), 1u);
  EXPECT_EQ(non_finite_[0].site().layer(), "layers.3");
  EXPECT_EQ(non_finite_[0].site().step_first(), 2);
  ASSERT_EQ(non_finite_[0].site().ranks_size(), 1);
  EXPECT_EQ(non_finite_[0].site().ranks(0), 1u);
  // After a clean step, it is another finding.
  ASSERT_TRUE(engine->Add(Watched(5, 1, 0)).ok());
  ASSERT_TRUE(engine->Add(Watched(6, kNaN, 0)).ok());
  EXPECT_EQ(non_finite_.size(), 1u) << "a loss alone is health/loss-non-finite's";
  ASSERT_TRUE(engine->Add(Watched(7, kNaN, 3)).ok());
  ASSERT_EQ(non_finite_.size(), 2u);
  EXPECT_EQ(non_finite_[1].site().step_first(), 7);
}

// Tests a step in several parts, the last of which only marks the end, and across a checkpoint.
TEST_F(Late, ANaNIsFoundWhenItsStepIsWhole) {
  auto engine = ClosedOverRankOne();
  v1::Batch part = Watched(1, 1, 3);
  part.clear_progress();
  ASSERT_TRUE(engine->Add(std::move(part)).ok());
  EXPECT_TRUE(non_finite_.empty());
  auto again = Make();
  ASSERT_TRUE(again->Restore(engine->Checkpoint()).ok());
  v1::Batch rest = test::BatchOf(test::SourceOf("run", 1, 2));
  test::AddProgress(&rest, 1);
  ASSERT_TRUE(again->Add(std::move(rest)).ok());
  EXPECT_EQ(non_finite_.size(), 1u);
  auto third = Make();
  ASSERT_TRUE(third->Restore(again->Checkpoint()).ok());
  ASSERT_TRUE(third->Add(Watched(2, 1, 3)).ok());
  EXPECT_EQ(non_finite_.size(), 1u) << "the repetition of what was reported before";
}

// Tests that if a fault was reported from other ranks in time, a late rank does not report it
// again; an earlier fault is reported.
TEST_F(Late, ANaNThatWasReportedInTimeIsTheSame) {
  auto engine = ClosedOverRankOne();
  v1::Batch in_time = Step(0, 10);
  test::AddScalar(&in_time, "loss", 10, kNaN);
  ASSERT_TRUE(engine->Add(std::move(in_time)).ok());
  ASSERT_TRUE(engine->Add(Step(0, 11)).ok());
  v1::JudgeEvent event;
  *event.mutable_ranks_gone()->add_sources() = test::SourceOf("run", 1, 2);
  ApplyCloses(event, "", engine.get());
  EXPECT_TRUE(non_finite_.empty()) << "a loss alone is health/loss-non-finite's";
  ASSERT_TRUE(engine->Add(Watched(10, kNaN, 3)).ok());
  EXPECT_EQ(non_finite_.size(), 1u);
  ASSERT_TRUE(engine->Add(Watched(11, kNaN, 3)).ok());
  EXPECT_EQ(non_finite_.size(), 1u) << "its flood";
}

// Tests gradients that may overflow under a loss scale: not judged late, because the scale is not
// available.
TEST_F(Late, GradientsUnderALossScaleAreLeftAlone) {
  auto engine = ClosedOverRankOne();
  v1::Batch scaled = Step(0, 10);
  test::AddScalar(&scaled, "loss_scale", 10, 65536);
  ASSERT_TRUE(engine->Add(std::move(scaled)).ok());
  ASSERT_TRUE(engine->Add(Watched(9, 1, 3, "gradient")).ok());
  EXPECT_TRUE(non_finite_.empty());
  ASSERT_TRUE(engine->Add(Watched(10, 1, 3)).ok());
  EXPECT_EQ(non_finite_.size(), 1u);
}

// Returns the final batch of a rank: the remaining loop times, from the step after its last, and
// the end mark.
v1::Batch Goodbye(uint32_t rank, int64_t last_step) {
  v1::Batch batch = test::BatchOf(test::SourceOf("run", rank, 2));
  v1::Evidence& block = *batch.add_evidence();
  block.mutable_site()->set_layer("loop");
  block.mutable_site()->set_op("timeline");
  block.set_step(last_step + 1);
  block.mutable_timeline()->set_span_ns(1'000'000);
  test::AddProgress(&batch, last_step).set_finished(true);
  return batch;
}

// Tests that no step waits for the final batch, even if the other ranks are many steps ahead or
// have many steps left.
TEST_F(Late, TheLastBlockOfARankThatEndsLongBeforeTheOthersIsInTime) {
  auto engine = Make();
  for (int64_t step = 0; step < 3; ++step) ASSERT_TRUE(engine->Add(Step(1, step)).ok());
  ASSERT_TRUE(engine->Add(Goodbye(1, 2)).ok());
  for (int64_t step = 0; step < 200; ++step) ASSERT_TRUE(engine->Add(Step(0, step)).ok());
  EXPECT_EQ(engine->closed_step("run"), 199);
  ASSERT_TRUE(engine->Add(Goodbye(0, 199)).ok());
  engine->Finish();
  EXPECT_EQ(late_, 0u);
  EXPECT_TRUE(findings_.empty());
}

// Steps 0 to 9 were closed without the rank: its missing evidence of these is late, its final block
// is not.
TEST_F(Late, TheLastBlockOfARankThatStepsWereClosedOverIsInTime) {
  auto engine = ClosedOverRankOne();
  ASSERT_TRUE(engine->Add(Goodbye(1, 0)).ok());
  EXPECT_EQ(late_, 0u);
  EXPECT_TRUE(findings_.empty());

  auto other = ClosedOverRankOne();
  v1::Batch owing = Step(1, 1);
  owing.MergeFrom(Goodbye(1, 1));
  owing.mutable_sources()->RemoveLast();
  owing.mutable_progress()->DeleteSubrange(0, 1);
  ASSERT_TRUE(other->Add(std::move(owing)).ok());
  EXPECT_EQ(late_, 3u);
  EXPECT_EQ(findings_.size(), 1u);
}

// Tests that only the end mark is an exception: if the rank continues, a block for a closed step is
// late.
TEST_F(Late, ABlockOfARankThatGoesOnIsLate) {
  auto engine = ClosedOverRankOne();
  v1::Batch block = Goodbye(1, 0);
  block.mutable_progress(0)->set_finished(false);
  ASSERT_TRUE(engine->Add(std::move(block)).ok());
  EXPECT_EQ(late_, 1u);
}

// Tests that a run which ends, continues because its process returns, and ends again is settled at
// each of its ends.
TEST(Returns, WhatIsOpenAtTheSecondEndIsSettled) {
  std::vector<std::string> jumps;
  EngineConfig config;
  config.hosted = true;
  config.rules = {"health/loss-spike"};
  auto engine = *Engine::Create(config, [&](const v1::Verdict& verdict) {
    if (verdict.has_finding()) jumps.push_back(verdict.finding().explanation());
  });
  const v1::Source source = test::SourceOf("run");
  const auto end = [&] {
    engine->MarkGone(source, LateCause::kServerAway, analysis::EndKind::kUnreachable);
    engine->FinishRun("run");
  };
  const auto steps = [&](int64_t from, int64_t to, double loss) {
    for (int64_t step = from; step < to; ++step) {
      v1::Batch batch = test::BatchOf(source);
      batch.set_stream_id(7);
      test::AddScalar(&batch, "loss", step, loss + 0.01 * static_cast<double>(step * 7 % 5));
      test::AddProgress(&batch, step);
      ASSERT_TRUE(engine->Add(std::move(batch)).ok());
    }
  };
  steps(0, 100, 2);
  end();
  steps(100, 200, 2);
  EXPECT_TRUE(jumps.empty());
  steps(200, 212, 4);
  ASSERT_FALSE(jumps.empty());
  EXPECT_THAT(jumps.back(), ::testing::HasSubstr("It is still away."));
  end();
  EXPECT_THAT(jumps.back(), ::testing::HasSubstr("It was last away in step 211."));
}

}  // namespace
}  // namespace plumbline::rules
