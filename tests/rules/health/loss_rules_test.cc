// The rules on losses in an engine, step by step: what is told when, and of whom.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rules/engine/engine.h"
#include "tests/support/batches.h"

namespace plumbline::rules::testing {
namespace {

struct Heard {
  v1::Verdict verdict;
  int64_t at;  // the step whose close told it; INT64_MAX: the end
};

// A run that is fed step by step, each closed before the next.
class LossRules : public ::testing::Test {
 protected:
  void Begin(int ranks = 1) {
    auto engine = Engine::Create({.rules = {"health/loss-*"}}, [this](const v1::Verdict& verdict) {
      heard_.push_back({verdict, now_});
    });
    ASSERT_TRUE(engine.ok());
    engine_ = *std::move(engine);
    ranks_ = ranks;
  }

  void Step(int64_t step, const std::string& op, const std::vector<double>& values,
            uint32_t attempt = 0) {
    now_ = step;
    v1::Batch batch;
    for (int rank = 0; rank < ranks_; ++rank) {
      const auto source = static_cast<uint32_t>(rank);
      *batch.add_sources() = test::SourceOf("r", source, static_cast<uint32_t>(ranks_), attempt);
      test::AddScalar(&batch, op, step, values[source]).set_source(source);
      test::AddProgress(&batch, step).set_source(source);
    }
    ASSERT_TRUE(engine_->Add(std::move(batch)).ok());
  }

  void Finish() {
    now_ = INT64_MAX;
    engine_->Finish();
  }

  std::vector<Heard> Findings(const std::string& rule) const {
    std::vector<Heard> found;
    for (const Heard& heard : heard_) {
      if (heard.verdict.rule() == rule && heard.verdict.kind() == v1::Verdict::KIND_FINDING)
        found.push_back(heard);
    }
    return found;
  }

  static std::string Kind(const Heard& heard) {
    return heard.verdict.finding().details().fields().at("kind").string_value();
  }

  std::unique_ptr<Engine> engine_;
  int ranks_ = 1;
  int64_t now_ = 0;
  std::vector<Heard> heard_;
};

double Healthy(int64_t step) {
  return 3 + std::pow(1 + step / 20.0, -0.5) + 0.02 * std::sin(17.0 * step);
}

TEST_F(LossRules, ASpikeIsToldAsItsStepClosesAndRefinedLater) {
  Begin();
  for (int64_t step = 0; step < 300; ++step)
    Step(step, "loss", {Healthy(step) * (step >= 200 && step < 210 ? 2 : 1)});
  Finish();
  const std::vector<Heard> found = Findings("health/loss-spike");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].at, 200);
  EXPECT_EQ(Kind(found[0]), "spike");
  EXPECT_EQ(found[0].verdict.finding().level(), v1::LEVEL_WARNING);
  EXPECT_EQ(found[1].at, 212);  // three points back
  EXPECT_EQ(Kind(found[1]), "recovered");
  EXPECT_EQ(found[0].verdict.finding().fingerprint(), found[1].verdict.finding().fingerprint());
  EXPECT_EQ(found[1].verdict.finding().details().fields().at("step").number_value(), 200);
}

TEST_F(LossRules, ADivergenceIsAnErrorAndTheSpikePointsToIt) {
  Begin();
  for (int64_t step = 0; step < 400; ++step)
    Step(step, "loss",
         {Healthy(step) * (step < 200 ? 1 : 1.5 + 0.01 * static_cast<double>(step - 200))});
  Finish();
  const std::vector<Heard> spike = Findings("health/loss-spike");
  ASSERT_GE(spike.size(), 2u);
  EXPECT_EQ(spike[0].at, 200);
  EXPECT_EQ(Kind(spike.back()), "divergence");
  EXPECT_NE(spike.back().verdict.finding().explanation().find("health/loss-divergence"),
            std::string::npos);
  const std::vector<Heard> diverged = Findings("health/loss-divergence");
  ASSERT_EQ(diverged.size(), 1u);
  EXPECT_EQ(diverged[0].at, 327);
  EXPECT_EQ(diverged[0].verdict.finding().level(), v1::LEVEL_ERROR);
  EXPECT_EQ(diverged[0].verdict.finding().details().fields().at("step").number_value(), 200);
}

TEST_F(LossRules, ANanOnAnyRankIsToldAsItsStepCloses) {
  Begin(2);
  for (int64_t step = 0; step < 150; ++step)
    Step(step, "lm loss", {Healthy(step), step == 77 ? NAN : Healthy(step)});
  Finish();
  const std::vector<Heard> found = Findings("health/loss-non-finite");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].at, 77);
  ASSERT_EQ(found[0].verdict.site().ranks_size(), 1);
  EXPECT_EQ(found[0].verdict.site().ranks(0), 1u);
  EXPECT_TRUE(Findings("health/loss-spike").empty());  // rank 0 speaks for the series
}

// What a NaN begins with is not hidden by it.
TEST_F(LossRules, ANanBlindsNothing) {
  Begin();
  for (int64_t step = 0; step < 300; ++step) {
    const bool nan = step >= 150 && step < 160;
    Step(step, "loss", {nan ? NAN : Healthy(step) * (step >= 160 && step < 170 ? 1.5 : 1)});
  }
  Finish();
  ASSERT_FALSE(Findings("health/loss-spike").empty());
  EXPECT_EQ(Findings("health/loss-spike")[0].at, 160);
}

TEST_F(LossRules, EverySeriesHasAVerdictOfEachRule) {
  Begin();
  for (int64_t step = 0; step < 120; ++step) {
    Step(4 * step, "train/loss", {Healthy(step)});
    Step(4 * step + 1, "val_loss", {Healthy(step)});
    Step(4 * step + 2, "loss_scale", {65536.0});
    Step(4 * step + 3, "aux_loss", {0.01});
  }
  Finish();
  std::vector<std::string> words;
  for (const Heard& heard : heard_) {
    if (heard.verdict.rule() == "health/loss-scale") continue;
    words.push_back(heard.verdict.rule().substr(12) + " " + heard.verdict.site().op() +
                    (heard.verdict.kind() == v1::Verdict::KIND_PASS ? " pass" : " not"));
  }
  std::sort(words.begin(), words.end());
  EXPECT_EQ(words,
            (std::vector<std::string>{"divergence train/loss pass", "divergence val_loss pass",
                                      "non-finite aux_loss pass", "non-finite train/loss pass",
                                      "non-finite val_loss pass", "spike train/loss pass",
                                      "spike val_loss pass", "stall train/loss not"}));
}

// It is told while the run goes on, once.
TEST_F(LossRules, ARunThatNeverLearnsIsToldBeforeItsEnd) {
  Begin();
  for (int64_t step = 0; step < 5000; ++step)
    Step(step, "loss", {10.8 + 0.2 * std::sin(17.0 * static_cast<double>(step))});
  Finish();
  const std::vector<Heard> found = Findings("health/loss-stall");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].at, 4095);
  EXPECT_EQ(found[0].verdict.finding().level(), v1::LEVEL_WARNING);
}

TEST_F(LossRules, AResumeThatRepeatsStepsIsNoJump) {
  Begin();
  for (int64_t step = 0; step < 200; ++step)
    Step(step, "loss", {3 - 0.01 * step + 0.001 * (step % 7)});
  for (int64_t step = 100; step < 250; ++step)
    Step(step, "loss", {3 - 0.01 * step + 0.001 * (step % 5)}, 1);
  Finish();
  EXPECT_TRUE(Findings("health/loss-spike").empty());
  EXPECT_TRUE(Findings("health/loss-divergence").empty());
}

}  // namespace
}  // namespace plumbline::rules::testing
