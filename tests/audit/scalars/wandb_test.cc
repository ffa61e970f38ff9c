// W&B's offline runs: rows, steps of every kind, nested keys, system metrics, resumes, damage.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <iterator>
#include <random>

#include "audit/readers/scalars/scalar_reader.h"
#include "tests/audit/scalars/scalar_files.h"
#include "tests/support/files.h"

namespace plumbline::audit {
namespace {

using testing::BytesField;
using ::testing::HasSubstr;
using testing::ReadPoints;
using testing::VarintField;
using testing::WandbItem;
using testing::WandbRun;

ReadPoints ReadRuns(const std::vector<std::string>& files, std::deque<InputReport>* reports) {
  const test::TempFolder dir;
  std::vector<InputReport*> all;
  for (size_t i = 0; i < files.size(); ++i) {
    InputReport& report = reports->emplace_back();
    report.path = dir.Write("offline-run-" + std::to_string(i) + "/run-x.wandb", files[i]);
    report.bytes = files[i].size();
    all.push_back(&report);
  }
  return testing::ReadAll(WandbReader(), all);
}

ReadPoints ReadOne(const std::string& bytes, InputReport* out = nullptr) {
  std::deque<InputReport> reports;
  ReadPoints read = ReadRuns({bytes}, &reports);
  if (out != nullptr) *out = reports[0];
  return read;
}

// "series@attempt:step=value" of all, sorted by series.
std::string Reported(const ReadPoints& read) {
  std::map<std::string, std::string> by_series;
  for (const auto& [key, value] : read.by_key) {
    char text[64];
    std::snprintf(text, sizeof text, "%u:%lld=%g ", std::get<1>(key),
                  static_cast<long long>(std::get<3>(key)), value);
    by_series[std::get<4>(key)] += text;
  }
  std::string out;
  for (const auto& [series, points] : by_series) out += series + "@" + points;
  return out;
}

// Rows mostly have the same keys in the same order. A row with other keys or values is read by the
// same rules as the first one.
TEST(Wandb, RowsThatAreAlikeAndSomeThatAreNot) {
  WandbRun run;
  run.Begin("abc");
  for (int64_t step = 0; step < 6; ++step)
    run.History(step, {{"loss", std::to_string(step)}, {"a", "10"}, {"_timestamp", "1.5"}});
  run.History(6, {{"a", "1"}, {"loss", "0.25"}});                      // in reverse order
  run.History(7, {{"loss", "\"NaN\""}, {"a", "null"}});                // a word, and nothing
  run.History(8, {{"loss", "3"}, {"a", "{\"b\": 4}"}, {"new", "7"}});  // an object; another key
  run.History(9, {{"loss", "1"}, {"loss", "2"}, {"a", "1e999"}});      // one key twice
  run.History(-1, {{"loss", "5"}, {"a", "6"}, {"_step", "12"}});       // its step among its items
  run.History(-1, {{"loss", "5"}, {"a", "7"}, {"_step", "14"}});
  EXPECT_EQ(Reported(ReadOne(run.bytes())),
            "a@0:0=10 0:1=10 0:2=10 0:3=10 0:4=10 0:5=10 0:6=1 0:9=inf 0:12=6 0:14=7 "
            "a/b@0:8=4 "
            "loss@0:0=0 0:1=1 0:2=2 0:3=3 0:4=4 0:5=5 0:6=0.25 0:7=nan 0:8=3 0:9=2 0:12=5 0:14=5 "
            "new@0:8=7 ");
}

// An item with an unknown field takes the slow path. The values read are the same.
TEST(Wandb, ItemsOfTheUsualFormAreReadAsThoseOfAnother) {
  std::mt19937_64 random(5);
  constexpr const char* kKeys[] = {"loss", "a", "b/c", "rank1/loss", "_step", "_timestamp", "los"};
  constexpr const char* kValues[] = {"1",          "10",  "-1e3", "null", "\"NaN\"",
                                     "{\"x\": 2}", " 7 ", "",     "12"};
  for (int round = 0; round < 200; ++round) {
    WandbRun usual, other;
    const bool nested = round % 2 == 0;
    for (int64_t step = 0; step < 12; ++step) {
      std::string row[2];
      const size_t items = random() % 6, from = random() % 3;
      for (size_t i = 0; i < items; ++i) {
        const std::string key = kKeys[(from + i) % std::size(kKeys)];
        const std::string json = kValues[random() % std::size(kValues)];
        const std::string item = nested ? WandbItem("", json, {key}) : WandbItem(key, json);
        row[0] += BytesField(1, item);
        row[1] += BytesField(1, item + VarintField(31, 1));
      }
      const std::string stated =
          random() % 4 == 0 ? "" : BytesField(2, VarintField(1, static_cast<uint64_t>(step)));
      usual.Record(BytesField(2, row[0] + stated));
      other.Record(BytesField(2, row[1] + stated));
    }
    EXPECT_EQ(Reported(ReadOne(usual.bytes())), Reported(ReadOne(other.bytes()))) << round;
  }
}

TEST(Wandb, Rows) {
  WandbRun run;
  run.Begin("abc").History(0, {{"loss", "2.5"}, {"_timestamp", "1.7e9"}, {"_runtime", "3"}});
  run.History(1, {{"loss", "1.25"}, {"lr", "1e-3"}}).Exit(0);
  InputReport report;
  const ReadPoints read = ReadOne(run.bytes(), &report);
  EXPECT_EQ(Reported(read), "loss@0:0=2.5 0:1=1.25 lr@0:1=0.001 ");
  EXPECT_EQ(std::get<0>(read.points[0].first), "bright-moon-1 (abc)");
  EXPECT_TRUE(report.problems.empty());
  EXPECT_EQ(report.records, 4u);
  EXPECT_TRUE(read.batches.back().progress(0).finished());
  EXPECT_FALSE(read.batches.back().progress(0).has_ending());
}

TEST(Wandb, WhatIsANumber) {
  WandbRun run;
  run.History(0, {{"a", "\"NaN\""},
                  {"b", "\"Infinity\""},
                  {"c", "\"-Infinity\""},
                  {"d", "NaN"},
                  {"e", " 7 "},
                  {"f", "1e400"},
                  {"g", "-0.0"},
                  {"s", "\"text\""},
                  {"t", "true"},
                  {"u", "null"},
                  {"v", "{\"_type\": \"histogram\"}"},
                  {"w", "[1, 2]"},
                  {"x", ""},
                  {"y", "1.5x"},
                  {"z", "\"5\""}});
  EXPECT_EQ(Reported(ReadOne(run.bytes())),
            "a@0:0=nan b@0:0=inf c@0:0=-inf d@0:0=nan e@0:0=7 f@0:0=inf g@0:0=-0 ");
}

TEST(Wandb, Steps) {
  const auto history = [](const std::string& step_json, const std::string& step) {
    return BytesField(
        2, BytesField(1, WandbItem("x", "1")) +
               (step_json.empty() ? "" : BytesField(1, WandbItem("_step", step_json))) + step);
  };
  WandbRun run;
  run.Begin("abc", 10);
  run.Record(history("", ""));                                  // 10, counted on
  run.Record(history("20", ""));                                // of the item
  run.Record(history("1", BytesField(2, VarintField(1, 30))));  // of the step, which wins
  run.Record(history("", ""));                                  // 31
  run.Record(history("\"40\"", ""));                            // no step: 32
  run.Record(history("40.5", ""));                              // 33
  run.Record(history("null", ""));                              // 34
  run.Record(history("{}", ""));                                // 35
  run.Record(history("-3", ""));                                // 36
  InputReport report;
  EXPECT_EQ(Reported(ReadOne(run.bytes(), &report)),
            "x@0:10=1 0:20=1 0:30=1 0:31=1 0:32=1 0:33=1 0:34=1 0:35=1 0:36=1 ");
  ASSERT_EQ(report.problems.size(), 1u);
  EXPECT_FALSE(report.failed());
  EXPECT_THAT(report.problems[0].text, HasSubstr("found 5 rows"));
}

// proto3 writes no zero: a step without its number is 0.
TEST(Wandb, StepZeroIsLeftOut) {
  WandbRun run;
  run.Record(BytesField(2, BytesField(1, WandbItem("x", "1")) + BytesField(2, "")));
  EXPECT_EQ(Reported(ReadOne(run.bytes())), "x@0:0=1 ");
}

TEST(Wandb, NestedKeys) {
  WandbRun run;
  run.Record(BytesField(2, BytesField(1, WandbItem("", "3", {"train", "loss"})) +
                               BytesField(1, WandbItem("", "4", {"top"})) +
                               BytesField(2, VarintField(1, 5))));
  run.History(6, {{"train/loss", "2"}});
  EXPECT_EQ(Reported(ReadOne(run.bytes())), "top@0:5=4 train/loss@0:5=3 0:6=2 ");
}

// Reads the numbers of objects. An object with a type is a histogram or a picture.
TEST(Wandb, ObjectsOfNumbers) {
  WandbRun run;
  run.History(0, {{"d", "{\"in\": {\"loss\": 1, \"n\": \"NaN\", \"s\": \"x\"}, \"lr\": 0.5}"},
                  {"h", "{\"values\": [1, 2], \"bins\": 3, \"_type\": \"histogram\"}"},
                  {"m", "{\"a\": {\"_type\": \"image-file\", \"size\": 5}, \"ab\": 7}"},
                  {"cut", "{\"a\": 1"},
                  {"e", "{}"}});
  EXPECT_EQ(Reported(ReadOne(run.bytes())),
            "d/in/loss@0:0=1 d/in/n@0:0=nan d/lr@0:0=0.5 m/ab@0:0=7 ");
}

// If a file has no record of the run, its name states the run.
TEST(Wandb, TheRunByTheFilesName) {
  const test::TempFolder dir;
  InputReport report;
  report.path = dir.Write("run-x1y2.wandb", WandbRun().History(0, {{"loss", "1"}}).bytes());
  const ReadPoints read = testing::ReadAll(WandbReader(), {&report});
  ASSERT_EQ(read.points.size(), 1u);
  EXPECT_EQ(std::get<0>(read.points[0].first), "x1y2");
}

TEST(Wandb, SystemMetricsBelongToTheRowBefore) {
  WandbRun run;
  run.Stats({{"gpu.0.memory", "11"}});
  run.History(7, {{"loss", "1"}});
  run.Stats({{"gpu.0.memory", "22"}, {"gpu.0.gpu", "93"}, {"_timestamp", "1"}});
  for (int i = 0; i < 20; ++i) run.Stats({{"gpu.0.memory", std::to_string(30 + i)}});
  run.History(8, {{"loss", "1"}});
  EXPECT_EQ(Reported(ReadOne(run.bytes())),
            "loss@0:7=1 0:8=1 system/gpu.0.gpu@0:7=93 system/gpu.0.memory@0:0=11 0:7=49 ");
}

TEST(Wandb, OtherRecordsAreNoProblem) {
  WandbRun run;
  run.Begin("abc");
  run.Record(BytesField(5, BytesField(1, BytesField(1, "lr") + BytesField(16, "0.1"))));
  run.Record(BytesField(4, BytesField(2, "output")) + VarintField(1, 3));
  run.Record(BytesField(13, std::string(100000, 'o')));
  run.Record(BytesField(200, "info") + BytesField(16, "control"));
  run.History(1, {{"loss", "1"}});
  InputReport report;
  EXPECT_EQ(Reported(ReadOne(run.bytes(), &report)), "loss@0:1=1 ");
  EXPECT_TRUE(report.problems.empty());
}

TEST(Wandb, AResumedRunIsANewAttempt) {
  WandbRun first, second;
  first.Begin("abc").History(0, {{"loss", "1"}}).History(1, {{"loss", "2"}});
  second.Begin("abc", 2, true).History(-1, {{"loss", "3"}});
  std::deque<InputReport> reports;
  const ReadPoints read = ReadRuns({first.bytes(), second.bytes()}, &reports);
  EXPECT_EQ(Reported(read), "loss@0:0=1 0:1=2 1:2=3 ");
  EXPECT_TRUE(read.in_order);
}

// The date in the folder's name decides, whatever else it is called.
TEST(Wandb, FilesOfARunInTheOrderOfTheirDates) {
  const test::TempFolder dir;
  WandbRun first, second;
  first.Begin("abc").History(0, {{"loss", "1"}});
  second.Begin("abc", 1, true).History(-1, {{"loss", "2"}});
  InputReport a, b;
  a.path = dir.Write("run-20240101_100000-abc/run-abc.wandb", first.bytes());
  b.path = dir.Write("offline-run-20240102_090000-abc/run-abc.wandb", second.bytes());
  EXPECT_EQ(Reported(testing::ReadAll(WandbReader(), {&a, &b})), "loss@0:0=1 1:1=2 ");
  ReaderOptions options;
  options.scalars.run = "mine";
  EXPECT_EQ(testing::ReadAll(WandbReader(), {&a, &b}, options)
                .by_key.count({"mine/bright-moon-1 (abc)", 1, 0, 1, "loss"}),
            1u);
}

// define_metric("*", step_metric="train/global_step"): rows of logging are no steps.
TEST(Wandb, TheAxisThatTheRunDeclares) {
  WandbRun run;
  run.Begin("abc");
  run.Record(BytesField(12, BytesField(1, "train/global_step")));
  run.Record(BytesField(12, BytesField(2, "*") + BytesField(4, "train/global_step")));
  for (int64_t row = 0; row < 3; ++row)
    run.History(row, {{"loss", row == 2 ? "\"NaN\"" : "1"},
                      {"train/global_step", std::to_string(10 * row + 10)}});
  run.History(3, {{"eval_loss", "2"}});  // of the newest step
  InputReport report;
  const ReadPoints read = ReadOne(run.bytes(), &report);
  EXPECT_TRUE(std::isnan(read.by_key.at({"bright-moon-1 (abc)", 0, 0, 30, "loss"})));
  EXPECT_EQ(read.by_key.at({"bright-moon-1 (abc)", 0, 0, 30, "eval_loss"}), 2);
  ASSERT_EQ(report.notes.size(), 1u);
  EXPECT_THAT(report.notes[0], HasSubstr("train/global_step"));
  // An epoch is no axis: it has many rows.
  WandbRun epochs;
  epochs.Begin("abc");
  epochs.Record(BytesField(12, BytesField(2, "*") + BytesField(4, "epoch")));
  epochs.History(7, {{"loss", "1"}, {"epoch", "0"}});
  EXPECT_EQ(ReadOne(epochs.bytes()).by_key.count({"bright-moon-1 (abc)", 0, 0, 7, "loss"}), 1u);
}

// define_metric("train/*", step_metric="train/step") and others: each metric has the steps of its
// own axis, and one without an axis those of the rows.
TEST(Wandb, SeveralAxes) {
  WandbRun run;
  run.Begin("abc");
  const auto declare = [&](uint32_t field, const std::string& name, const std::string& axis) {
    run.Record(BytesField(12, BytesField(field, name) + BytesField(4, axis)));
  };
  declare(2, "train/*", "train/step");
  declare(2, "rollout/*", "rollout/step");
  declare(1, "perf/time", "rollout/step");
  for (int64_t i = 0; i < 40; ++i) {
    const std::string rollout = std::to_string(i / 4), step = std::to_string(i);
    if (i % 4 == 0) {
      run.History(2 * i, {{"rollout/reward", "0.5"}, {"rollout/step", rollout}});
    } else {
      run.History(2 * i, {{"perf/time", "3"}, {"other", "1"}});
    }
    run.History(2 * i + 1, {{"train/loss", "2"}, {"train/step", step}});
  }
  InputReport report;
  const ReadPoints read = ReadOne(run.bytes(), &report);
  const auto has = [&](int64_t step, const char* series) {
    return read.by_key.count({"bright-moon-1 (abc)", 0, 0, step, series}) == 1;
  };
  for (int64_t i = 0; i < 40; ++i) {
    EXPECT_TRUE(has(i, "train/loss")) << i;
    EXPECT_EQ(has(i, "rollout/reward"), i < 10) << i;
    EXPECT_EQ(has(i, "perf/time"), i < 10) << i;
    EXPECT_EQ(has(2 * i, "other"), i % 4 != 0) << i;
  }
  ASSERT_FALSE(report.notes.empty());
  EXPECT_THAT(report.notes[0], HasSubstr("rollout/step"));
}

// A separate record, or a part of the run's record (wandb 0.31: wandb.init(config=...)).
TEST(Wandb, ConfigAndDisplayName) {
  const std::string config = BytesField(1, BytesField(1, "lr") + BytesField(16, "0.0003")) +
                             BytesField(1, BytesField(1, "_wandb") + BytesField(16, "{}"));
  for (const bool within : {false, true}) {
    WandbRun run;
    run.Record(BytesField(17, BytesField(1, "abc") + (within ? BytesField(4, config) : "") +
                                  BytesField(8, "brisk-fox-3")));
    if (!within) run.Record(BytesField(5, config));
    run.History(1, {{"loss", "1"}});
    InputReport report;
    const ReadPoints read = ReadOne(run.bytes(), &report);
    EXPECT_EQ(read.by_key.count({"brisk-fox-3 (abc)", 0, 0, 1, "loss"}), 1u);
    EXPECT_EQ(report.settings, (std::map<std::string, std::string>{{"config: lr", "0.0003"}}));
  }
}

TEST(Wandb, ExitStatus) {
  WandbRun failed, interrupted;
  failed.Begin("abc").History(0, {{"loss", "1"}}).Exit(3);
  interrupted.Begin("abc").History(0, {{"loss", "1"}}).Exit(255);
  const v1::Progress stated = ReadOne(failed.bytes()).batches.back().progress(0);
  EXPECT_TRUE(stated.finished());
  EXPECT_EQ(stated.ending().how(), v1::Ending::HOW_EXIT);
  EXPECT_EQ(stated.ending().code(), 3);
  EXPECT_EQ(ReadOne(interrupted.bytes()).batches.back().progress(0).ending().how(),
            v1::Ending::HOW_INTERRUPTED);
}

// Records longer than a block, and heads that fall on each place before a block's end.
TEST(Wandb, RecordsAcrossBlocks) {
  for (size_t filler = 32768 - 60; filler < 32768 + 20; ++filler) {
    SCOPED_TRACE(filler);
    WandbRun run;
    run.Record(BytesField(13, std::string(filler, 'o')));
    run.History(1, {{"loss", "1"}}).History(2, {{"loss", "2"}});
    run.Record(BytesField(13, std::string(3 * 32768, 'o')));
    run.History(3, {{"loss", "3"}});
    InputReport report;
    EXPECT_EQ(Reported(ReadOne(run.bytes(), &report)), "loss@0:1=1 0:2=2 0:3=3 ");
    EXPECT_TRUE(report.problems.empty()) << report.problems[0].text;
  }
}

TEST(Wandb, CutAtEveryLength) {
  WandbRun run;
  run.Begin("abc");
  for (int64_t step = 0; step < 4; ++step) run.History(step, {{"loss", "1"}});
  size_t previous = 0;
  for (size_t size = 0; size <= run.bytes().size(); ++size) {
    SCOPED_TRACE(size);
    InputReport report;
    const ReadPoints read = ReadOne(run.bytes().substr(0, size), &report);
    EXPECT_FALSE(report.failed());
    EXPECT_GE(read.points.size(), previous);
    previous = read.points.size();
  }
  EXPECT_EQ(previous, 4u);
}

TEST(Wandb, ZerosAtTheEndAreNoError) {
  WandbRun run;
  run.Begin("abc").History(0, {{"loss", "1"}});
  InputReport report;
  EXPECT_EQ(Reported(ReadOne(run.bytes() + std::string(40000, '\0'), &report)), "loss@0:0=1 ");
  EXPECT_FALSE(report.failed());
}

TEST(Wandb, EveryBitFlipped) {
  WandbRun run;
  run.Begin("abc").History(0, {{"loss", "1"}}).History(1, {{"loss", "2"}, {"lr", "0.5"}});
  const ReadPoints whole = ReadOne(run.bytes());
  for (size_t bit = 0; bit < 8 * run.bytes().size(); ++bit) {
    SCOPED_TRACE(bit);
    std::string bytes = run.bytes();
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    InputReport report;
    const ReadPoints read = ReadOne(bytes, &report);
    ASSERT_FALSE(report.problems.empty());
    for (const auto& [key, value] : read.by_key) {
      ASSERT_TRUE(whole.by_key.contains(key)) << std::get<4>(key);
      EXPECT_EQ(whole.by_key.at(key), value);
    }
  }
}

TEST(Wandb, RecognisedByContent) {
  EXPECT_TRUE(WandbReader().Recognise("x", WandbRun().bytes()));
  EXPECT_FALSE(WandbReader().Recognise("run-x.wandb", ":W&B and more"));
  EXPECT_FALSE(WandbReader().Recognise("run-x.wandb", ""));
}

}  // namespace
}  // namespace plumbline::audit
