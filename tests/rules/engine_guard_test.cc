// Tests that if a host excludes a run, or a run cannot be judged, the other runs of the same batch
// are judged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <set>

#include "rules/engine/close_events.h"
#include "rules/engine/engine.h"
#include "rules/engine/report.h"

namespace plumbline::rules {
namespace {

using testing::ElementsAre;

// Returns a batch with one step and a loss for each run. If `complete` is false, the step waits for
// a second rank.
v1::Batch StepOf(const std::vector<std::string>& runs, int64_t step, bool complete = true) {
  v1::Batch batch;
  for (const std::string& run : runs) {
    const auto source = static_cast<uint32_t>(batch.sources_size());
    batch.add_sources()->set_run(run);
    batch.mutable_sources(batch.sources_size() - 1)->set_world_size(complete ? 1 : 2);
    v1::Evidence& evidence = *batch.add_evidence();
    evidence.set_source(source);
    evidence.mutable_site()->set_op("loss");
    evidence.set_step(step);
    evidence.mutable_scalar()->set_value(1.0);
    v1::Progress& progress = *batch.add_progress();
    progress.set_source(source);
    progress.set_any_step(true);
    progress.set_complete_through(step);
    progress.set_newest_step(step);
  }
  return batch;
}

class Guard : public RunGuard {
 public:
  bool Begin(const std::string& run) override {
    EXPECT_EQ(at, "");
    if (left_out.contains(run)) return false;
    at = run;
    return true;
  }
  void End() override { at.clear(); }
  void Failed(const std::string& run, const std::string& what) override {
    EXPECT_EQ(at, "");
    failed.push_back(run + ": " + what);
  }
  std::string at;
  std::set<std::string> left_out;
  std::vector<std::string> failed;
};

class EngineGuard : public testing::Test {
 protected:
  void SetUp() override {
    EngineConfig config;
    config.hosted = true;
    engine_ = *Engine::Create(config, [this](const v1::Verdict&) {
      if (guard_.at == "bad" && fails_) throw std::bad_alloc();
    });
    engine_->SetGuard(&guard_);
  }
  Guard guard_;
  bool fails_ = false;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineGuard, WhoIsLeftOutIsNotKnownAndTheOthersAreJudged) {
  guard_.left_out = {"bad"};
  ASSERT_TRUE(engine_->Add(StepOf({"a", "bad", "c"}, 1)).ok());
  EXPECT_THAT(engine_->Runs(), ElementsAre("a", "c"));
  EXPECT_EQ(engine_->closed_step("c"), 1);
}

TEST_F(EngineGuard, ARunThatCannotBeJudgedIsForgottenAlone) {
  ASSERT_TRUE(engine_->Add(StepOf({"a", "bad", "c"}, 1)).ok());
  fails_ = true;
  for (int64_t step = 2; step < 200 && guard_.failed.empty(); ++step)
    ASSERT_TRUE(engine_->Add(StepOf({"a", "bad", "c"}, step)).ok());
  engine_->FinishRun("bad");  // if no step gave a verdict
  ASSERT_FALSE(guard_.failed.empty());
  EXPECT_EQ(guard_.failed[0].substr(0, 5), "bad: ");
  EXPECT_THAT(engine_->Runs(), ElementsAre("a", "c"));
  EXPECT_EQ(engine_->closed_step("a"), engine_->closed_step("c"));
  EXPECT_GE(engine_->closed_step("a"), 2);
}

// Tests memory release requested by the host: docs/decisions/0020.
TEST_F(EngineGuard, RoomIsMadeOfTheOldestSteps) {
  for (int64_t step = 1; step <= 50; ++step)
    ASSERT_TRUE(engine_->Add(StepOf({"a", "b"}, step, /*complete=*/false)).ok());
  const uint64_t before = engine_->open_bytes("a");
  v1::JudgeEvent event;
  event.mutable_make_room()->set_run("a");
  event.mutable_make_room()->set_bytes(before / 2);
  ApplyCloses(event, "b", engine_.get());  // of another run
  EXPECT_EQ(engine_->open_bytes("a"), before);
  ApplyCloses(event, "", engine_.get());
  EXPECT_LE(engine_->open_bytes("a"), before / 2);
  EXPECT_GT(engine_->open_bytes("a"), before / 4);
  EXPECT_EQ(engine_->open_bytes("b"), before);
  EXPECT_EQ(engine_->open_bytes(), before + engine_->open_bytes("a"));
  EXPECT_EQ(engine_->LargestRun(), "b");
  EXPECT_GT(engine_->closed_for_room(), 0u);
  event.mutable_make_room()->set_bytes(0);
  ApplyCloses(event, "a", engine_.get());
  EXPECT_EQ(engine_->open_bytes("a"), 0u);
  engine_->FinishRun("b");
  EXPECT_EQ(engine_->open_bytes(), 0u);
  EXPECT_EQ(engine_->LargestRun(), "");
}

// Tests the limits on stored verdicts for a host that runs for months.
TEST(ReportBounds, WhatIsNewBeyondThemIsCountedAndLeftOut) {
  Report report;
  report.Bound(/*findings=*/3, /*lines=*/5);
  const auto add = [&](v1::Verdict::Kind kind, int site) {
    v1::Verdict verdict;
    verdict.set_rule("a/b");
    verdict.set_kind(kind);
    verdict.mutable_site()->set_op("op" + std::to_string(site));
    if (kind == v1::Verdict::KIND_FINDING) {
      verdict.mutable_finding()->set_fingerprint(std::to_string(site));
      *verdict.mutable_finding()->mutable_site() = verdict.site();
    }
    return report.Add(verdict);
  };
  for (int site = 0; site < 100; ++site) add(v1::Verdict::KIND_PASS, site);
  EXPECT_EQ(report.verdicts().size(), 5u);
  EXPECT_EQ(report.left_out(), 95u);
  // If the lines are full, findings are still accepted, and known entries are updated.
  for (int site = 0; site < 10; ++site)
    EXPECT_EQ(add(v1::Verdict::KIND_FINDING, site).finding != nullptr, site < 3) << site;
  EXPECT_EQ(report.findings().size(), 3u);
  EXPECT_EQ(report.left_out(), 102u);
  EXPECT_EQ(add(v1::Verdict::KIND_FINDING, 1).count, 2u);
  add(v1::Verdict::KIND_PASS, 4);
  EXPECT_EQ(report.left_out(), 102u);
}

}  // namespace
}  // namespace plumbline::rules
