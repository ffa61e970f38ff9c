// Scalars as JSON lines and as one document.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "tests/audit/point_reading.h"
#include "tests/audit/rollout_files.h"

namespace plumbline::audit {
namespace {

using testing::PointsRead;
using testing::ReadPoints;
using testing::Recognises;
using Steps = std::vector<int64_t>;
using Values = std::vector<double>;

PointsRead Json(const std::string& bytes, const ScalarOptions& options = {}) {
  return ReadPoints(JsonLinesFormat(), bytes, options, "log.jsonl");
}

TEST(JsonLines, NestedKeysJoin) {
  const PointsRead read = Json(
      "{\"loss\": 2.5, \"step\": 1, \"optim\": {\"lr\": 0.5, \"group\": {\"a\": 1}}, \"x\": 3}\n");
  EXPECT_EQ(read.Text(),
            "1 loss 2.500000\n1 optim/lr 0.500000\n1 optim/group/a 1.000000\n1 x 3.000000\n");
}

TEST(JsonLines, WhatIsNotFinite) {
  const PointsRead read = Json(
      "{\"step\": 1, \"a\": NaN, \"b\": Infinity, \"c\": -Infinity}\n"
      "{\"step\": 2, \"a\": \"NaN\", \"b\": \"Infinity\", \"c\": \"-inf\"}\n"
      "{\"step\": 3, \"a\": nan, \"b\": 1e999, \"c\": \"-Infinity\"}\n");
  EXPECT_EQ(read.Problems(), "");
  ASSERT_EQ(read.Values("a").size(), 3u);
  for (const double value : read.Values("a")) EXPECT_TRUE(std::isnan(value));
  EXPECT_EQ(read.Values("b"), (Values{INFINITY, INFINITY, INFINITY}));
  EXPECT_EQ(read.Values("c"), (Values{-INFINITY, -INFINITY, -INFINITY}));
}

// null is not a value; words, lists, flags and times are not series; numbers as texts are numbers.
TEST(JsonLines, WhatIsASeries) {
  const PointsRead read = Json(
      "{\"step\": 1, \"n\": null, \"t\": true, \"l\": [1, 2], \"w\": \"train\", "
      "\"d\": \"2024-05-02\", \"s\": \"2.5\", \"e\": {}}\n");
  EXPECT_EQ(read.Text(), "1 s 2.500000\n");
  EXPECT_EQ(read.unplaced, 0u);
}

TEST(JsonLines, TheStepByItsName) {
  EXPECT_EQ(Json("{\"loss\":1,\"iteration\":5,\"epoch\":0}\n").Steps("loss"), (Steps{5}));
  EXPECT_EQ(Json("{\"loss\":1,\"num_updates\":\"5\"}\n").Steps("loss"), (Steps{5}));
  EXPECT_EQ(Json("{\"epoch\":3,\"train_loss\":1}\n").Steps("train_loss"), (Steps{3}));
  ScalarOptions options;
  options.step = "a/b";
  EXPECT_EQ(Json("{\"a\":{\"b\":4},\"step\":1,\"loss\":1}\n", options).Steps("loss"), (Steps{4}));
}

// A line without the step that the others have is counted and not placed.
TEST(JsonLines, ALineWithoutItsStep) {
  const PointsRead read = Json(
      "{\"step\":1,\"loss\":2}\n{\"loss\":2,\"lr\":1}\n{\"step\":1.5,\"loss\":2}\n"
      "{\"config\":\"x\"}\n{\"step\":3,\"loss\":2}\n");
  EXPECT_EQ(read.Steps("loss"), (Steps{1, 3}));
  EXPECT_EQ(read.unplaced, 3u);
}

TEST(JsonLines, DamageHasItsPlace) {
  const PointsRead read = Json(
      "{\"step\":1,\"loss\":2}\n{\"step\":2,\"loss\" "
      "2}\nhello\n\n{\"step\":3,\"loss\":2}\n{\"step\":4,\"lo");
  EXPECT_EQ(read.Steps("loss"), (Steps{1, 3}));
  EXPECT_EQ(read.Problems(),
            "error 37: expected ':' in JSON, found \"2\"\n"
            "error 40: expected '{' in JSON, found \"h\"\n"
            "note 80: expected the string's closing quote in JSON, found its end\n");
}

TEST(JsonLines, OneDocument) {
  const std::string list =
      "[\n  {\"step\": 1, \"loss\": 2.5},\n  {\"step\": 2, \"loss\": 2.25}\n]\n";
  EXPECT_EQ(Json(list).Steps("loss"), (Steps{1, 2}));
  EXPECT_TRUE(Recognises(JsonLinesFormat(), list));
  const std::string state =
      "{\"epoch\": 1.0, \"global_step\": 2, \"log_history\": [{\"loss\": 2.5, \"step\": 1}, "
      "{\"loss\": NaN, \"step\": 2}, {\"eval_loss\": 3, \"step\": 2}], \"max_steps\": 2}";
  EXPECT_EQ(Json(state).Steps("loss"), (Steps{1, 2}));
  EXPECT_EQ(Json(state).Values("eval_loss"), (Values{3}));
  EXPECT_TRUE(Recognises(JsonLinesFormat(), state));
  // Objects over several lines, one after the other.
  EXPECT_EQ(
      Json("{\n \"step\": 1,\n \"loss\": 2\n}\n{\n \"step\": 2,\n \"loss\": 3\n}\n").Values("loss"),
      (Values{2, 3}));
}

TEST(JsonLines, ADamagedDocument) {
  const PointsRead read = Json("[\n {\"step\": 1, \"loss\": 2},\r\n {\"step\": 2 \"loss\": 2}\n]");
  EXPECT_EQ(read.Steps("loss"), (Steps{1}));
  EXPECT_EQ(read.Problems(), "error 40: expected ',' or '}' in JSON, found \"\"\"\n");
  EXPECT_EQ(Json("[{\"step\": 1, \"loss\": 2}, {\"step\":").Problems(),
            "note 33: expected a value in JSON, found its end\n");
}

TEST(JsonLines, WhatHoldsNoScalars) {
  const std::string others[] = {
      "",
      "{}",
      "[]",
      "[1, 2, 3]",
      "{\"name\": \"x\", \"lr\": 0.1, \"steps\": 100}",
      "{\n  \"model\": \"gpt2\",\n  \"step\": 100,\n  \"lr\": 0.1\n}\n",
      "{\"text\": \"a\", \"label\": 1}\n{\"text\": \"b\", \"label\": 0}\n",
      "{\"step\": 1, \"action\": \"go\", \"thought\": \"hm\", \"n\": 1}\n{\"step\": 2, \"action\": "
      "\"go\", \"thought\": \"hm\", \"n\": 1}\n",
      "{\"traceEvents\": [{\"ph\": \"X\", \"ts\": 1, \"dur\": 2}]}",
      "{\"version\": \"2.4\", \"entries\": [{\"record_id\": 1}]}",
      testing::Lines({testing::Rollout(1, "a"), testing::Rollout(2, "b")}),
  };
  for (const std::string& bytes : others)
    EXPECT_FALSE(Recognises(JsonLinesFormat(), bytes)) << bytes;
}

// One bad line among the first lines does not change the recognised format.
TEST(JsonLines, ADamagedFileIsStillRecognised) {
  std::string bytes = "{\"step\": 0, \"loss\n";
  for (int i = 1; i < 20; ++i) bytes += "{\"step\": " + std::to_string(i) + ", \"loss\": 2.5}\n";
  EXPECT_TRUE(Recognises(JsonLinesFormat(), bytes));
  EXPECT_EQ(Json(bytes).Steps("loss").size(), 19u);
}

TEST(JsonLines, DeepAndWideObjectsEnd) {
  std::string deep = "{\"step\": 1, \"loss\": 2, \"d\": ";
  for (int i = 0; i < 400; ++i) deep += "{\"a\": ";
  deep += "1" + std::string(401, '}') + "\n";
  EXPECT_EQ(Json(deep).Steps("loss"), (Steps{1}));
  EXPECT_EQ(Json(std::string(100000, '[')).points.size(), 0u);
  EXPECT_EQ(Json(std::string(100000, '{')).points.size(), 0u);
}

// A key that is null from one line on; an occasional null, or one after the training, is ignored.
TEST(JsonLines, AKeyThatBecomesNull) {
  const auto lines = [](auto null) {
    std::string text;
    for (int step = 1; step <= 40; ++step)
      text += "{\"step\": " + std::to_string(step) +
              ", \"loss\": " + (null(step) ? "null" : "2.5") + ", \"lr\": 0.5}\n";
    return ReadPoints(JsonLinesFormat(), text).report.emptied;
  };
  const auto emptied = lines([](int step) { return step > 30; });
  ASSERT_EQ(emptied.size(), 1u);
  EXPECT_EQ(emptied[0].name, "loss");
  EXPECT_EQ(emptied[0].last_step, 30);
  EXPECT_TRUE(lines([](int step) { return step % 2 == 0; }).empty());
  EXPECT_TRUE(lines([](int step) { return step > 36; }).empty());
  EXPECT_TRUE(lines([](int) { return false; }).empty());
}

TEST(JsonLines, ALabelNamesTheValue) {
  const PointsRead read = ReadPoints(
      JsonLinesFormat(),
      "{\"metric\": \"train_loss\", \"value\": 2.5, \"step\": 1}\n{\"step\": 1, \"metric\": "
      "\"lr\", \"value\": 0.5}\n{\"value\": NaN, \"metric\": \"train_loss\", \"step\": 2}\n");
  EXPECT_EQ(read.Steps("train_loss"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(read.Values("lr"), std::vector<double>{0.5});
  EXPECT_TRUE(read.Values("value").empty());
}

}  // namespace
}  // namespace plumbline::audit
