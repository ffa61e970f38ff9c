// Runs the rules on losses in an engine, step by step: what they report, when, and for which
// series.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "rules/engine/engine.h"
#include "rules/engine/report.h"
#include "tests/rules/support/spec_values.h"
#include "tests/support/batches.h"

namespace plumbline::rules::testing {
namespace {

struct Heard {
  v1::Verdict verdict;
  int64_t at;  // the step whose close reported it; INT64_MAX for the end
};

// A run that is fed step by step. Each step is closed before the next.
class LossRules : public ::testing::Test {
 protected:
  void Begin(int ranks = 1) {
    auto engine =
        Engine::Create({.rules = {"health/loss-*", "health/overfit", "health/not-learning"}},
                       [this](const v1::Verdict& verdict) {
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

TEST_F(LossRules, ASpikeIsReportedAsItsStepClosesAndRefinedLater) {
  Begin();
  for (int64_t step = 0; step < 300; ++step)
    Step(step, "loss", {Healthy(step) * (step >= 200 && step < 210 ? 2 : 1)});
  Finish();
  const std::vector<Heard> found = Findings("health/loss-spike");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].at, 200);
  EXPECT_EQ(Kind(found[0]), "spike");
  EXPECT_EQ(found[0].verdict.finding().level(), v1::LEVEL_WARNING);
  EXPECT_EQ(found[1].at, 212);  // three points in a row are back
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

// Returns a jump to `times` times the level that falls to a part of itself over the following
// steps, until `flat`.
double Jumped(int64_t since, double times, double part, int64_t flat) {
  const auto at = static_cast<double>(std::min(since, flat));
  return std::pow(times, part + (1 - part) * std::exp(-at / 80));
}

// After pruning, the loss jumps and falls: that is not a divergence. If it falls only a little and
// then stays, it is.
TEST_F(LossRules, WhatFallsBackAfterAJumpIsNoDivergence) {
  for (const bool falls : {true, false}) {
    for (const double times : {2.0, 4.0, 8.0}) {
      for (uint64_t seed = 1; seed <= 5; ++seed) {
        heard_.clear();
        Begin();
        std::mt19937_64 random(seed);
        std::normal_distribution<double> noise(0, 0.03);
        for (int64_t step = 0; step < 400; ++step) {
          const double jump = step < 150 ? 1 : Jumped(step - 150, times, 0.2, falls ? 1000 : 20);
          Step(step, "loss", {Healthy(step) * jump * std::exp(noise(random))});
        }
        Finish();
        const std::vector<Heard> found = Findings("health/loss-divergence");
        const auto error = [](const Heard& heard) {
          return heard.verdict.finding().level() == v1::LEVEL_ERROR;
        };
        EXPECT_EQ(std::any_of(found.begin(), found.end(), error), !falls) << times << " " << seed;
        EXPECT_FALSE(Findings("health/loss-spike").empty());
      }
    }
  }
}

// Returns the final version of a rule's only finding.
v1::Finding InTheEnd(const std::vector<Heard>& heard, const std::string& rule) {
  Report report;
  for (const Heard& h : heard) report.Add(h.verdict);
  for (const v1::Finding* finding : report.findings()) {
    if (finding->rule() == rule) return *finding;
  }
  return {};
}

// A loss that leaves its first level upwards has not begun to learn.
TEST_F(LossRules, ARiseAfterAFlatStartIsNoFall) {
  for (const double factor : {1.06, 0.7}) {
    heard_.clear();
    Begin();
    for (int64_t step = 0; step < 400; ++step) {
      const double noise = 0.01 * std::sin(17.0 * static_cast<double>(step));
      Step(step, "loss", {4 * (step < 240 ? 1 : factor) * std::exp(noise)});
    }
    Finish();
    const std::vector<Heard> found = Findings("health/not-learning");
    ASSERT_FALSE(found.empty());
    EXPECT_EQ(found[0].verdict.finding().level(), v1::LEVEL_WARNING);
    bool learns = false;
    for (const Heard& heard : found)
      learns |= heard.verdict.finding().title() == "the loss falls after a flat start";
    EXPECT_EQ(learns, factor < 1) << factor;
  }
}

// Preference training with a small beta: the loss stays near ln 2 while the accuracy of pairs
// rises.
TEST_F(LossRules, AFlatLossOfPairsIsANoteIfTheirAccuracyRises) {
  for (const bool rises : {true, false}) {
    heard_.clear();
    Begin();
    for (int64_t step = 0; step < 200; ++step) {
      const auto x = static_cast<double>(step);
      const double noise = std::sin(17.0 * x);
      v1::Batch batch;
      *batch.add_sources() = test::SourceOf("r", 0, 1, 0);
      test::AddScalar(&batch, "loss", step, 0.6931 - 1e-6 * x + 0.001 * noise);
      const double accuracy = 0.5 + (rises ? 0.001 * x : 0) + 0.1 * std::sin(29.0 * x);
      test::AddScalar(&batch, "rewards/accuracies", step, accuracy);
      test::AddProgress(&batch, step);
      ASSERT_TRUE(engine_->Add(std::move(batch)).ok());
    }
    Finish();
    const std::vector<Heard> found = Findings("health/not-learning");
    ASSERT_FALSE(found.empty());
    const v1::Finding& last = found.back().verdict.finding();
    EXPECT_EQ(last.level(), rises ? v1::LEVEL_NOTE : v1::LEVEL_WARNING) << last.explanation();
    EXPECT_NE(last.cause().id(), "uniform-guess");
  }
}

// An error while it lasts, a warning once the loss has recovered: the report shows the later
// finding.
TEST_F(LossRules, ADivergenceThatCameBackIsNoErrorAnyMore) {
  for (const bool back : {true, false}) {
    heard_.clear();
    Begin();
    for (int64_t step = 0; step < 600; ++step) {
      const bool away = step >= 200 && (!back || step < 400);
      Step(step, "loss", {Healthy(step) * (away ? 1.5 + 0.01 * (step - 200) : 1)});
    }
    Finish();
    const v1::Finding found = InTheEnd(heard_, "health/loss-divergence");
    EXPECT_EQ(found.level(), back ? v1::LEVEL_WARNING : v1::LEVEL_ERROR);
    EXPECT_EQ(found.details().fields().at("kind").string_value(),
              back ? "recovered" : "divergence");
    const v1::Finding spike = InTheEnd(heard_, "health/loss-spike");
    EXPECT_EQ(spike.details().fields().at("kind").string_value(),
              back ? "recovered" : "divergence");
  }
}

// The divergence that lasts counts, though another one recovered.
TEST_F(LossRules, ADivergenceThatStaysIsAnErrorWhateverCameBackBefore) {
  Begin();
  for (int64_t step = 0; step < 1000; ++step) {
    const bool away = (step >= 200 && step < 400) || step >= 700;
    Step(step, "loss", {Healthy(step) * (away ? 2 + 0.01 * static_cast<double>(step % 300) : 1)});
  }
  Finish();
  const v1::Finding found = InTheEnd(heard_, "health/loss-divergence");
  EXPECT_EQ(found.level(), v1::LEVEL_ERROR);
  EXPECT_EQ(found.details().fields().at("step").number_value(), 700);
}

// A slow rise is a warning at a tenth, an error at a third, and a warning again once it is over.
TEST_F(LossRules, ASlowRiseIsRaised) {
  for (const bool back : {false, true}) {
    heard_.clear();
    Begin();
    for (int64_t step = 0; step < 6000; ++step) {
      const double up = step < 1000 ? 0 : 1e-4 * static_cast<double>(step - 1000);
      const double down = back && step > 5000 ? 1e-3 * static_cast<double>(step - 5000) : 0;
      Step(step, "loss", {Healthy(step) * (1 + std::max(0.0, up - down))});
    }
    Finish();
    const v1::Finding found = InTheEnd(heard_, "health/loss-divergence");
    EXPECT_EQ(found.level(), back ? v1::LEVEL_WARNING : v1::LEVEL_ERROR);
    EXPECT_EQ(found.details().fields().at("kind").string_value(),
              back ? "recovered" : "divergence");
  }
}

// It jumps at first, then continues to rise while the training loss falls.
TEST_F(LossRules, ASpikeThatTurnsOutToBeOverfittingIsWithdrawn) {
  Begin();
  for (int64_t step = 0; step < 400; ++step) {
    Step(2 * step, "loss", {5 - 0.01 * static_cast<double>(step)});
    const double up = step < 200 ? 1 : 1.15 + 0.01 * static_cast<double>(step - 200);
    Step(2 * step + 1, "val_loss", {(3 + 0.01 * std::sin(17.0 * static_cast<double>(step))) * up});
  }
  Finish();
  ASSERT_FALSE(Findings("health/loss-spike").empty());
  EXPECT_EQ(Kind(Findings("health/loss-spike")[0]), "spike");
  const v1::Finding spike = InTheEnd(heard_, "health/loss-spike");
  EXPECT_EQ(spike.level(), v1::LEVEL_NOTE);
  EXPECT_EQ(spike.details().fields().at("kind").string_value(), "overfit");
  EXPECT_EQ(InTheEnd(heard_, "health/overfit").cause().id(), "overfit");
}

// Around 0 there is no level for a percentage.
TEST_F(LossRules, NoPercentageOfALevelAroundZero) {
  Begin();
  for (int64_t step = 0; step < 700; ++step) {
    const double noise = std::sin(17.0 * static_cast<double>(step)) +
                         std::sin(23.0 * static_cast<double>(step * step % 101));
    Step(step, "loss", {0.1 * noise + (step >= 400 ? 0.05 * (step - 400) : 0)});
  }
  Finish();
  int found = 0;
  for (const Heard& heard : heard_) {
    if (heard.verdict.kind() != v1::Verdict::KIND_FINDING) continue;
    ++found;
    const v1::Finding& f = heard.verdict.finding();
    EXPECT_EQ(f.explanation().find(" % "), std::string::npos) << f.explanation();
    EXPECT_NE(f.measured().unit(), "%") << f.rule();
  }
  EXPECT_GT(found, 0);
  EXPECT_EQ(InTheEnd(heard_, "health/loss-divergence").level(), v1::LEVEL_ERROR);
}

// Other seeds than those used to choose any number: hinge losses that are 0 most of the time, and
// losses that change their sign.
TEST_F(LossRules, LossesAroundZeroAreLeftAlone) {
  int warned = 0;
  constexpr uint64_t kRuns = 60;
  for (uint64_t seed = 1; seed <= kRuns; ++seed) {
    Draw draw(seed * 32452843);
    const double share = 0.05 + 0.45 * draw.Uniform();
    heard_.clear();
    Begin();
    for (int64_t step = 0; step < 600; ++step) {
      const double hinge = draw.Uniform() < share ? -std::log(draw.Uniform()) : 0;
      Step(step, "loss", {seed % 2 == 0 ? hinge : share * draw.Normal()});
    }
    Finish();
    for (const Heard& heard : heard_) {
      if (heard.verdict.finding().level() < v1::LEVEL_WARNING) continue;
      ++warned;
      break;
    }
  }
  EXPECT_LE(warned, 2);  // 15 in 2,000 longer runs, all of hinge losses
}

TEST_F(LossRules, ANanOnAnyRankIsReportedAsItsStepCloses) {
  Begin(2);
  for (int64_t step = 0; step < 150; ++step)
    Step(step, "lm loss", {Healthy(step), step == 77 ? NAN : Healthy(step)});
  Finish();
  const std::vector<Heard> found = Findings("health/loss-non-finite");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].at, 77);
  ASSERT_EQ(found[0].verdict.site().ranks_size(), 1);
  EXPECT_EQ(found[0].verdict.site().ranks(0), 1u);
  EXPECT_TRUE(Findings("health/loss-spike").empty());  // rank 0 represents the series
}

// NaN does not hide a fault that begins with it.
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
    if (!heard.verdict.rule().starts_with("health/loss-")) continue;
    if (heard.verdict.rule() == "health/loss-scale") continue;
    words.push_back(heard.verdict.rule().substr(12) + " " + heard.verdict.site().op() +
                    (heard.verdict.kind() == v1::Verdict::KIND_PASS ? " pass" : " not"));
  }
  std::sort(words.begin(), words.end());
  EXPECT_EQ(words,
            (std::vector<std::string>{"divergence train/loss pass", "non-finite aux_loss pass",
                                      "non-finite train/loss pass", "non-finite val_loss pass",
                                      "parts aux_loss pass", "spike train/loss pass",
                                      "spike val_loss pass", "stall train/loss not"}));
}

// It is reported once, while the run continues.
TEST_F(LossRules, ARunThatNeverLearnsIsReportedBeforeItsEnd) {
  Begin();
  for (int64_t step = 0; step < 5000; ++step)
    Step(step, "loss", {10.8 + 0.2 * std::sin(17.0 * static_cast<double>(step))});
  Finish();
  const std::vector<Heard> found = Findings("health/loss-stall");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].at, 4095);
  EXPECT_EQ(found[0].verdict.finding().level(), v1::LEVEL_NOTE) << "health/not-learning warns";
  const std::vector<Heard> flat = Findings("health/not-learning");
  ASSERT_FALSE(flat.empty());
  EXPECT_EQ(flat[0].at, 95);
  EXPECT_EQ(flat[0].verdict.finding().level(), v1::LEVEL_WARNING);
}

// An evaluation that ends long after its step: the value of every tenth step arrives 40 steps
// later.
TEST_F(LossRules, AnEvaluationThatComesLateIsJudgedInItsOwnOrder) {
  const auto evaluation = [](int64_t step) {
    return Healthy(step) * (step >= 1500 && step < 1600 ? 2 : 1);
  };
  const auto run = [&](int64_t lag) {
    heard_.clear();
    Begin();
    for (int64_t step = 0; step < 3000; ++step) {
      now_ = step;
      v1::Batch batch = test::BatchOf(test::SourceOf("r"));
      test::AddScalar(&batch, "loss", step, Healthy(step));
      const int64_t of = step - lag;
      if (of >= 0 && of % 10 == 0) {
        test::AddScalar(&batch, "eval/loss", of, evaluation(of));
        // A repeated value and an older one: neither is new.
        if (lag > 0) test::AddScalar(&batch, "eval/loss", of, 9 * evaluation(of));
        if (lag > 0 && of > 0) test::AddScalar(&batch, "eval/loss", of - 10, 9 * evaluation(of));
      }
      test::AddProgress(&batch, step);
      ASSERT_TRUE(engine_->Add(std::move(batch)).ok());
    }
    Finish();
  };
  run(0);
  const std::vector<Heard> in_time = Findings("health/loss-spike");
  ASSERT_FALSE(in_time.empty());
  run(40);
  const std::vector<Heard> late = Findings("health/loss-spike");
  ASSERT_EQ(late.size(), in_time.size());
  for (size_t i = 0; i < late.size(); ++i) {
    EXPECT_EQ(late[i].at, in_time[i].at + 40);
    EXPECT_EQ(Kind(late[i]), Kind(in_time[i]));
    EXPECT_EQ(late[i].verdict.finding().fingerprint(), in_time[i].verdict.finding().fingerprint());
  }
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
