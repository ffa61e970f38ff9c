// Files of loggers other than event files and W&B: MLflow's store, notebooks, histories, and names
// and steps that need care.
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <cmath>
#include <string>

#include "tests/audit/point_reading.h"
#include "tests/support/files.h"

namespace plumbline::audit {
namespace {

using testing::PointsRead;
using testing::ReadPoints;
using testing::Recognises;
using Steps = std::vector<int64_t>;
using Values = std::vector<double>;

PointsRead Mlflow(const std::string& bytes) {
  return ReadPoints(MlflowFormat(), bytes, {}, "mlruns/0/abc/metrics/train/loss");
}

TEST(LoggerFiles, MlflowsStore) {
  const PointsRead read =
      Mlflow("1700000000000 2.5 0\n1700000001000 2.25 10\n1700000002000 nan 20\n");
  EXPECT_EQ(read.run, "abc");
  EXPECT_EQ(read.Steps("train/loss"), (Steps{0, 10, 20}));
  EXPECT_TRUE(std::isnan(read.Values("train/loss").back()));
  EXPECT_EQ(read.Problems(), "");
  // Stores of old have no step.
  EXPECT_EQ(Mlflow("1700000000000 2.5\n1700000001000 2.25\n").Steps("train/loss"), (Steps{0, 1}));
  EXPECT_NE(Mlflow("1700000000000 2.5 0\nno metric\n").Problems(), "");
  EXPECT_TRUE(Recognises(MlflowFormat(), "1700000000000 2.5 0\n", "run/metrics/loss"));
  EXPECT_FALSE(Recognises(MlflowFormat(), "1700000000000 2.5 0\n", "loss"));
  EXPECT_FALSE(Recognises(MlflowFormat(), "step,loss\n1,2\n", "run/metrics/loss"));
}

// A database that `sql` makes, as bytes.
std::string MakeDatabase(const char* sql) {
  const test::TempFolder folder;
  const std::string path = folder.File("made.db");
  sqlite3* database = nullptr;
  EXPECT_EQ(sqlite3_open(path.c_str(), &database), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(database, sql, nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(database);
  return test::ReadFile(path);
}

TEST(LoggerFiles, DatabasesOfTrackers) {
  const std::string mlflow = MakeDatabase(
      "CREATE TABLE metrics (key TEXT, value REAL, timestamp INTEGER, run_uuid TEXT, step INTEGER, "
      "is_nan BOOLEAN); INSERT INTO metrics VALUES ('loss', 2.5, 1, 'abc', 10, 0), "
      "('loss', 0, 2, 'abc', 20, 1), ('lr', 1.7976931348623157e308, 2, 'abc', 20, 0);");
  EXPECT_TRUE(Recognises(DatabaseFormat(), mlflow, "mlflow.db"));
  const PointsRead read = ReadPoints(DatabaseFormat(), mlflow, {}, "mlflow.db");
  EXPECT_EQ(read.run, "abc");
  EXPECT_EQ(read.Steps("loss"), (Steps{10, 20}));
  EXPECT_TRUE(std::isnan(read.Values("loss").back()));
  EXPECT_TRUE(std::isinf(read.Values("lr").back()));
  const std::string trackio = MakeDatabase(
      "CREATE TABLE metrics (id INTEGER PRIMARY KEY, timestamp TEXT, run_name TEXT, step INTEGER, "
      "metrics TEXT); INSERT INTO metrics VALUES (1, 't', 'a', 0, '{\"loss\": 2.5}'), "
      "(2, 't', 'a', 1, '{\"loss\": NaN}'), (3, 't', 'b', 0, '{\"loss\": 1.5}');");
  const PointsRead two = ReadPoints(DatabaseFormat(), trackio, {}, "project.db");
  EXPECT_TRUE(std::isnan(two.Values("a/loss").back()));
  EXPECT_EQ(two.Values("b/loss"), (Values{1.5}));
  EXPECT_NE(two.Problems().find("it holds 2 runs"), std::string::npos);
  EXPECT_FALSE(Recognises(DatabaseFormat(), MakeDatabase("CREATE TABLE t (a);"), "other.db"));
  std::string cut = mlflow.substr(0, mlflow.size() / 2);
  EXPECT_NO_FATAL_FAILURE(ReadPoints(DatabaseFormat(), cut, {}, "cut.db"));
}

TEST(LoggerFiles, ANotebooksOutput) {
  const std::string notebook =
      "{\n \"cells\": [\n  {\n   \"outputs\": [\n    {\n     \"text\": [\n"
      "      \"Epoch 1, Loss: 2.5\\n\",\n      \"Epoch 2, Loss: nan\\n\"\n     ]\n    },\n"
      "    {\n     \"data\": {\n      \"text/html\": [\n       \"<table>\\n\",\n"
      "       \"  <tr style=\\\"text-align: left;\\\">\\n\",\n       \"   <th>Step</th>\\n\",\n"
      "       \"   <th>Training Loss</th>\\n\",\n       \"  </tr>\\n\",\n       \"  <tr>\\n\",\n"
      "       \"   <td>500</td>\\n\",\n       \"   <td>1.25</td>\\n\",\n       \"  </tr>\\n\"\n"
      "      ]\n     }\n    }\n   ],\n   \"source\": [\n"
      "    \"print(f'Epoch {epoch}, Loss: {loss}')\\n\"\n   ]\n  }\n ],\n \"nbformat\": 4\n}\n";
  EXPECT_TRUE(Recognises(TrainerLogFormat(), notebook, "train.ipynb"));
  const PointsRead read = ReadPoints(TrainerLogFormat(), notebook, {}, "train.ipynb");
  EXPECT_EQ(read.Steps("Loss"), (Steps{1, 2}));
  EXPECT_TRUE(std::isnan(read.Values("Loss").back()));
  EXPECT_EQ(read.Steps("Training Loss"), (Steps{500}));
  EXPECT_EQ(read.Values("Training Loss"), (Values{1.25}));
  EXPECT_FALSE(
      Recognises(TrainerLogFormat(), "{\n \"cells\": [],\n \"nbformat\": 4\n}\n", "empty.ipynb"));
}

TEST(LoggerFiles, KerassHistory) {
  const std::string history = "{\"loss\": [2.5, 2.25, NaN], \"val_loss\": [2.75, 2.5, 2.625]}";
  EXPECT_TRUE(Recognises(JsonLinesFormat(), history, "history.json"));
  const PointsRead read = ReadPoints(JsonLinesFormat(), history, {}, "history.json");
  EXPECT_EQ(read.Steps("loss"), (Steps{1, 2, 3}));
  EXPECT_TRUE(std::isnan(read.Values("loss").back()));
  EXPECT_EQ(read.Values("val_loss"), (Values{2.75, 2.5, 2.625}));
  EXPECT_FALSE(Recognises(JsonLinesFormat(), "{\"shape\": [1, 2, 3]}", "shape.json"));
}

TEST(LoggerFiles, StepsOfJson) {
  // LLaMA-Factory: the total of each row is no step.
  EXPECT_EQ(ReadPoints(JsonLinesFormat(),
                       "{\"current_steps\": 5, \"total_steps\": 100, \"loss\": 2.5}\n"
                       "{\"current_steps\": 10, \"total_steps\": 100, \"loss\": 2.25}\n"
                       "{\"current_steps\": 15, \"total_steps\": 100, \"loss\": 2.0}\n")
                .Steps("loss"),
            (Steps{5, 10, 15}));
  // ms-swift.
  EXPECT_EQ(ReadPoints(JsonLinesFormat(),
                       "{\"loss\": 2.5, \"global_step/max_steps\": \"5/1000\"}\n"
                       "{\"loss\": 2.25, \"global_step/max_steps\": \"10/1000\"}\n")
                .Steps("loss"),
            (Steps{5, 10}));
  // tracing, loguru.
  EXPECT_EQ(ReadPoints(JsonLinesFormat(),
                       "{\"level\": \"INFO\", \"fields\": {\"step\": 730, \"loss\": 2.5}}\n"
                       "{\"level\": \"INFO\", \"fields\": {\"step\": 731, \"loss\": 2.25}}\n")
                .Steps("fields/loss"),
            (Steps{730, 731}));
}

TEST(LoggerFiles, NumbersOfTables) {
  std::string thousands = "step,loss\n", commas = "step;loss\n", tabs = "step\tloss\n";
  for (int i = 0; i < 20; ++i) {
    thousands += "\"" + std::to_string(i + 1) + ",000\"," + "2.5\n";
    commas += std::to_string(i) + ";4,507\n";
    tabs += std::to_string(i) + "\t4,507\n";
  }
  const PointsRead read = ReadPoints(CsvFormat(), thousands);
  EXPECT_EQ(read.Steps("loss").size(), 20u);
  EXPECT_EQ(read.Steps("loss").back(), 20000);
  for (const std::string& table : {commas, tabs}) {
    EXPECT_TRUE(Recognises(CsvFormat(), table));
    EXPECT_EQ(ReadPoints(CsvFormat(), table).Values("loss"), Values(20, 4.507));
  }
}

TEST(LoggerFiles, Utf16) {
  const std::string text = "step 1: loss 2.5\r\nstep 2: loss 2.25 \u03B1\r\n";
  for (const bool big : {false, true}) {
    std::string bytes = big ? "\xFE\xFF" : "\xFF\xFE";
    for (size_t i = 0; i < text.size(); ++i) {
      unsigned unit = static_cast<unsigned char>(text[i]);
      if (unit == 0xCE) {
        unit = 0x3B1;
        ++i;
      }
      const char high = static_cast<char>(unit >> 8), low = static_cast<char>(unit & 0xFF);
      bytes += big ? high : low;
      bytes += big ? low : high;
    }
    EXPECT_TRUE(Recognises(TrainerLogFormat(), bytes));
    const PointsRead read = ReadPoints(TrainerLogFormat(), bytes);
    EXPECT_EQ(read.Values("loss"), (Values{2.5, 2.25}));
    EXPECT_EQ(read.Problems(), "");
  }
}

}  // namespace
}  // namespace plumbline::audit
