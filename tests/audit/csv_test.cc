// Tables of scalars: separators, headers, steps, gaps and damage.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <utility>

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
      // A step that starts again in each epoch, next to one that does not.
      {"epoch,step,global_step,loss\n0,1,1,2\n0,2,2,2\n1,1,3,2\n1,2,4,2\n", {1, 2, 3, 4}},
      // A step that starts again only late, next to a global one.
      {"step,global_step,loss\n0,100,1\n1,101,1\n2,102,1\n", {100, 101, 102}},
      // For micro-batches, the column that counts them.
      {"step,global_step,loss\n1,1,1\n2,1,1\n3,2,1\n4,2,1\n", {1, 2, 3, 4}},
      // A total is not a step.
      {"step,total_steps,loss\n1,9,1\n2,9,1\n1,9,1\n", {1, 2, 1}},
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

TEST(Csv, TheStepAsTheUserStates) {
  ScalarOptions options;
  options.step = "tokens";
  const PointsRead read = Csv("step,tokens,loss\n1,100,2\n2,200,3\n", options);
  EXPECT_EQ(read.Steps("loss"), (Steps{100, 200}));
  EXPECT_EQ(read.Steps("step"), (Steps{100, 200}));
  // A table without such a column: its own step.
  options.step = "batch";
  const PointsRead own = Csv("step,loss\n1,2\n", options);
  EXPECT_EQ(own.Steps("loss"), (Steps{1}));
  EXPECT_EQ(own.report.step_stated, StepStated::kMissing);
  EXPECT_EQ(own.Problems(),
            "note 0: expected the column that --map declares as the step, found none: it is "
            "\"step\" here\n");
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

// Errors are reported with their position; the other rows are read.
TEST(Csv, DamageHasItsPlace) {
  const PointsRead read = Csv("step,loss,lr\n1,2,3\n2,2\n3,oops,4\nx,1,1\n4,2,3,9\n5,2,3\n");
  EXPECT_EQ(read.Problems(),
            "error 19: expected 3 cells in the row, found 2\nerror 38: expected 3 cells in the "
            "row, found 4\nnote 23: expected numbers in columns of numbers, found 1 cells with "
            "other content, the first of them \"oops\" in column \"loss\"\n");
  EXPECT_EQ(read.Steps("lr"), (Steps{1, 3, 5}));
  EXPECT_EQ(read.Steps("loss"), (Steps{1, 5}));
  EXPECT_EQ(read.unplaced, 2u);  // of the row without a step; refused rows are reported
}

TEST(Csv, AQuoteThatIsNeverClosed) {
  const PointsRead read = Csv("step,loss,note\n1,2.5,ok\n2,2.25,\"cut\n3,nan,ok\n4,2.5,ok\n");
  EXPECT_EQ(read.Steps("loss"), (Steps{1, 3, 4}));
  EXPECT_TRUE(std::isnan(read.Values("loss").at(1)));
  EXPECT_EQ(read.Problems(),
            "error 24: expected a closing quote for the one that line 3 opens, found none: the "
            "line is ignored\n");
  // The last row may be incomplete.
  EXPECT_EQ(Csv("step,loss,note\n1,2.5,ok\n2,2.25,\"cut").Problems(),
            "note 24: expected a closing quote for the one that line 3 opens, found none: the row "
            "is ignored\n");
  EXPECT_EQ(Csv("step,loss,note\n1,2.5,\"two\nlines\"\n2,2.25,ok\n").Problems(), "");
}

TEST(Csv, NonFiniteValuesInAnyNotation) {
  const PointsRead read = Csv(
      "step,loss\n1,2\n2,1.#QNAN\n3,1.#INF\n4,-1.#IND\n5,\u221E\n6,-\u221E\n7,+Inf\n8,-nan(ind)\n"
      "9,1.#QNAN0\n10,NaN\n");
  EXPECT_EQ(read.Problems(), "");
  const Values loss = read.Values("loss");
  ASSERT_EQ(loss.size(), 10u);
  for (const size_t nan : {1, 3, 7, 8, 9}) EXPECT_TRUE(std::isnan(loss[nan])) << nan;
  for (const size_t more : {2, 4, 6}) EXPECT_TRUE(std::isinf(loss[more]) && loss[more] > 0) << more;
  EXPECT_TRUE(std::isinf(loss[5]) && loss[5] < 0);
  // A value that only begins like infinity is text.
  EXPECT_EQ(Csv("step,loss\n1,2\n2,1.#\n3,1.#Q\n").Values("loss").size(), 1u);
}

TEST(Csv, LinesWithZeros) {
  using namespace std::string_literals;
  const std::string bytes = "step,loss\n1,2.5\n2,2\0.5\n3,nan\n4,2.25\n"s;
  EXPECT_TRUE(Recognises(CsvFormat(), bytes));
  const PointsRead read = Csv(bytes);
  EXPECT_EQ(read.Steps("loss"), (Steps{1, 3, 4}));
  EXPECT_EQ(read.Problems(),
            "error 16: expected lines of text, found 1 with zero bytes: they are ignored\n");
  // The host crashed: the space allocated for the file contains zeros.
  const std::string tail = "step,loss\n1,2.5\n2,nan\n3,2."s + std::string(5000, '\0');
  EXPECT_TRUE(Recognises(CsvFormat(), tail));
  const PointsRead crashed = Csv(tail);
  EXPECT_EQ(crashed.Steps("loss"), (Steps{1, 2}));
  EXPECT_FALSE(crashed.report.failed()) << crashed.Problems();
  EXPECT_NE(crashed.Problems().find("found only zero bytes up to its end"), std::string::npos);
}

TEST(Csv, ColumnsOfOneName) {
  const PointsRead read = Csv("step,loss,loss\n1,nan,2\n2,2.5,inf\n");
  EXPECT_EQ(read.Text(), "1 loss nan\n1 loss (2) 2.000000\n2 loss 2.500000\n2 loss (2) inf\n");
  EXPECT_EQ(read.Problems(),
            "note 0: expected columns of different names, found two called \"loss\": the second is "
            "\"loss (2)\" here\n");
}

// Epochs of several batches: each row is a separate step.
TEST(Csv, BatchesOfEpochs) {
  std::string within = "epoch,batch,loss\n", stepped = "epoch,step,loss\n";
  Steps all;
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (int batch = 0; batch < 100; ++batch) {
      const std::string row = std::to_string(epoch) + "," + std::to_string(batch) + "," +
                              (epoch == 1 && batch == 5 ? "nan" : "2.5") + "\n";
      within += row;
      stepped += row;
      all.push_back(100 * epoch + batch);
    }
  }
  for (const std::string& bytes : {within, stepped}) {
    const PointsRead read = Csv(bytes);
    EXPECT_EQ(read.Steps("loss"), all);
    EXPECT_TRUE(std::isnan(read.Values("loss").at(105)));
    EXPECT_NE(read.Problems().find("restarts in each epoch"), std::string::npos);
    EXPECT_TRUE(Recognises(CsvFormat(), bytes));
  }
  // Increasing steps are not changed, even when a run went back.
  EXPECT_EQ(Csv("epoch,step,loss\n0,10,2\n1,20,2\n0,15,2\n1,20,2\n").Steps("loss"),
            (Steps{10, 20, 15, 20}));
}

// Iterations that begin at 0 or 1 in each epoch, which no column states. Tables and JSON lines.
TEST(Csv, EpochsThatNoColumnStates) {
  struct Case {
    int first, stride;
    bool again;    // the run is begun again
    bool nan;      // from the second epoch on
    Steps second;  // its first steps
  };
  const Case cases[] = {{0, 1, false, false, {20, 21}},    {1, 1, false, false, {21, 22}},
                        {0, 10, false, false, {200, 210}}, {0, 1, true, false, {0, 1}},
                        {0, 1, false, true, {20, 21}},     {2, 1, false, false, {2, 3}}};
  for (const Case& c : cases) {
    std::string table = "iter,loss,acc\n", lines;
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (int i = 0; i < 20; ++i) {
        const int done = c.again ? i : 20 * epoch + i;
        const bool nan = c.nan && (epoch > 0 || i > 15);
        const std::string step = std::to_string(c.first + c.stride * i);
        const std::string loss = nan ? "NaN" : std::to_string(3 - 0.03 * done);
        table += step + "," + loss + ",0.5\n";
        lines += "{\"iter\": " + step + ", \"loss\": " + loss + ", \"acc\": 0.5}\n";
      }
    }
    for (const PointsRead& read :
         {Csv(table), ReadPoints(JsonLinesFormat(), lines, {}, "log.jsonl")}) {
      const Steps steps = read.Steps("loss");
      ASSERT_EQ(steps.size(), 60u);
      EXPECT_EQ(Steps(steps.begin() + 20, steps.begin() + 22), c.second) << table;
      const bool counted = steps[20] > steps[19];
      EXPECT_EQ(read.Problems().find("restarts 2 times") != std::string::npos, counted);
    }
  }
}

// The last row may be incomplete: its last number is not used, and nothing is an error.
TEST(Csv, AnUnfinishedLastRow) {
  PointsRead read = Csv("step,loss,lr\n1,2,3e-5\n2,2,3e-0");
  EXPECT_EQ(read.Values("lr"), (Values{3e-5}));
  EXPECT_EQ(read.Values("loss"), (Values{2, 2}));
  EXPECT_EQ(read.Problems(),
            "note 22: expected a newline after the last row, found the end of the file: its last "
            "value may be incomplete and was ignored\n");
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
  EXPECT_TRUE(Recognises(CsvFormat(), "step,loss\n"));  // the file has just been started
}

// Commas between cells and in fractions: each value adds one cell to its row.
TEST(Csv, CommasInFractionsToo) {
  const PointsRead read = Csv("step,loss\n1,2,5\n2,2,25\n3,-1,5e-3\n");
  EXPECT_EQ(read.Values("loss"), (Values{2.5, 2.25, -1.5e-3}));
  EXPECT_NE(read.Problems().find("3 rows with decimal commas"), std::string::npos);
  const PointsRead three = Csv("step,loss,lr\n1,2,5,0,001\n2,2,25,0,0005\n");
  EXPECT_EQ(three.Values("lr"), (Values{0.001, 0.0005}));
  // One extra cell is damage.
  EXPECT_NE(Csv("step,loss\n1,2.5\n2,2.25,7\n3,2.0\n").Problems(), "");
}

// A column that had values in each row and then has none, while other columns continue.
TEST(Csv, AColumnThatBecomesEmpty) {
  const auto table = [](int values, int rows, bool rate) {
    std::string text = rate ? "step,loss,lr\n" : "step,loss\n";
    for (int i = 1; i <= rows; ++i) {
      text += std::to_string(i) + (i <= values ? ",2.5" : ",") + (rate ? ",0.1" : "") + "\n";
    }
    return text;
  };
  for (const bool rate : {false, true}) {
    const PointsRead read = Csv(table(20, 40, rate));
    ASSERT_EQ(read.report.emptied.size(), 1u) << rate;
    EXPECT_EQ(read.report.emptied[0].name, "loss");
    EXPECT_EQ(read.report.emptied[0].last_step, 20);
    EXPECT_EQ(read.report.emptied[0].empty_rows, 20u);
  }
  // Few values, few empty rows, none.
  for (const auto& [values, rows] : {std::pair{5, 40}, {38, 40}, {40, 40}})
    EXPECT_TRUE(Csv(table(values, rows, true)).report.emptied.empty()) << values;
  // Evaluations are in few rows; at the end of a run there are summary rows without a rate.
  std::string sparse = "step,loss,val_loss,lr\n";
  for (int i = 1; i <= 60; ++i) {
    const bool training = i <= 50;
    sparse += std::to_string(i) + (training ? ",2.5," : ",,") +
              (i % 10 == 0 && training ? "2.4" : "") + (training ? ",0.1\n" : ",\n");
  }
  EXPECT_TRUE(Csv(sparse).report.emptied.empty());
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

// Random tables: written and read back.
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

// pandas writes its index without a name; SchNetPack has a time and no step.
TEST(Csv, RowsWithoutAStep) {
  const std::string index = ",loss,val_loss\n0,2.5,3.5\n1,2.25,3.25\n";
  EXPECT_TRUE(Recognises(CsvFormat(), index, "history.csv"));
  EXPECT_EQ(ReadPoints(CsvFormat(), index).Steps("loss"), (std::vector<int64_t>{0, 1}));
  const std::string times = "Time,Train loss\n100.5,2.5\n112.5,2.25\n130.5,2\n";
  EXPECT_TRUE(Recognises(CsvFormat(), times, "log.csv"));
  const PointsRead read = ReadPoints(CsvFormat(), times);
  EXPECT_EQ(read.Steps("Train loss"), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_NE(read.Problems().find("rows are numbered from 1 as steps"), std::string::npos);
  // Without an order, or with no quantity that is minimised.
  EXPECT_FALSE(Recognises(CsvFormat(), "Time,Train loss\n100.5,2.5\n90.5,2.25\n", "log.csv"));
  EXPECT_FALSE(Recognises(CsvFormat(), "Time,Price\n100.5,2.5\n112.5,2.25\n", "log.csv"));
}

}  // namespace
}  // namespace plumbline::audit
