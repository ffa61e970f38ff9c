// Tables of scalars: separators, headers, steps, gaps and damage.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "tests/audit/point_reading.h"

namespace plumbline::audit {
namespace {

using testing::PointsRead;
using testing::ReadPoints;
using testing::Recognises;
using Steps = std::vector<int64_t>;
using Values = std::vector<double>;

PointsRead Csv(const std::string& bytes, const ScalarOptions& options = {},
               const std::string& name = "metrics.csv") {
  return ReadPoints(CsvFormat(), bytes, options, name);
}

// The same table with each separator, line end and mark.
TEST(Csv, SeparatorsAndLineEnds) {
  const std::string table = "step,loss,grad norm\n1,2.5,0.5\n2,2.25,\n3,nan,0.25\n";
  for (const char separator : {',', '\t', ';'}) {
    for (const char* end : {"\n", "\r\n"}) {
      for (const char* mark : {"", "\xEF\xBB\xBF"}) {
        std::string bytes = mark;
        for (const char c : table)
          bytes += c == ',' ? std::string(1, separator) : c == '\n' ? end : std::string(1, c);
        const PointsRead read = Csv(bytes);
        EXPECT_EQ(read.Problems(), "");
        EXPECT_EQ(read.Steps("loss"), (Steps{1, 2, 3}));
        EXPECT_EQ(read.Values("grad norm"), (Values{0.5, 0.25}));
        EXPECT_TRUE(std::isnan(read.Values("loss").at(2)));
        EXPECT_EQ(read.report.records, 3u);
        EXPECT_TRUE(Recognises(CsvFormat(), bytes));
      }
    }
  }
}

TEST(Csv, QuotedCells) {
  const PointsRead read =
      Csv("\"Step\",\"a \"\"b\"\", c\",note\n"
          "\"1\",\"2.5\",\"two\nlines, and a \"\" quote\"\n2,\" 3.5 \",x\n");
  EXPECT_EQ(read.Problems(), "");
  EXPECT_EQ(read.Values("a \"b\", c"), (Values{2.5, 3.5}));
  EXPECT_EQ(read.points.size(), 2u);
}

TEST(Csv, ADecimalCommaBetweenSemicolons) {
  EXPECT_EQ(Csv("step;loss\n1;2,5\n2;-1,25e-3\n").Values("loss"), (Values{2.5, -1.25e-3}));
}

struct StepCase {
  const char* bytes;
  Steps steps;  // of the series "loss"
};

TEST(Csv, TheStepByItsName) {
  const StepCase cases[] = {
      {"loss,_step\n2,10\n2,20\n", {10, 20}},
      {"Iteration,loss\n5,2\n6,2\n", {5, 6}},
      {"epoch,global_step,loss\n0,10,2\n0,20,2\n", {10, 20}},
      {"trainer/global_step,epoch,loss\n7,0,1\n8,0,1\n", {7, 8}},
      {"epoch,loss\n0,2\n1,2\n", {0, 1}},
      {"step,loss\n1.0,2\n2e3,2\n", {1, 2000}},
      // A step that begins anew with each epoch, beside one that does not.
      {"epoch,step,global_step,loss\n0,1,1,2\n0,2,2,2\n1,1,3,2\n1,2,4,2\n", {1, 2, 3, 4}},
      // A column that is mostly empty is not the step.
      {"step,iteration,loss\n,1,2\n,2,2\n,3,2\n4,4,2\n", {1, 2, 3, 4}},
  };
  for (const StepCase& c : cases) {
    const PointsRead read = Csv(c.bytes);
    EXPECT_EQ(read.Steps("loss"), c.steps) << c.bytes;
    EXPECT_EQ(read.Problems(), "") << c.bytes;
    EXPECT_TRUE(Recognises(CsvFormat(), c.bytes)) << c.bytes;
  }
}

TEST(Csv, TheStepAsTheUserSays) {
  ScalarOptions options;
  options.step = "tokens";
  const PointsRead read = Csv("step,tokens,loss\n1,100,2\n2,200,3\n", options);
  EXPECT_EQ(read.Steps("loss"), (Steps{100, 200}));
  EXPECT_EQ(read.Steps("step"), (Steps{100, 200}));
  options.step = "batch";
  EXPECT_NE(Csv("step,loss\n1,2\n", options).Problems().find("error 0: expected a column of steps"),
            std::string::npos);
}

TEST(Csv, ExportsOfWandb) {
  const PointsRead one =
      Csv("\"Step\",\"brisk-3 - train/loss\",\"brisk-3 - train/loss__MIN\",\"brisk-3 - "
          "train/loss__MAX\"\n\"0\",\"2.5\",\"2.4\",\"2.6\"\n\"1\",\"2.25\",\"2.2\",\"2.3\"\n");
  EXPECT_EQ(one.run, "brisk-3");
  EXPECT_EQ(one.Text(), "0 train/loss 2.500000\n1 train/loss 2.250000\n");
  const PointsRead two = Csv("\"Step\",\"a - loss\",\"b - loss\"\n1,2,3\n");
  EXPECT_EQ(two.run, "");
  EXPECT_EQ(two.Values("b - loss"), (Values{3}));
}

TEST(Csv, ExportsOfTensorBoard) {
  const std::string bytes = "Wall time,Step,Value\n1714640000.5,10,2.5\n1714640001.5,20,2.25\n";
  EXPECT_EQ(Csv(bytes, {}, "run-train-tag-loss_total.csv").Text(),
            "10 loss_total 2.500000\n20 loss_total 2.250000\n");
  EXPECT_TRUE(Recognises(CsvFormat(), bytes));
}

TEST(Csv, AHeaderAgainIsANewProcess) {
  const PointsRead read = Csv("step,loss\n1,2\n2,2\nstep,loss\n1,3\nstep,loss,lr\n2,3,0.5\n");
  EXPECT_EQ(read.resumes, 2u);
  EXPECT_EQ(read.Steps("loss"), (Steps{1, 2, 1, 2}));
  EXPECT_EQ(read.Values("lr"), (Values{0.5}));
  EXPECT_EQ(read.Problems(), "");
}

TEST(Csv, NumbersWithoutAHeader) {
  const PointsRead read = Csv("1,2.5\n2,2.25\n");
  EXPECT_EQ(read.Text(), "1 column 2 2.500000\n2 column 2 2.250000\n");
  EXPECT_FALSE(Recognises(CsvFormat(), "1,2.5\n2,2.25\n"));
}

// What is wrong is told with its place; the other rows are read.
TEST(Csv, DamageHasItsPlace) {
  const PointsRead read = Csv("step,loss,lr\n1,2,3\n2,2\n3,oops,4\nx,1,1\n4,2,3,9\n5,2,3\n");
  EXPECT_EQ(read.Problems(),
            "error 19: expected 3 cells in the row, found 2\n"
            "error 38: expected 3 cells in the row, found 4\n");
  EXPECT_EQ(read.Steps("lr"), (Steps{1, 3, 5}));
  EXPECT_EQ(read.Steps("loss"), (Steps{1, 5}));
  // "2" of the short row, "oops" where numbers were, two without a step, three of the long row
  // (its cell too many is none of them).
  EXPECT_EQ(read.unplaced, 1u + 1u + 2u + 2u);
}

// The last row may still be written: its last number is not believed, and nothing is an error.
TEST(Csv, AnUnfinishedLastRow) {
  PointsRead read = Csv("step,loss,lr\n1,2,3e-5\n2,2,3e-0");
  EXPECT_EQ(read.Values("lr"), (Values{3e-5}));
  EXPECT_EQ(read.Values("loss"), (Values{2, 2}));
  EXPECT_EQ(read.Problems(),
            "note 22: expected a newline behind the last row, found the end of the file: its last "
            "value may be cut and was left out\n");
  read = Csv("step,loss,lr\n1,2,3e-5\n2,2");
  EXPECT_EQ(read.Steps("loss"), (Steps{1}));
  EXPECT_EQ(read.Problems(), "note 22: expected 3 cells in the row, found 2\n");
  EXPECT_EQ(Csv("step,loss\n1,2\n2,nan").Values("loss").size(), 2u);
}

TEST(Csv, WhatIsNoTableOfScalars) {
  const char* others[] = {
      "",
      "name,age,city\nann,31,rome\nbob,44,oslo\n",
      "id,price,amount\n1,2.5,3\n2,2.5,3\n",
      "step,description\nfirst,cut the wood\nsecond,glue it\n",
      "step\n1\n2\n",
      "{\"step\": 1, \"loss\": 2}\n{\"step\": 2, \"loss\": 2}\n",
      "[train]\nstep = 1, loss = 2\n",
      "step: 1, loss: 2\nstep: 2, loss: 2\n",
      "import numpy as np, step\nloss = 1, 2\n",
      "epoch,place\n1714640000,3\n1714640001,4\n",
      "a,b\n1,2\n",
  };
  for (const char* bytes : others) EXPECT_FALSE(Recognises(CsvFormat(), bytes)) << bytes;
  EXPECT_TRUE(Recognises(CsvFormat(), "step,loss\n"));  // it has just begun
}

TEST(Csv, AHeaderWiderThanTheFirstBytes) {
  std::string header = "step", row = "1";
  for (int i = 0; i < 2000; ++i) {
    header += ",series number " + std::to_string(i);
    row += "," + std::to_string(i) + ".5";
  }
  const std::string bytes = header + "\n" + row + "\n";
  EXPECT_TRUE(Recognises(CsvFormat(), bytes));
  const PointsRead read = Csv(bytes);
  EXPECT_EQ(read.points.size(), 2000u);
  EXPECT_EQ(read.Values("series number 1999"), (Values{1999.5}));
}

// Random tables, as they are written and as they come back.
TEST(Csv, RandomTables) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    const size_t columns = 1 + random() % 9, rows = random() % 300;
    std::string bytes = "step";
    for (size_t c = 0; c < columns; ++c) bytes += ",s" + std::to_string(c);
    bytes += "\n";
    std::string expected;
    for (size_t r = 0; r < rows; ++r) {
      bytes += std::to_string(r);
      for (size_t c = 0; c < columns; ++c) {
        bytes += ",";
        if (random() % 4 == 0) continue;
        const double value = std::ldexp(static_cast<double>(random() >> 11) - 0x1p52,
                                        static_cast<int>(random() % 200) - 150);
        char text[40];
        std::snprintf(text, sizeof text, "%.17g", value);
        bytes += text;
        expected +=
            std::to_string(r) + " s" + std::to_string(c) + " " + std::to_string(value) + "\n";
      }
      bytes += "\n";
    }
    EXPECT_EQ(Csv(bytes).Text(), expected) << seed;
    EXPECT_EQ(ReadPoints(CsvFormat(), bytes, {}, "f", 1 + random() % 5000).Text(), expected)
        << seed;
  }
}

}  // namespace
}  // namespace plumbline::audit
