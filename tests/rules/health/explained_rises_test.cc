// Training losses that rise by design, with a series that explains it, and their twins without one;
// 10 times as many if PLUMB_LONG is set.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "rules/engine/engine.h"
#include "tests/rules/support/spec_values.h"

namespace plumbline::rules::testing {
namespace {

struct Draws {
  std::mt19937_64 random;
  double Near(double value, double noise) {
    return value * std::exp(noise * std::normal_distribution<double>()(random));
  }
};
using Columns = std::map<std::string, std::function<double(double, Draws&)>>;  // of done, 0 to 1

// Returns the findings of health/loss-divergence, the highest level first.
std::vector<v1::Finding> FindingsOn(const Columns& columns, int points, uint64_t seed) {
  Draws draws{std::mt19937_64(seed)};
  v1::Batch batch;
  AddTrainer(0, 1, &batch);
  for (int step = 0; step < points; ++step) {
    for (const auto& [op, value] : columns) {
      v1::Evidence& evidence = *batch.add_evidence();
      evidence.mutable_site()->set_op(op);
      evidence.set_step(step);
      evidence.mutable_scalar()->set_value(value(static_cast<double>(step) / points, draws));
    }
  }
  std::vector<v1::Finding> findings;
  auto engine =
      Engine::Create({.rules = {"health/loss-divergence"}}, [&](const v1::Verdict& verdict) {
        if (verdict.rule() != "health/loss-divergence" || !verdict.has_finding()) return;
        findings.push_back(verdict.finding());
        if (findings.back().details().fields().empty())
          *findings.back().mutable_details() = verdict.details();
      });
  EXPECT_TRUE(engine.ok()) << engine.status();
  EXPECT_TRUE((*engine)->Add(std::move(batch)).ok());
  (*engine)->Finish();
  std::stable_sort(findings.begin(), findings.end(),
                   [](const auto& a, const auto& b) { return a.level() > b.level(); });
  return findings;
}

v1::Level LevelOf(const Columns& columns, int points, uint64_t seed) {
  const std::vector<v1::Finding> findings = FindingsOn(columns, points, seed);
  return findings.empty() ? v1::LEVEL_UNSPECIFIED : findings.front().level();
}

double Ramp(double done, double from, double to) {
  return std::min(1.0, std::max(0.0, (done - from) / (to - from)));
}
double Falling(double done) { return 1 + 1.5 * std::exp(-12 * done); }
// Falls, then rises to twice as much.
double Rising(double done) { return Falling(done) * (1 + Ramp(done, 0.4, 0.8)); }
double Loss(double done, Draws& draws) { return draws.Near(Rising(done), 0.01); }

struct Family {
  const char* name;
  Columns with, without;  // the rise with the series that explains it, and with one that does not
  v1::Level most;
};

std::vector<Family> Families() {
  const auto weight = [](double done, Draws&) { return Ramp(done, 0.4, 0.8); };
  const auto early = [](double done, Draws&) { return Ramp(done, 0, 0.2); };
  const auto better = [](double done, Draws& draws) { return draws.Near(0.2 + 0.6 * done, 0.01); };
  const auto worse = [](double done, Draws& draws) { return draws.Near(0.8 - 0.6 * done, 0.01); };
  const auto part = [](double done, Draws& draws) { return draws.Near(Falling(done), 0.01); };
  const auto term = [](double done, Draws& draws) {
    return draws.Near(0.02 + Ramp(done, 0.4, 0.8), 0.02);
  };
  const auto still = [](double, Draws& draws) { return draws.Near(0.5, 0.02); };
  std::vector<Family> families = {
      {"an accuracy", {{"knn_acc", better}}, {{"knn_acc", worse}}, v1::LEVEL_WARNING},
      {"an evaluation",
       {{"val_loss", [=](double done, Draws& draws) { return 2 / (1 + better(done, draws)); }}},
       {{"val_loss", [=](double done, Draws& draws) { return 2 * better(done, draws); }}},
       v1::LEVEL_WARNING},
      {"a weight and a part",
       {{"alpha", weight}, {"ce_loss", part}},
       {{"alpha", early}, {"ce_loss", part}},
       v1::LEVEL_NOTE},
      {"a term that grows",
       {{"recon_loss", part}, {"vq_loss", term}},
       {{"recon_loss", part}, {"vq_loss", still}},
       v1::LEVEL_NOTE},
  };
  for (const char* name : {"kl_weight", "beta", "mixup", "train/l1_coefficient"})
    families.push_back({name, {{name, weight}}, {{name, early}}, v1::LEVEL_WARNING});
  return families;
}

uint64_t Seeds() { return std::getenv("PLUMB_LONG") != nullptr ? 60 : 4; }

// A rise to a thousand times the loss and more is none that such a series explains.
TEST(ExplainedRises, ExplosionsAreErrorsAllTheSame) {
  for (Family& family : Families()) {
    for (const double factor : {1e3, 1e6}) {
      family.with["loss"] = [=](double done, Draws& draws) {
        return draws.Near(Falling(done) * std::pow(factor, Ramp(done, 0.5, 0.6)), 0.02);
      };
      for (const int points : {20, 60, 200}) {
        for (uint64_t seed = 0; seed < Seeds(); ++seed) {
          EXPECT_EQ(LevelOf(family.with, points, seed), v1::LEVEL_ERROR)
              << family.name << ", " << points << " points, " << factor;
        }
      }
    }
  }
}

TEST(ExplainedRises, AreNoErrorsAndTheirTwinsAre) {
  for (Family& family : Families()) {
    family.with["loss"] = family.without["loss"] = Loss;
    for (const int points : {20, 60, 200}) {
      uint64_t above = 0, errors = 0;
      for (uint64_t seed = 0; seed < Seeds(); ++seed) {
        above += LevelOf(family.with, points, seed) > family.most;
        errors += LevelOf(family.without, points, seed) == v1::LEVEL_ERROR;
      }
      EXPECT_EQ(above, 0U) << family.name << ", " << points << " points";
      EXPECT_EQ(errors, Seeds()) << family.name << ", " << points << " points";
    }
  }
}

// A loss that jumps with each stage, and falls within it.
TEST(ExplainedRises, OfStagesInAnyName) {
  for (const char* name : {"stage", "level", "round", "fold", "resolution", "max_length", "seq_len",
                           "experience", "train/task_id"}) {
    const auto stage = [](double done) { return std::floor(4 * done); };
    Columns columns = {{name, [=](double done, Draws&) { return stage(done); }},
                       {"loss", [=](double done, Draws& draws) {
                          const double within = 4 * done - stage(done);
                          return draws.Near(0.2 + 0.1 * stage(done) + 1.8 * std::exp(-4 * within),
                                            0.03);
                        }}};
    for (const int points : {60, 200}) {
      for (uint64_t seed = 0; seed < Seeds(); ++seed)
        EXPECT_LT(LevelOf(columns, points, seed), v1::LEVEL_ERROR) << name << " " << points;
    }
  }
}

// A learning rate that jumps in the row in which the loss rises is named; one that jumps elsewhere,
// or falls there, is not.
TEST(ExplainedRises, AJumpOfTheRateIsTheCause) {
  const auto rises = [](double done, Draws& draws) {
    return draws.Near(Falling(done) * (done < 0.6 ? 1 : 6), 0.02);
  };
  const auto rate = [](double at, double before, double then) {
    return [=](double done, Draws&) { return done < at ? before : then; };
  };
  for (const int points : {20, 60, 200}) {
    for (uint64_t seed = 0; seed < Seeds(); ++seed) {
      const auto with = FindingsOn({{"loss", rises}, {"lr", rate(0.6, 1e-4, 3e-3)}}, points, seed);
      ASSERT_FALSE(with.empty());
      EXPECT_EQ(with.front().cause().id(), "rate-jump") << points;
      const std::string because = with.front().details().fields().at("because").string_value();
      EXPECT_EQ(because.find("lr rose from 0.0001 to 0.003 (30 times) in step"), 0U) << because;
      for (const auto& other : {rate(0.2, 1e-4, 3e-3), rate(0.6, 3e-3, 1e-4)}) {
        const auto without = FindingsOn({{"loss", rises}, {"lr", other}}, points, seed);
        ASSERT_FALSE(without.empty());
        EXPECT_NE(without.front().cause().id(), "rate-jump") << points;
      }
    }
  }
}

// A weight that moves is stated with its values.
TEST(ExplainedRises, AWeightIsStatedWithItsValues) {
  const auto weight = [](double done, Draws&) { return done < 0.6 ? 0.01 : 1.0; };
  const auto loss = [](double done, Draws& draws) {
    return draws.Near(Falling(done), 0.02) + (done < 0.6 ? 0 : 3);
  };
  const auto found = FindingsOn({{"loss", loss}, {"kl_weight", weight}}, 60, 1);
  ASSERT_FALSE(found.empty());
  const std::string because = found.front().details().fields().at("because").string_value();
  EXPECT_EQ(because.find("kl_weight (0.01 to 1) moves meanwhile"), 0U) << because;
}

// NaN in a companion changes nothing.
TEST(ExplainedRises, NaNExplainsNothing) {
  const auto nan = [](double, Draws&) { return NAN; };
  EXPECT_EQ(LevelOf({{"loss", Loss}, {"beta", nan}, {"stage", nan}, {"acc", nan}}, 60, 1),
            v1::LEVEL_ERROR);
}

}  // namespace
}  // namespace plumbline::rules::testing
