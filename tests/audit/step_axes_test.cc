// Tests values that have an axis of steps of their own: "rollout/reward" next to "train/loss". A
// rollout has several steps of training, and an evaluation follows several rollouts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/audit/point_reading.h"

namespace plumbline::audit {
namespace {

using testing::PointsRead;
using testing::ReadPoints;

// One logged dictionary: the axis, its step, and values whose names begin with a subject.
struct AxisRow {
  std::string axis;
  int64_t step;
  std::vector<std::pair<std::string, double>> values;

  std::vector<std::pair<std::string, std::string>> Texts(bool with_step) const {
    std::vector<std::pair<std::string, std::string>> texts;
    for (const auto& [name, value] : values) texts.emplace_back(name, absl::StrCat(value));
    if (with_step) texts.emplace_back(axis + "/step", absl::StrCat(step));
    return texts;
  }
};

struct AxisRun {
  std::vector<AxisRow> rows;
  std::map<std::string, std::vector<int64_t>> steps;  // expected, by series

  void Add(AxisRow row) {
    for (const auto& [name, value] : row.values) steps[name].push_back(row.step);
    rows.push_back(std::move(row));
  }
};

AxisRun AxisRunOf(uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<uint32_t>(high - low + 1));
  };
  const auto value = [&] { return 0.25 + 0.001 * pick(0, 999); };
  const int pace = pick(2, 8), every = pick(2, 9), first = pick(0, 1), rollouts = pick(20, 60);
  AxisRun run;
  for (int i = 0; i < rollouts; ++i) {
    if (i % every == 0) run.Add({"eval", i + first, {{"eval/aime", value()}}});
    run.Add(
        {"rollout", i + first, {{"rollout/reward", value()}, {"rollout/length", 100 + value()}}});
    run.Add({"rollout", i + first, {{"perf/rollout_time", value()}}});
    for (int k = 0; k < pace; ++k)
      run.Add(
          {"train", i * pace + k + first, {{"train/loss", value()}, {"train/grad_norm", value()}}});
  }
  return run;
}

using Texts = std::vector<std::pair<std::string, std::string>>;

std::string Object(const Texts& texts, const char* quote) {
  std::string line;
  for (const auto& [name, value] : texts)
    absl::StrAppend(&line, line.empty() ? "{" : ", ", quote, name, quote, ": ", value);
  return line + "}";
}

std::string JsonOf(const AxisRun& run) {
  std::string text;
  for (const AxisRow& row : run.rows) absl::StrAppend(&text, Object(row.Texts(true), "\""), "\n");
  return text;
}

std::string ConsoleOf(const AxisRun& run) {
  std::string text;
  for (const AxisRow& row : run.rows)
    absl::StrAppend(&text, "[10:00:12] log.py:21 - ", Object(row.Texts(true), "'"), "\n");
  return text;
}

// The form of slime's console: the number before the dictionary.
std::string NumberedOf(const AxisRun& run) {
  std::string text;
  for (const AxisRow& row : run.rows) {
    const bool train = row.axis == "train";
    const bool perf = row.values[0].first.starts_with("perf");
    absl::StrAppend(&text, "[10:00:12] data.py:214 - ",
                    train  ? "step"
                    : perf ? "perf"
                           : row.axis,
                    " ", row.step, ": ", Object(row.Texts(train), "'"), "\n");
  }
  return text;
}

std::string PairsOf(const AxisRun& run) {
  std::string text;
  for (const AxisRow& row : run.rows) {
    absl::StrAppend(&text, row.axis, "/step=", row.step);
    for (const auto& [name, value] : row.Texts(false))
      absl::StrAppend(&text, " ", name, "=", value);
    text += "\n";
  }
  return text;
}

// One dictionary for each step of training; it also has what was logged since the previous one.
std::vector<Texts> Merged(const AxisRun& run) {
  std::vector<Texts> rows(1);
  for (const AxisRow& row : run.rows) {
    for (auto& text : row.Texts(true)) {
      const bool has = std::any_of(rows.back().begin(), rows.back().end(),
                                   [&](const auto& old) { return old.first == text.first; });
      if (!has) rows.back().push_back(std::move(text));
    }
    if (row.axis == "train") rows.emplace_back();
  }
  rows.pop_back();
  return rows;
}

std::string MergedJsonOf(const AxisRun& run) {
  std::string text;
  for (const Texts& row : Merged(run)) absl::StrAppend(&text, Object(row, "\""), "\n");
  return text;
}

std::string MergedConsoleOf(const AxisRun& run) {
  std::string text;
  for (const Texts& row : Merged(run)) absl::StrAppend(&text, Object(row, "'"), "\n");
  return text;
}

std::string CsvTextOf(const std::vector<Texts>& rows) {
  std::vector<std::string> names;
  for (const Texts& row : rows) {
    for (const auto& [name, value] : row)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  std::string text;
  for (const std::string& name : names) absl::StrAppend(&text, text.empty() ? "" : ",", name);
  for (const Texts& row : rows) {
    std::string line;
    for (const std::string& name : names) {
      const auto at =
          std::find_if(row.begin(), row.end(), [&](const auto& p) { return p.first == name; });
      absl::StrAppend(&line, name == names[0] ? "" : ",", at == row.end() ? "" : at->second);
    }
    absl::StrAppend(&text, "\n", line);
  }
  return text + "\n";
}

std::string CsvOf(const AxisRun& run) {
  std::vector<Texts> rows;
  for (const AxisRow& row : run.rows) rows.push_back(row.Texts(true));
  return CsvTextOf(rows);
}

std::string MergedCsvOf(const AxisRun& run) { return CsvTextOf(Merged(run)); }

struct AxisForm {
  const char* name;
  const PointFormat& (*format)();
  std::function<std::string(const AxisRun&)> text;
  bool merged = false;  // perf/ has the steps of the training, as the row
};

const AxisForm kForms[] = {{"a.jsonl", JsonLinesFormat, JsonOf},
                           {"m.jsonl", JsonLinesFormat, MergedJsonOf, true},
                           {"a.csv", CsvFormat, CsvOf},
                           {"m.csv", CsvFormat, MergedCsvOf, true},
                           {"console.log", TrainerLogFormat, ConsoleOf},
                           {"numbered.log", TrainerLogFormat, NumberedOf},
                           {"merged.log", TrainerLogFormat, MergedConsoleOf, true},
                           {"pairs.log", TrainerLogFormat, PairsOf}};

TEST(StepAxes, EachValueHasTheStepOfItsAxis) {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    const AxisRun run = AxisRunOf(seed);
    for (const AxisForm& form : kForms) {
      SCOPED_TRACE(absl::StrCat(form.name, " ", seed));
      const PointsRead read = ReadPoints(form.format(), form.text(run), {}, form.name);
      for (const auto& [series, steps] : run.steps) {
        if (form.merged && series.starts_with("perf")) continue;
        EXPECT_EQ(read.Steps(series), steps) << series;
      }
      EXPECT_EQ(read.unplaced, 0u);
      EXPECT_TRUE(read.Steps("rollout/step").empty());
      EXPECT_EQ(read.Text(), ReadPoints(form.format(), form.text(run), {}, form.name, 977).Text());
    }
  }
}

// A time stamp in each row has no axis: on two of them its steps would fall, as at a restart.
TEST(StepAxes, ASeriesHasOneAxis) {
  std::string text;
  for (int i = 0; i < 40; ++i) {
    absl::StrAppend(&text, "{\"rollout/step\": ", i, ", \"rollout/reward\": 0.5, \"time\": ", i,
                    "}\n");
    for (int k = 0; k < 4; ++k)
      absl::StrAppend(&text, "{\"train/step\": ", 4 * i + k, ", \"train/loss\": 0.5, \"time\": ", i,
                      "}\n");
  }
  const PointsRead read = ReadPoints(JsonLinesFormat(), text);
  EXPECT_EQ(read.Steps("time"), read.Steps("train/loss"));
  EXPECT_EQ(read.Steps("rollout/reward").size(), 40u);
}

// A batch of an evaluation begins anew each time, and a total never changes: they are no axes.
TEST(StepAxes, BatchesAndTotalsAreNone) {
  std::string batches, totals;
  for (int i = 0; i < 40; ++i) {
    absl::StrAppend(&batches, "{\"train/step\": ", i,
                    ", \"train/loss\": 0.5, \"val/step\": ", i % 5, ", \"val/loss\": 0.5}\n");
    absl::StrAppend(&totals, "{\"train/step\": ", i, ", \"train/loss\": 0.5, \"val/step\": 50, ",
                    "\"val/loss\": 0.5}\n");
  }
  for (const std::string& text : {batches, totals}) {
    const PointsRead read = ReadPoints(JsonLinesFormat(), text);
    EXPECT_EQ(read.Steps("val/loss"), read.Steps("train/loss")) << text.substr(0, 200);
    EXPECT_EQ(read.Values("val/step").size(), 40u);
  }
}

// "train/step: 12 ms" is a time, "s/step" a unit.
TEST(StepAxes, TimesAreNoSteps) {
  for (const char* line : {"train/step: 12 ms loss 2.5\n", "time 0.5 s/step: 12 loss 2.5\n"})
    EXPECT_TRUE(ReadPoints(TrainerLogFormat(), line).points.empty()) << line;
}

}  // namespace
}  // namespace plumbline::audit
