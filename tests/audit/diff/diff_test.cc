// plumb diff on run records: series, the first differing value, departures of single runs and of
// groups, settings, findings, times, and unreadable inputs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "audit/diff/diff_result.h"
#include "tests/audit/dump_builder.h"
#include "tests/audit/plumb_process.h"
#include "tests/audit/record_builder.h"
#include "tests/support/batches.h"
#include "tests/support/files.h"

namespace plumbline::audit::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

struct Trained {
  uint64_t seed = 0;
  int64_t steps = 800;
  double noise = 0.005;
  double level = 0.003;      // standard deviation of a run's own level
  int64_t from = INT64_MAX;  // from this step on the loss is multiplied by `factor`
  double factor = 1;
  double tokens = 1000;  // per step
  std::string name = "loss";
  bool rows = false;  // scalars by columns
  uint32_t world = 1;
};

double LossAt(double tokens) { return 2 + 3 / std::sqrt(1 + tokens / 20000); }

// A record of one process that trained.
std::string Record(const Trained& t) {
  std::mt19937_64 random(t.seed);
  std::normal_distribution<double> normal;
  const double level = std::exp(t.level * normal(random));
  std::vector<v1::Batch> batches;
  for (int64_t step = 0; step < t.steps; ++step) {
    v1::Batch& batch = batches.emplace_back(test::BatchOf(test::SourceOf("demo", 0, t.world)));
    batch.set_stream_id(1);
    batch.set_sequence(batches.size());
    const double tokens = t.tokens * static_cast<double>(step + 1);
    const double loss = LossAt(tokens) * level * std::exp(t.noise * normal(random)) *
                        (step >= t.from ? t.factor : 1);
    if (t.rows) {
      if (step == 0) {
        v1::SeriesSet& set = *batch.add_series_sets();
        set.set_id(7);
        set.add_sites()->set_op(t.name);
        set.add_sites()->set_op("tokens");
        set.add_sites()->set_op("missing");
      }
      v1::SeriesRows& rows = *batch.add_series();
      rows.set_set(7);
      rows.add_source(0);
      rows.add_step(step);
      for (const double v : {loss, tokens, 0.0}) rows.add_value(v);
      rows.set_absent(std::string(1, '\4'));
    } else {
      test::AddScalar(&batch, t.name, step, loss);
      test::AddScalar(&batch, "tokens", step, tokens);
    }
    test::AddProgress(&batch, step).set_finished(step + 1 == t.steps);
  }
  return RecordFile(RecordPlan{.world_size = t.world}, batches);
}

class Diff : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const Trained& t) {
    return dir_.Write(name, Record(t));
  }

  static Json Compared(std::vector<std::string> arguments, int status = 0) {
    arguments.insert(arguments.begin(), "diff");
    arguments.insert(arguments.end(), {"--format", "json"});
    const Ended ended = RunPlumb(arguments);
    EXPECT_EQ(ended.status, status) << ended.output;
    return Json::parse(ended.output, nullptr, false);
  }

  static Json Series(const Json& json, const std::string& name) {
    for (const auto& series : json["series"]) {
      if (series["name"] == name) return series;
    }
    return nullptr;
  }

  test::TempFolder dir_;
};

TEST_F(Diff, TheSameRunTwice) {
  const std::string a = Write("a.plrec", {}), b = Write("b.plrec", {});
  const Json json = Compared({a, b});
  EXPECT_EQ(json["schema"], "plumbline.diff/1");
  const Json loss = Series(json, "loss");
  EXPECT_EQ(loss["role"], "loss");
  EXPECT_EQ(loss["common_steps"], 800);
  EXPECT_EQ(loss["exact"], true);
  EXPECT_TRUE(loss["first_difference"].is_null());
  EXPECT_TRUE(loss["by_step"]["departure"].is_null());
  EXPECT_TRUE(loss["by_tokens"].is_null()) << "the tokens are the same at each step";
  EXPECT_TRUE(json["settings"].empty());
  EXPECT_THAT(RunPlumb({"diff", a, b}).output, HasSubstr("equal bit by bit"));
  EXPECT_THAT(RunPlumb({"diff", a, b}).output,
              HasSubstr("seeds are assumed to differ by 0.3 %, so differences under 1.8 %"));
}

TEST_F(Diff, TheFirstDifferenceAndTheDeparture) {
  for (const bool rows : {false, true}) {
    const std::string a = Write("a.plrec", {.rows = rows});
    const std::string b = Write("b.plrec", {.from = 500, .factor = 1.05, .rows = rows});
    const Json loss = Series(Compared({a, b}), "loss");
    EXPECT_EQ(loss["first_difference"]["step"], 500);
    EXPECT_NEAR(
        loss["first_difference"]["b"].get<double>() / loss["first_difference"]["a"].get<double>(),
        1.05, 1e-12);
    const Json& departure = loss["by_step"]["departure"];
    ASSERT_TRUE(departure.is_object()) << loss;
    EXPECT_NEAR(departure["onset"], 500, 3);
    EXPECT_NEAR(departure["size"], std::log(1.05), 0.01);
    EXPECT_THAT(RunPlumb({"diff", a, b}).output, HasSubstr("departure: loss at step"));
  }
}

// As users have it: a table and a log of one run in one folder, two runs by their names.
TEST_F(Diff, FoldersOfTheSameRunsAreComparedRunByRun) {
  std::vector<std::string> folders;
  for (const double factor : {1.0, 1.05}) {
    std::string table = "step,train_loss,lr\n", log;
    for (int step = 0; step < 200; ++step) {
      const double loss = LossAt(1000 * step) * (step >= 120 ? factor : 1);
      table += std::to_string(step) + "," + std::to_string(loss) + ",0.001\n";
      log += "step " + std::to_string(step) + " loss " + std::to_string(loss) + "\n";
    }
    folders.push_back(dir_.File(factor > 1 ? "b" : "a"));
    std::filesystem::create_directory(folders.back());
    std::ofstream(folders.back() + "/metrics.csv") << table;
    std::ofstream(folders.back() + "/train.log") << log;
  }
  const Json json = Compared(folders);
  EXPECT_EQ(Series(json, "train_loss")["run"], "metrics.csv");
  EXPECT_EQ(Series(json, "train_loss")["first_difference"]["step"], 120);
  EXPECT_EQ(Series(json, "loss")["run"], "train.log");
  EXPECT_EQ(Series(json, "loss")["common_steps"], 200);
  EXPECT_TRUE(json["series_only_a"].empty()) << json;
  EXPECT_THAT(RunPlumb({"diff", folders[0], folders[1]}).output,
              HasSubstr("loss of train.log, 200 common steps: first differs at step 120"));
}

TEST_F(Diff, AbsentValuesAreNoPoints) {
  const std::string a = Write("a.plrec", {.rows = true});
  EXPECT_TRUE(Series(Compared({a, a}), "missing").is_null());
}

// Runs with different seeds differ from the first step on, and do not depart.
TEST_F(Diff, SeedsDoNotPart) {
  const std::string a = Write("a.plrec", {.seed = 1}), b = Write("b.plrec", {.seed = 2});
  const Json loss = Series(Compared({a, b}), "loss");
  EXPECT_EQ(loss["first_difference"]["step"], 0);
  EXPECT_TRUE(loss["by_step"]["departure"].is_null());
  EXPECT_EQ(loss["by_step"]["seeds"], "assumed");
}

TEST_F(Diff, GroupsReportLess) {
  std::vector<std::string> a, b;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    a.push_back(Write("a" + std::to_string(seed), {.seed = seed, .noise = 0.002}));
    b.push_back(Write("b" + std::to_string(seed),
                      {.seed = 10 + seed, .noise = 0.002, .from = 400, .factor = 0.98}));
  }
  const Json one = Series(Compared({a[0], b[0]}), "loss");
  const Json json = Compared(
      {a[0], b[0], "--more-a", a[1], "--more-a", a[2], "--more-b", b[1], "--more-b", b[2]});
  EXPECT_EQ(json["a"]["runs"].size(), 3u);
  const Json loss = Series(json, "loss");
  EXPECT_EQ(loss["exact"], false);
  EXPECT_EQ(loss["by_step"]["seeds"], "measured");
  EXPECT_LT(loss["by_step"]["smallest"], one["by_step"]["smallest"]);
  ASSERT_TRUE(loss["by_step"]["departure"].is_object());
  EXPECT_NEAR(loss["by_step"]["departure"]["onset"], 400, 12);
  EXPECT_LT(loss["by_step"]["departure"]["size"], 0);
}

// With twice the batch size the losses are far apart by step, and one curve by tokens.
TEST_F(Diff, CurvesByTokens) {
  const std::string a = Write("a.plrec", {.seed = 1});
  const std::string b = Write("b.plrec", {.seed = 2, .tokens = 2000});
  const Json loss = Series(Compared({a, b}), "loss");
  EXPECT_TRUE(loss["by_step"]["departure"].is_object());
  ASSERT_TRUE(loss["by_tokens"].is_object());
  EXPECT_TRUE(loss["by_tokens"]["departure"].is_null()) << loss["by_tokens"];
}

TEST_F(Diff, SettingsThatDiffer) {
  const std::string a = Write("a.plrec", {}), b = Write("b.plrec", {.world = 2});
  const Json settings = Compared({a, b})["settings"];
  ASSERT_EQ(settings.size(), 1u);
  EXPECT_EQ(settings[0]["name"], "trainer: world size");
  EXPECT_EQ(settings[0]["a"], "1");
  EXPECT_EQ(settings[0]["b"], "2");
}

TEST_F(Diff, SeriesOfOneSide) {
  const std::string a = Write("a.plrec", {}), b = Write("b.plrec", {.name = "train/lm_loss"});
  const Json json = Compared({a, b});
  EXPECT_EQ(json["series_only_a"], Json::array({"loss"}));
  EXPECT_EQ(json["series_only_b"], Json::array({"train/lm_loss"}));
}

TEST_F(Diff, ValuesThatAreNoNumbers) {
  const std::string a = Write("a.plrec", {});
  const std::string b =
      Write("b.plrec", {.from = 700, .factor = std::numeric_limits<double>::quiet_NaN()});
  const Json loss = Series(Compared({a, b}), "loss");
  EXPECT_EQ(loss["first_difference"]["step"], 700);
  EXPECT_EQ(loss["first_difference"]["b"], "nan");
  EXPECT_EQ(loss["by_step"]["points"], 700) << "points without a logarithm are left out";
  EXPECT_TRUE(loss["by_step"]["departure"].is_null());
  EXPECT_TRUE(Series(Compared({b, b}), "loss")["first_difference"].is_null()) << "NaN is NaN";
  EXPECT_THAT(RunPlumb({"diff", a, b}).output, HasSubstr("\nB is NaN from step 700 on: loss"));
  EXPECT_THAT(RunPlumb({"diff", a, a}).output, Not(HasSubstr("is NaN")));
}

TEST_F(Diff, TooFewSteps) {
  const std::string a = Write("a.plrec", {.steps = 40, .level = 0});
  const std::string b = Write("b.plrec", {.seed = 1, .steps = 40, .level = 0});
  EXPECT_EQ(Series(Compared({a, b}), "loss")["by_step"]["judged"], false);
  EXPECT_THAT(RunPlumb({"diff", a, b}).output, HasSubstr("no difference is proved"));
  // Equal values need no test.
  EXPECT_THAT(RunPlumb({"diff", a, a}).output, Not(HasSubstr("no difference is proved")));
  // Losses far apart: the answer has a stated error and a size.
  const std::string far = Write("far.plrec", {.seed = 1, .steps = 60, .from = 0, .factor = 12});
  const std::string near = Write("near.plrec", {.steps = 60});
  const Json few = Series(Compared({near, far}), "loss")["by_step"]["few_points"];
  EXPECT_EQ(few["apart"], true);
  EXPECT_EQ(few["points"], 30);
  EXPECT_LE(few["chance"], 1e-6);
  EXPECT_THAT(RunPlumb({"diff", near, far}).output, HasSubstr("the sides differ"));
}

// A gate: B may end at most a margin above A, and has no finding that is not in A.
TEST_F(Diff, FailsOnAMargin) {
  const std::string a = Write("a.plrec", {.steps = 40});
  const std::string b = Write("b.plrec", {.seed = 1, .steps = 40, .from = 10, .factor = 1.2});
  EXPECT_EQ(RunPlumb({"diff", a, b}).status, 0);
  EXPECT_EQ(RunPlumb({"diff", a, b, "--fail-on", "error"}).status, 1) << "5 % unless given";
  EXPECT_THAT(RunPlumb({"diff", a, b, "--fail-on", "error", "--margin", "6"}).errors,
              HasSubstr("more than 6 %"));
  EXPECT_EQ(RunPlumb({"diff", a, b, "--fail-on", "error", "--margin", "30%"}).status, 0);
  EXPECT_EQ(RunPlumb({"diff", b, a, "--fail-on", "error"}).status, 0) << "lower is no fault";
  EXPECT_EQ(RunPlumb({"diff", a, b, "--fail-on", "5%"}).status, 2);
  for (const char* wrong : {"x", "-5%", "nan", "5%%"})
    EXPECT_EQ(RunPlumb({"diff", a, b, "--fail-on", "error", "--margin", wrong}).status, 2) << wrong;
}

// A run that stopped long before the other passes no gate.
TEST_F(Diff, FailsOnAnEarlyEnd) {
  const auto table = [](int steps, const char* name) {
    std::string text = std::string("step,") + name + "\n";
    for (int i = 1; i <= steps; ++i)
      text += std::to_string(10 * i) + "," + std::to_string(2 + 1.0 / i) + "\n";
    return text;
  };
  const std::string whole = dir_.Write("whole.csv", table(30, "loss"));
  const std::string third = dir_.Write("third.csv", table(10, "loss"));
  const std::string nearly = dir_.Write("nearly.csv", table(28, "loss"));
  const std::string other = dir_.Write("other.csv", table(10, "lm loss"));
  for (const std::string& early : {third, other}) {
    const Ended ended = RunPlumb({"diff", whole, early, "--fail-on", "error"});
    EXPECT_EQ(ended.status, 1) << early;
    EXPECT_THAT(ended.output, HasSubstr("B ends at step 100, A at step 300: loss"));
    EXPECT_EQ(RunPlumb({"diff", whole, early}).status, 0) << "without a gate it is only stated";
  }
  EXPECT_EQ(RunPlumb({"diff", whole, nearly, "--fail-on", "error"}).status, 0);
  EXPECT_EQ(RunPlumb({"diff", third, whole, "--fail-on", "error"}).status, 0);
}

// One loss of training on each side, under two names.
TEST_F(Diff, TheOnlyLossesOfTwoNames) {
  const std::string a = dir_.Write("a.csv", "step,loss\n1,2.5\n2,2.25\n");
  const std::string b = dir_.Write("b.csv", "step,lm loss\n1,2.5\n2,2.125\n");
  EXPECT_EQ(Series(Compared({a, b}), "loss | lm loss")["first_difference"]["step"], 2);
  const std::string two = dir_.Write("two.csv", "step,lm loss,mtp loss\n1,2.5,2.5\n2,2.2,2.2\n");
  EXPECT_EQ(RunPlumb({"diff", a, two}).status, 2) << "which of the two?";
}

TEST_F(Diff, FailsOnAFinding) {
  const std::string a = Write("a.plrec", {});
  const std::string b =
      Write("b.plrec", {.from = 700, .factor = std::numeric_limits<double>::quiet_NaN()});
  EXPECT_EQ(RunPlumb({"diff", a, b, "--fail-on", "error"}).status, 1);
  EXPECT_THAT(RunPlumb({"diff", a, b, "--fail-on", "error"}).errors,
              HasSubstr("only B has a finding of health/loss-non-finite"));
  EXPECT_EQ(RunPlumb({"diff", b, b, "--fail-on", "error"}).status, 0) << "A has it, too";
  EXPECT_EQ(RunPlumb({"diff", b, a, "--fail-on", "error"}).status, 0);
}

// The headline is first, and one incident is one line.
TEST_F(Diff, TheFirstLineStatesWhatDiffers) {
  const auto table = [&](const char* name, int bad) {
    std::string text = "step,train_loss,eval_loss,grad_norm\n";
    for (int step = 0; step < 200; ++step) {
      const std::string value = step < bad ? std::to_string(LossAt(1000 * step)) : "nan";
      text += std::to_string(step) + "," + value + "," + value + "," + value + "\n";
    }
    return dir_.Write(name, text);
  };
  const std::string output = RunPlumb({"diff", table("a.csv", 999), table("b.csv", 120)}).output;
  EXPECT_THAT(output.substr(0, output.find("\n\n")), HasSubstr("B is NaN from step 120 on; "));
  EXPECT_THAT(output.substr(0, output.find("\n\n")), HasSubstr("1 incident differ"));
  size_t lines = 0;
  for (size_t at = output.find("B alone:"); at != std::string::npos;
       at = output.find("B alone:", at + 1))
    ++lines;
  EXPECT_EQ(lines, 1u) << output;
}

TEST_F(Diff, WhatCannotBeRead) {
  const std::string a = Write("a.plrec", {});
  EXPECT_EQ(RunPlumb({"diff", a, "/none"}).output, "") << "a side that cannot be read ends it";
  EXPECT_EQ(RunPlumb({"diff", a}).status, 2);
  EXPECT_EQ(RunPlumb({"diff", a, "/none"}).status, 2);
  const std::string junk = dir_.Write("junk", "this is no record");
  EXPECT_EQ(RunPlumb({"diff", a, junk}).status, 2);
  std::string cut = Record({});
  cut[cut.size() / 2] = static_cast<char>(cut[cut.size() / 2] ^ 0x55);
  const std::string damaged = dir_.Write("damaged.plrec", cut);
  const Ended ended = RunPlumb({"diff", a, damaged});
  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(ended.output, HasSubstr("loss")) << "what could be read is compared";
  EXPECT_EQ(RunPlumb({"diff", a, a, "--output", a}).status, 2);
  EXPECT_EQ(RunPlumb({"diff", "--help"}).status, 0);
}

TEST_F(Diff, NothingInCommon) {
  const std::string a = dir_.Write("a.csv", "step,loss\n1,2.5\n2,2.25\n");
  for (const char* other : {"step,accuracy\n1,0.5\n2,0.5\n", "step,loss\n7,2.5\n8,2.25\n"}) {
    const std::string b = dir_.Write("b.csv", other);
    const Ended ended = RunPlumb({"diff", a, b});
    EXPECT_EQ(ended.status, 2) << other;
    EXPECT_THAT(ended.output, HasSubstr("nothing was compared"));
    EXPECT_THAT(ended.output, Not(HasSubstr("no departure")));
    EXPECT_EQ(Compared({a, b}, 2)["compared"], false);
  }
  EXPECT_THAT(RunPlumb({"diff", a, "/none"}).output, Not(HasSubstr("no departure")));
  EXPECT_EQ(Compared({a, a})["compared"], true);
  // With too few steps, neither a departure nor its absence is shown.
  EXPECT_THAT(RunPlumb({"diff", a, a}).output, Not(HasSubstr("no departure")));
}

TEST_F(Diff, AMapOfSeries) {
  const std::string a = dir_.Write("a.csv", "step,it,objective\n1,10,2.5\n2,20,2.25\n");
  const std::string map = dir_.Write("map.toml", "step = \"it\"\n[series]\nobjective = \"loss\"\n");
  const Json json = Compared({a, a, "--map", map});
  EXPECT_EQ(Series(json, "objective")["role"], "loss");
  EXPECT_EQ(Series(json, "objective")["common_steps"], 2);
  EXPECT_EQ(RunPlumb({"diff", a, a, "--map", dir_.Write("bad.toml", "sreies = 1\n")}).status, 2);
}

TEST(DiffNames, Roles) {
  for (const char* loss : {"loss", "train/loss", "lm_loss", "lm loss", "trainLoss", "Loss/train",
                           "val/loss", "evalLoss"})
    EXPECT_EQ(DiffRoleOf(loss, {}), DiffRole::kLoss) << loss;
  for (const char* none : {"aux_loss", "load_balancing_loss", "loss_scale", "z_loss", "lr", "closs",
                           "flawless", "tokens_per_second"})
    EXPECT_EQ(DiffRoleOf(none, {}), DiffRole::kNone) << none;
  for (const char* tokens : {"tokens", "consumed_tokens", "tokens/total"})
    EXPECT_EQ(DiffRoleOf(tokens, {}), DiffRole::kTokens) << tokens;
}

}  // namespace
}  // namespace plumbline::audit::testing
