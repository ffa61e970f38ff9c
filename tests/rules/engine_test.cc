// Tests joining, closing and ordering: the same evidence gives the same verdicts in any order of
// arrival.
#include "rules/engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "rules/catalogue.h"
#include "rules/engine/report.h"
#include "rules/engine/run_state.h"
#include "tests/rules/support/synthetic_routing.h"
#include "tests/support/batches.h"

namespace plumbline::rules {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::RoutingSpec;
using testing::SyntheticRouting;

v1::Batch Message(uint32_t rank, uint32_t world, uint32_t attempt = 0) {
  return test::BatchOf(test::SourceOf("run", rank, world, attempt));
}

v1::Batch ScalarAt(uint32_t rank, uint32_t world, int64_t step, uint32_t attempt = 0) {
  v1::Batch batch = Message(rank, world, attempt);
  test::AddScalar(&batch, "loss", step, static_cast<double>(step));
  test::AddProgress(&batch, step).set_newest_step(step + 1);
  return batch;
}

// Records the closed steps and their ranks.
class Closing : public ::testing::Test {
 protected:
  explicit Closing(bool hosted = false)
      : state_("run", {.window_steps = 64, .hosted = hosted}, &sets_) {}
  void Take(v1::Batch batch) {
    state_.Take(std::make_shared<const v1::Batch>(std::move(batch)), on_close_);
  }
  uint64_t Late(const std::string& cause) {
    const auto& late = state_.summary().late;
    return late.contains(cause) ? late.at(cause).count : 0;
  }
  void MarkGone(uint32_t rank, LateCause cause = LateCause::kStreamBroken) {
    state_.MarkGone(test::SourceOf("run", rank, 2), cause, on_close_);
  }

  SeriesSets sets_{[](const v1::Site&) { return true; }};
  RunState state_;
  std::vector<int64_t> steps_;
  std::vector<std::vector<uint32_t>> ranks_;
  std::vector<std::vector<uint32_t>> missing_;
  std::vector<std::pair<int64_t, uint32_t>> late_;  // (step, rank) reported separately
  std::vector<std::pair<std::string, uint64_t>> reported_late_;
  std::map<std::string, uint64_t> lost_;  // by cause
  OnClose on_close_ = {[this](const SiteStep& step) {
                         if (step.late) {
                           for (const Item& item : step.items)
                             late_.emplace_back(step.step, item.source->rank());
                           return;
                         }
                         steps_.push_back(step.step);
                         std::vector<uint32_t> ranks;
                         for (const Item& item : step.items) ranks.push_back(item.source->rank());
                         ranks_.push_back(ranks);
                         missing_.push_back(step.missing_ranks);
                       },
                       nullptr,
                       [this](const StepEnd& step) { EXPECT_EQ(step.step, steps_.back()); },
                       [this](const std::string& cause, uint64_t items) {
                         reported_late_.emplace_back(cause, items);
                       },
                       nullptr,
                       nullptr,
                       [this](const std::string& cause, uint64_t items) { lost_[cause] += items; }};
};

TEST_F(Closing, AStepWaitsForAllRanks) {
  Take(ScalarAt(1, 2, 0));
  EXPECT_TRUE(steps_.empty());
  Take(ScalarAt(0, 2, 0));
  EXPECT_THAT(steps_, ElementsAre(0));
  EXPECT_THAT(ranks_[0], ElementsAre(0, 1));
  EXPECT_TRUE(missing_[0].empty());
}

TEST_F(Closing, AnIdleRankIsClosedOverAfterTheWindow) {
  Take(ScalarAt(1, 2, 0));
  for (int64_t step = 0; step < 64; ++step) Take(ScalarAt(0, 2, step));
  EXPECT_THAT(steps_, ElementsAre(0));  // both had reported it
  Take(ScalarAt(0, 2, 64));
  EXPECT_THAT(steps_, ElementsAre(0, 1));  // newest is now 65: 64 after step 1
  EXPECT_THAT(missing_[1], ElementsAre(1));
}

TEST_F(Closing, ARankWithABacklogIsWaitedFor) {
  v1::Batch busy = ScalarAt(1, 2, 0);
  busy.mutable_progress(0)->set_newest_step(80);  // is at step 80 and has sent step 0
  Take(busy);
  for (int64_t step = 0; step < 90; ++step) Take(ScalarAt(0, 2, step));
  EXPECT_THAT(steps_, ElementsAre(0));
}

TEST_F(Closing, ARankThatIsExpectedIsWaitedForHoweverFarTheOthersAre) {
  state_.Expect(test::SourceOf("run", 1, 3));
  for (int64_t step = 0; step < 200; ++step) Take(ScalarAt(0, 3, step));
  EXPECT_TRUE(steps_.empty()) << "nothing came of rank 1 yet";
  Take(ScalarAt(1, 3, 10));
  ASSERT_EQ(steps_.size(), 11u);  // rank 2 never appeared, and the window has passed
  EXPECT_THAT(missing_[10], ElementsAre(2));
  for (int64_t step = 200; step < 300; ++step) Take(ScalarAt(0, 3, step));
  EXPECT_EQ(steps_.back(), 10) << "and is without a backlog";
  MarkGone(1);
  EXPECT_EQ(steps_.back(), 236);  // newest is 300: 64 after it
  EXPECT_TRUE(reported_late_.empty());
}

TEST_F(Closing, AGoneRankIsNotWaitedFor) {
  Take(ScalarAt(1, 2, 0));
  Take(ScalarAt(0, 2, 0));
  Take(ScalarAt(0, 2, 1));
  EXPECT_THAT(steps_, ElementsAre(0));
  MarkGone(1);
  EXPECT_THAT(steps_, ElementsAre(0, 1));
}

TEST_F(Closing, AGoneRankOfWhichSomethingComesIsWaitedForAgain) {
  Take(ScalarAt(1, 2, 0));
  Take(ScalarAt(0, 2, 0));
  MarkGone(1);
  Take(ScalarAt(0, 2, 1));
  EXPECT_THAT(steps_, ElementsAre(0, 1));
  Take(ScalarAt(1, 2, 1));  // late
  Take(ScalarAt(0, 2, 2));
  EXPECT_THAT(steps_, ElementsAre(0, 1));
  Take(ScalarAt(1, 2, 2));
  EXPECT_THAT(steps_, ElementsAre(0, 1, 2));
  EXPECT_THAT(ranks_[2], ElementsAre(0, 1));
  EXPECT_EQ(Late("late-stream-broken"), 1u);
  EXPECT_THAT(late_, ElementsAre(std::pair(int64_t{1}, 1u)));
  EXPECT_THAT(reported_late_,
              ElementsAre(std::pair(std::string("late-stream-broken"), uint64_t{1})));
}

TEST_F(Closing, WhatIsLateIsReportedWhenItsRankHasDeliveredTheStep) {
  Take(ScalarAt(0, 2, 5));
  MarkGone(1);
  v1::Batch half = Message(1, 2);
  test::AddScalar(&half, "loss", 5, 1.0);
  Take(half);
  EXPECT_EQ(Late("late-stream-broken"), 1u);  // counted immediately
  EXPECT_TRUE(late_.empty());
  v1::Batch rest = Message(1, 2);
  test::AddScalar(&rest, "grad_norm", 5, 1.0);
  test::AddProgress(&rest, 5);
  Take(rest);
  EXPECT_THAT(late_, ElementsAre(std::pair(int64_t{5}, 1u), std::pair(int64_t{5}, 1u)));
  EXPECT_EQ(Late("late-stream-broken"), 2u);
  EXPECT_TRUE(state_.summary().losses.empty());
}

TEST_F(Closing, OfWhatIsLateAndNeverWholeAWindowIsKept) {
  Take(ScalarAt(0, 2, 500));
  MarkGone(1);
  for (int64_t step = 0; step < 100; ++step) {
    v1::Batch batch = Message(1, 2);
    test::AddScalar(&batch, "loss", step, 1.0);
    Take(batch);
  }
  EXPECT_EQ(late_.size(), 36u);
  state_.CloseAll(on_close_);
  EXPECT_EQ(late_.size(), 100u);
}

// The host knows the connected ranks and decides which ranks a step is closed without.
class HostedClosing : public Closing {
 protected:
  HostedClosing() : Closing(true) {}
};

TEST_F(HostedClosing, NoRankIsClosedOverUnlessTheHostStatesIt) {
  Take(ScalarAt(1, 2, 0));
  for (int64_t step = 0; step < 300; ++step) Take(ScalarAt(0, 2, step));
  EXPECT_THAT(steps_, ElementsAre(0));
  const std::vector<Lag> lags = state_.Lagging();
  ASSERT_EQ(lags.size(), 1u);
  EXPECT_EQ(lags[0].oldest, 1);
  EXPECT_EQ(lags[0].through, 300 - 64);
  EXPECT_THAT(lags[0].ranks, ElementsAre(1));
  EXPECT_FALSE(lags[0].unseen);
  state_.CloseThrough(0, v1::ROLE_TRAINER, 10, on_close_);
  EXPECT_EQ(steps_.back(), 10);
  EXPECT_THAT(missing_.back(), ElementsAre(1));
  Take(ScalarAt(1, 2, 9));
  EXPECT_EQ(Late("late-rank-slow"), 1u);
  for (int64_t step = 10; step < 300; ++step) Take(ScalarAt(1, 2, step));
  EXPECT_EQ(steps_.back(), 299);
  EXPECT_EQ(Late("late-rank-slow"), 2u);
}

TEST_F(HostedClosing, RanksThatNeverCameAreWaitedForUntilTheHostGivesThemUp) {
  for (int64_t step = 0; step < 200; ++step) Take(ScalarAt(0, 2, step));
  EXPECT_TRUE(steps_.empty());
  ASSERT_EQ(state_.Lagging().size(), 1u);
  EXPECT_TRUE(state_.Lagging()[0].unseen);
  state_.MarkAbsent(test::SourceOf("run", 0, 2), on_close_);
  EXPECT_EQ(steps_.size(), 200u);
  EXPECT_THAT(missing_.back(), ElementsAre(1));
  Take(ScalarAt(1, 2, 100));  // it appeared later, and steps wait for it from here on
  EXPECT_EQ(Late("late-never-came"), 1u);
  Take(ScalarAt(0, 2, 200));
  EXPECT_EQ(steps_.size(), 200u);
  for (int64_t step = 101; step <= 200; ++step) Take(ScalarAt(1, 2, step));
  EXPECT_EQ(steps_.back(), 200);
  EXPECT_THAT(ranks_.back(), ElementsAre(0, 1));
}

TEST_F(Closing, EvidenceOfAClosedStepIsCountedLate) {
  Take(ScalarAt(0, 1, 0));
  Take(ScalarAt(0, 1, 1));
  Take(ScalarAt(0, 1, 0));
  EXPECT_THAT(steps_, ElementsAre(0, 1));
  EXPECT_EQ(Late("late"), 1u);
  EXPECT_TRUE(state_.summary().losses.empty());
}

// Ranks 0 and 1 are killed at step 20. Steps 6 to 20 of rank 1 are in its spool. The next attempt
// begins at step 21 and arrives first.
TEST_F(Closing, StepsBeforeTheNextAttemptsFirstOneAreNotSuperseded) {
  for (int64_t step = 0; step <= 20; ++step) Take(ScalarAt(0, 2, step));
  for (int64_t step = 0; step <= 5; ++step) Take(ScalarAt(1, 2, step));
  v1::Batch begins = Message(0, 2, 1);  // has not begun a step yet
  begins.add_progress()->set_newest_step(-1);
  Take(begins);
  EXPECT_EQ(steps_.back(), 5);
  Take(ScalarAt(0, 2, 21, 1));
  EXPECT_EQ(steps_.back(), 20);
  for (int64_t step = 6; step <= 20; ++step) Take(ScalarAt(1, 2, step));
  EXPECT_EQ(late_.size(), 15u);
  EXPECT_EQ(Late("late-next-attempt"), 15u);
  EXPECT_TRUE(state_.summary().losses.empty());
  // If the next attempt repeats a step, the step is superseded.
  Take(ScalarAt(1, 2, 21));
  EXPECT_EQ(late_.size(), 15u);
  EXPECT_EQ(state_.summary().losses.at({"", "loss", "superseded"}).count, 1u);
  EXPECT_EQ(lost_.at("superseded"), 1u);
  EXPECT_EQ(state_.open_bytes() > 0, true) << "step 21 waits for rank 1";
  Take(ScalarAt(1, 2, 21, 1));
  EXPECT_EQ(steps_.back(), 21);
  EXPECT_EQ(state_.open_bytes(), 0u);
}

// Attempt 1 repeats steps from 10 on, and attempt 2 begins at 30: the steps of attempt 0 below 10
// count.
TEST_F(Closing, OfSeveralLaterAttemptsTheEarliestStepSupersedes) {
  Take(ScalarAt(0, 1, 20));
  Take(ScalarAt(0, 1, 10, 1));
  Take(ScalarAt(0, 1, 30, 2));
  Take(ScalarAt(0, 1, 9));
  Take(ScalarAt(0, 1, 10));
  Take(ScalarAt(0, 1, 29, 1));
  Take(ScalarAt(0, 1, 30, 1));
  EXPECT_EQ(Late("late-next-attempt"), 2u);
  EXPECT_EQ(state_.summary().losses.at({"", "loss", "superseded"}).count, 2u);
  // The same after a checkpoint.
  Archive written;
  state_.Persist(written);
  RunState again("run", {.window_steps = 64}, &sets_);
  const std::string bytes = written.Take();
  Archive read(bytes);
  again.Persist(read);
  ASSERT_TRUE(read.ok()) << read.error();
  again.Take(std::make_shared<const v1::Batch>(ScalarAt(0, 1, 9)), on_close_);
  again.Take(std::make_shared<const v1::Batch>(ScalarAt(0, 1, 10)), on_close_);
  EXPECT_EQ(again.summary().late.at("late-next-attempt").count, 3u);
  EXPECT_EQ(again.summary().losses.at({"", "loss", "superseded"}).count, 3u);
}

TEST_F(Closing, ALaterAttemptSupersedesOpenSteps) {
  Take(ScalarAt(0, 2, 4));
  Take(ScalarAt(0, 2, 5));
  Take(ScalarAt(0, 2, 5, 1));  // repeats step 5: step 4 is closed, the old step 5 is void
  EXPECT_THAT(steps_, ElementsAre(4));
  Take(ScalarAt(1, 2, 5, 1));
  EXPECT_THAT(steps_, ElementsAre(4, 5));
  EXPECT_THAT(ranks_[1], ElementsAre(0, 1));
}

std::string Text(const Report& report) {
  std::string text;
  for (const v1::Finding* finding : report.findings()) text += finding->DebugString();
  for (const v1::Verdict* verdict : report.verdicts()) text += verdict->DebugString();
  return text;
}

TEST(Engine, FindingsDoNotDependOnArrivalOrder) {
  std::vector<v1::Batch> batches;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    for (int64_t step = 0; step < 6; ++step) {
      RoutingSpec spec;
      spec.policy = step % 2 == 0 ? RouterPolicy::kScore : RouterPolicy::kFifo;
      spec.seed = rank * 100 + static_cast<uint64_t>(step) + 1;
      v1::Batch batch = SyntheticRouting(spec).Batch(rank, 3, step);
      test::AddProgress(&batch, step).set_finished(step == 5);
      batches.push_back(batch);
    }
  }
  std::string reference;
  std::mt19937_64 rng(1);
  for (int trial = 0; trial < 20; ++trial) {
    // A random interleaving of the ranks. The batches of each rank stay in order, as in its stream.
    std::vector<size_t> next{0, 6, 12};
    Report report;
    auto engine = Engine::Create({}, [&](const v1::Verdict& verdict) { report.Add(verdict); });
    ASSERT_TRUE(engine.ok());
    for (size_t left = batches.size(); left > 0; --left) {
      size_t rank = rng() % 3;
      while (next[rank] == (rank + 1) * 6) rank = (rank + 1) % 3;
      ASSERT_TRUE((*engine)->Add(batches[next[rank]++]).ok());
    }
    (*engine)->Finish();
    if (trial == 0) reference = Text(report);
    EXPECT_EQ(Text(report), reference);
  }
  EXPECT_THAT(reference, HasSubstr("drop-by-score"));
}

TEST(Engine, MalformedBatchesAreRefusedWhole) {
  auto engine = Engine::Create({}, [](const v1::Verdict&) {});
  ASSERT_TRUE(engine.ok());
  v1::Batch batch = ScalarAt(0, 1, 0);
  batch.mutable_evidence(0)->set_source(7);
  EXPECT_THAT(std::string((*engine)->Add(batch).message()),
              HasSubstr("evidence[0].source: 7, but the batch names 1 sources"));
  batch = ScalarAt(3, 2, 0);
  EXPECT_FALSE((*engine)->Add(batch).ok());
  batch = ScalarAt(0, 1, -4);
  EXPECT_FALSE((*engine)->Add(batch).ok());
  batch = ScalarAt(0, 1, 0);
  batch.mutable_evidence(0)->clear_site();
  EXPECT_FALSE((*engine)->Add(batch).ok());
  batch = ScalarAt(0, 4000000000u, 0);
  EXPECT_FALSE((*engine)->Add(batch).ok());
}

TEST(Engine, SettingsAndGlobsAreChecked) {
  const auto error = [](EngineConfig config) {
    return std::string(Engine::Create(config, [](const v1::Verdict&) {}).status().message());
  };
  EXPECT_THAT(error({.rules = {"causality/moe-futur-leak"}}),
              HasSubstr("did you mean causality/moe-future-leak"));
  EXPECT_THAT(error({.rules = {"moe-futrue-leak"}}), HasSubstr("did you mean causality/moe-fut"));
  EXPECT_EQ(error({.rules = {"hanf"}}), "no rule matches 'hanf'; did you mean performance/hang?");
  EXPECT_EQ(error({.rules = {"nope"}}), "no rule matches 'nope'") << "nothing is near";
  EXPECT_THAT(error({.rules = {"causality/length-*"}}), HasSubstr("planned"));
  EXPECT_THAT(error({.settings = {"nonsense"}}), HasSubstr("expected RULE.OPTION=VALUE"));
  EXPECT_THAT(error({.settings = {"causality/moe-future-leak.proof-bit=30"}}),
              HasSubstr("proof-bits, hint-bits"));
  EXPECT_THAT(error({.settings = {"causality/moe-future-leak.proof-bits=many"}}),
              HasSubstr("expected a number"));
  EXPECT_THAT(error({.settings = {"causality/moe-future-leak.proof-bits=1"}}),
              HasSubstr("expected 20 to 1000"));
  EXPECT_EQ(error({.settings = {"causality/moe-future-leak.proof-bits=30"}}), "");
}

TEST(Report, ASurerCauseRefinesTheFinding) {
  const auto reported = [](const char* cause, double confidence) {
    v1::Verdict verdict;
    verdict.set_kind(v1::Verdict::KIND_FINDING);
    verdict.mutable_finding()->set_fingerprint("f");
    verdict.mutable_finding()->set_level(v1::LEVEL_WARNING);
    verdict.mutable_finding()->mutable_cause()->set_id(cause);
    verdict.mutable_finding()->mutable_cause()->set_confidence(confidence);
    return verdict;
  };
  Report report;
  report.Add(reported("unknown", 0));
  EXPECT_FALSE(report.Add(reported("temperature", 0.9)).stronger);
  EXPECT_EQ(report.findings()[0]->cause().id(), "temperature");
  report.Add(reported("noise", 0.5));
  report.Add(reported("truncation", 0.9));
  EXPECT_EQ(report.findings()[0]->cause().id(), "temperature");
}

TEST(Engine, NothingToJudgeIsAnError) {
  std::vector<v1::Verdict> verdicts;
  auto engine =
      Engine::Create({}, [&](const v1::Verdict& verdict) { verdicts.push_back(verdict); });
  v1::Batch batch = ScalarAt(0, 1, 0);
  batch.mutable_evidence(0)->mutable_site()->set_op("throughput");  // not read by any rule
  ASSERT_TRUE((*engine)->Add(std::move(batch)).ok());
  (*engine)->Finish();
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].rule(), "meta/probe-coverage");
  EXPECT_EQ(verdicts[0].finding().level(), v1::LEVEL_ERROR);
  EXPECT_EQ((*engine)->coverage().judged, 0u);
}

TEST(Engine, LossIsAFindingBySite) {
  std::vector<v1::Verdict> verdicts;
  auto engine = Engine::Create({.rules = {"meta/data-loss"}}, [&](const v1::Verdict& verdict) {
    if (verdict.rule() == "meta/data-loss") verdicts.push_back(verdict);
  });
  for (int64_t step = 0; step < 999; ++step) ASSERT_TRUE((*engine)->Add(ScalarAt(0, 1, step)).ok());
  v1::Batch batch = Message(0, 1);
  v1::Loss& loss = *batch.add_losses();
  loss.set_cause("queue-full");
  loss.mutable_site()->set_op("loss");
  loss.set_count(1);
  loss.set_step_first(7);
  loss.set_step_last(7);
  ASSERT_TRUE((*engine)->Add(batch).ok());
  EXPECT_EQ((*engine)->coverage().dropped, 1u);
  (*engine)->Finish();
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].finding().level(), v1::LEVEL_WARNING);  // 1 of 1,000: not above 1 %
  EXPECT_EQ(verdicts[0].finding().cause().id(), "queue-full");
}

TEST(Fingerprint, HashesOnlyRuleRunLayerAndOp) {
  v1::FindingSite site;
  site.set_run("r");
  site.set_layer("ab");
  site.set_op("c");
  const std::string print = Fingerprint("g/n", site);
  EXPECT_EQ(print.size(), 32u);
  site.set_step_first(9);
  site.add_ranks(3);
  EXPECT_EQ(Fingerprint("g/n", site), print);
  site.set_layer("a");
  site.set_op("bc");
  EXPECT_NE(Fingerprint("g/n", site), print);
}

TEST(Catalogue, GlobsMatchAsAShellDoes) {
  EXPECT_TRUE(GlobMatch("*", ""));
  EXPECT_TRUE(GlobMatch("causality/*", "causality/moe-future-leak"));
  EXPECT_TRUE(GlobMatch("*leak*", "causality/moe-future-leak"));
  EXPECT_TRUE(GlobMatch("a?c", "abc"));
  EXPECT_FALSE(GlobMatch("a?c", "ac"));
  EXPECT_FALSE(GlobMatch("meta/*", "causality/moe-future-leak"));
}

// Tests that if only rules without evidence are selected, no finding reports that evidence was not
// judged.
TEST(Coverage, IsNotMissedWhereMetaRulesAloneWereRequested) {
  for (const bool alone : {true, false}) {
    EngineConfig config;
    config.rules = {"meta/*"};
    if (!alone) config.rules.push_back("precision/*");
    std::vector<std::string> found;
    auto engine = Engine::Create(config, [&](const v1::Verdict& verdict) {
      if (verdict.kind() == v1::Verdict::KIND_FINDING) found.push_back(verdict.rule());
    });
    ASSERT_TRUE(engine.ok()) << engine.status();
    v1::Batch batch = Message(0, 1);
    test::AddScalar(&batch, "anything", 0, 1);
    ASSERT_TRUE((*engine)->Add(std::move(batch)).ok());
    (*engine)->Finish();
    EXPECT_EQ(found,
              alone ? std::vector<std::string>() : std::vector<std::string>{"meta/probe-coverage"});
  }
}

}  // namespace
}  // namespace plumbline::rules
