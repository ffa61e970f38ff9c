// Files of loggers other than event files and W&B: MLflow's store, notebooks, histories, and
// unusual names and steps.
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <cmath>
#include <cstring>
#include <map>
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
  // Old stores have no step.
  EXPECT_EQ(Mlflow("1700000000000 2.5\n1700000001000 2.25\n").Steps("train/loss"), (Steps{0, 1}));
  EXPECT_NE(Mlflow("1700000000000 2.5 0\nno metric\n").Problems(), "");
  // A trainer that passes no step writes 0 each time.
  const PointsRead zeros =
      Mlflow("1700000000000 2.5 0\n1700000001000 2.25 0\n1700000002000 nan 0\n");
  EXPECT_EQ(zeros.Steps("train/loss"), (Steps{0, 1, 2}));
  EXPECT_NE(zeros.Problems().find("found 2 more points with step 0"), std::string::npos);
  EXPECT_TRUE(Recognises(MlflowFormat(), "1700000000000 2.5 0\n", "run/metrics/loss"));
  EXPECT_FALSE(Recognises(MlflowFormat(), "1700000000000 2.5 0\n", "loss"));
  EXPECT_FALSE(Recognises(MlflowFormat(), "step,loss\n1,2\n", "run/metrics/loss"));
}

using Settings = std::map<std::string, std::string>;

// The bytes of a database that `sql` creates.
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
      "('loss', 0, 2, 'abc', 20, 1), ('lr', 1.7976931348623157e308, 2, 'abc', 20, 0);"
      "CREATE TABLE params (key TEXT, value TEXT, run_uuid TEXT);"
      "INSERT INTO params VALUES ('lr', '3e-4', 'abc'), ('lr', '1', 'a run without metrics');");
  EXPECT_TRUE(Recognises(DatabaseFormat(), mlflow, "mlflow.db"));
  const PointsRead read = ReadPoints(DatabaseFormat(), mlflow, {}, "mlflow.db");
  EXPECT_EQ(read.run, "abc");
  EXPECT_EQ(read.report.settings, (Settings{{"config: lr", "3e-4"}}));
  EXPECT_EQ(read.Steps("loss"), (Steps{10, 20}));
  EXPECT_TRUE(std::isnan(read.Values("loss").back()));
  EXPECT_TRUE(std::isinf(read.Values("lr").back()));
  const std::string zeros = MakeDatabase(
      "CREATE TABLE metrics (key TEXT, value REAL, timestamp INTEGER, run_uuid TEXT, step INTEGER, "
      "is_nan BOOLEAN); INSERT INTO metrics VALUES ('loss', 2.5, 1, 'abc', 0, 0), "
      "('loss', 2, 2, 'abc', 0, 0), ('lr', 1, 1, 'abc', 0, 0), ('lr', 1, 2, 'abc', 10, 0);");
  const PointsRead counted = ReadPoints(DatabaseFormat(), zeros, {}, "mlflow.db");
  EXPECT_EQ(counted.Steps("loss"), (Steps{0, 1}));
  EXPECT_EQ(counted.Steps("lr"), (Steps{0, 10}));
  const std::string trackio = MakeDatabase(
      "CREATE TABLE metrics (id INTEGER PRIMARY KEY, timestamp TEXT, run_name TEXT, step INTEGER, "
      "metrics TEXT); INSERT INTO metrics VALUES (1, 't', 'a', 0, '{\"loss\": 2.5}'), "
      "(2, 't', 'a', 1, '{\"loss\": NaN}'), (3, 't', 'b', 0, '{\"loss\": 1.5}');"
      "CREATE TABLE configs (id INTEGER PRIMARY KEY, run_name TEXT, config TEXT, created_at TEXT);"
      "INSERT INTO configs VALUES (1, 'a', '{\"_Created\": 1, \"lr\": 0.1, \"model\": {\"layers\": "
      "2}}', 't'), "
      "(2, 'b', NULL, 't');");
  const PointsRead two = ReadPoints(DatabaseFormat(), trackio, {}, "project.db");
  EXPECT_TRUE(std::isnan(two.Values("a/loss").back()));
  EXPECT_EQ(two.Values("b/loss"), (Values{1.5}));
  EXPECT_EQ(two.report.settings,
            (Settings{{"config: a/lr", "0.1"}, {"config: a/model/layers", "2"}}));
  EXPECT_NE(two.Problems().find("it holds 2 runs"), std::string::npos);
  EXPECT_FALSE(Recognises(DatabaseFormat(), MakeDatabase("CREATE TABLE t (a);"), "other.db"));
  std::string cut = mlflow.substr(0, mlflow.size() / 2);
  EXPECT_NO_FATAL_FAILURE(ReadPoints(DatabaseFormat(), cut, {}, "cut.db"));
}

// The layout of the JSON does not matter: lists of lines or one string, on one line or many.
TEST(LoggerFiles, ANotebooksOutput) {
  const std::string lines = R"(["Epoch 1, Loss: 2.5\n", "Epoch 2, Loss: nan\n"])";
  const std::string one = R"("Epoch 1, Loss: 2.5\nEpoch 2, Loss: nan\n")";
  const std::string row = R"(<tr>\n   <td>500</td>\n   <td class=\"a\">1.25</td>\n  </tr>\n)";
  const std::string html =
      R"(<table>\n <thead>\n  <tr style=\"text-align: left;\">\n   <th>Step</th>\n)"
      R"(   <th>Training Loss</th>\n  </tr>\n)" +
      row + "</table>";
  for (const std::string& text : {lines, one}) {
    for (const char* gap : {"", "\n  "}) {
      const std::string space(gap);
      const std::string notebook =
          "{" + space + "\"cells\": [" + space +
          "{\"source\": [\"print(f'Epoch {epoch}, Loss: {loss}')\"], \"outputs\": [" + space +
          "{\"text\": " + text + "}," + space + "{\"data\": {\"text/html\": [\"" + html +
          "\"]}}]}]," + space + "\"nbformat\": 4}";
      EXPECT_TRUE(Recognises(TrainerLogFormat(), notebook, "train.ipynb")) << notebook;
      const PointsRead read = ReadPoints(TrainerLogFormat(), notebook, {}, "train.ipynb");
      EXPECT_EQ(read.Steps("Loss"), (Steps{1, 2})) << read.Text();
      EXPECT_TRUE(std::isnan(read.Values("Loss").back()));
      EXPECT_EQ(read.Steps("Training Loss"), (Steps{500}));
      EXPECT_EQ(read.Values("Training Loss"), (Values{1.25}));
      // A file cut at any position is not an error.
      for (size_t size = 0; size < notebook.size(); size += 7)
        EXPECT_NO_FATAL_FAILURE(
            ReadPoints(TrainerLogFormat(), notebook.substr(0, size), {}, "train.ipynb"));
    }
  }
  EXPECT_FALSE(
      Recognises(TrainerLogFormat(), "{\n \"cells\": [],\n \"nbformat\": 4\n}\n", "empty.ipynb"));
}

std::string Written(const std::string& name) {
  return test::ReadFile(std::string(PLUMBLINE_SOURCE_DIR) + "/tests/audit/data/loggers/" + name);
}

// Exports of log services as one document or one table.
TEST(LoggerFiles, ExportsOfLogServices) {
  const std::pair<const char*, const char*> files[] = {
      {"events.json",
       "{\"events\": [{\"timestamp\": 1, \"message\": \"step 1 loss 2.5 lr 1e-4\"},\n"
       "{\"timestamp\": 2, \"message\": \"step 2 loss nan lr 1e-4\"}]}"},
      {"read.json",
       "[\n {\n  \"insertId\": \"a\",\n  \"textPayload\": \"step 1 loss 2.5 lr 1e-4\"\n },\n"
       " {\n  \"textPayload\": \"step 2 loss nan lr 1e-4\"\n }\n]\n"},
      {"newest.json",
       "[{\"textPayload\": \"step 2 loss nan lr 1e-4\", \"timestamp\": \"2026-01-31T10:00:00.5Z\"},"
       "{\"timestamp\": \"2026-01-31T10:00:00Z\", \"textPayload\": \"step 1 loss 2.5 lr 1e-4\"}]"},
      {"one_stream.json",
       "{\"status\": \"success\", \"data\": {\"resultType\": \"streams\", \"result\": "
       "[{\"stream\": "
       "{\"pod\": \"a\"}, \"values\": [[\"1700000000000000001\", \"step 2 loss nan lr 1e-4\"], "
       "[\"1700000000000000000\", \"step 1 loss 2.5 lr 1e-4\"]]}], \"stats\": {\"lines\": [1]}}}"},
      {"two_streams.json",
       "{\"data\": {\"result\": [{\"values\": [[\"1700000000000000001\", \"step 2 loss nan lr "
       "1e-4\", "
       "{\"a\": \"b\"}]]}, {\"values\": [[\"1700000000000000000\", \"{\\\"log\\\": \\\"step 1 loss "
       "2.5 lr 1e-4\\\"}\"], [], 3]}], \"resultType\": \"streams\"}, \"status\": \"success\"}"},
      {"export.csv",
       "timestamp,message\n1700000000000,step 1 loss 2.5 lr 1e-4\n"
       "1700000000001,step 2 loss nan lr 1e-4\n"}};
  for (const auto& [name, bytes] : files) {
    EXPECT_TRUE(Recognises(TrainerLogFormat(), bytes, name)) << name;
    const PointsRead read = ReadPoints(TrainerLogFormat(), bytes, {}, name);
    EXPECT_EQ(read.Steps("loss"), (Steps{1, 2})) << name << read.Text();
    EXPECT_TRUE(std::isnan(read.Values("loss").back()));
    for (size_t size = 0; size < std::strlen(bytes); ++size)
      EXPECT_NO_FATAL_FAILURE(ReadPoints(TrainerLogFormat(), std::string(bytes, size), {}, name));
  }
  EXPECT_FALSE(Recognises(TrainerLogFormat(), "[{\"message\": \"hello 1\"}]", "chat.json"));
}

// A log that was truncated while the trainer had it open begins with zeros; a crash leaves a block
// of zeros.
TEST(LoggerFiles, ZerosInALog) {
  for (const size_t zeros : {1, 64, 100, 500, 5000, 20000}) {
    const std::string block(zeros, '\0');
    for (const bool first : {true, false}) {
      const std::string line = "step 1 loss 2.5 lr 1e-4\n";
      const std::string log =
          (first ? block + line : line + block + "\n") + "step 2 loss nan lr 1e-4\n";
      EXPECT_TRUE(Recognises(TrainerLogFormat(), log, "train.log")) << zeros;
      const PointsRead read = ReadPoints(TrainerLogFormat(), log, {}, "train.log");
      EXPECT_EQ(read.Steps("loss"), (Steps{1, 2})) << zeros << read.Text();
    }
  }
  EXPECT_FALSE(Recognises(TrainerLogFormat(), std::string(8000, '\0'), "train.log"));
}

// Ten rows at a distance of ten steps; the loss of the eighth is NaN.
void ExpectTenRows(const PointsRead& read, const std::string& loss, bool norms = true) {
  EXPECT_EQ(read.Steps(loss), (Steps{0, 10, 20, 30, 40, 50, 60, 70, 80, 90})) << read.Text();
  const Values values = read.Values(loss);
  ASSERT_EQ(values.size(), 10u);
  for (size_t i = 0; i < 10; ++i) {
    if (i == 7) {
      EXPECT_TRUE(std::isnan(values[i]));
    } else {
      EXPECT_DOUBLE_EQ(values[i], 2.5 - 0.125 * static_cast<double>(i));
    }
  }
  EXPECT_EQ(read.Values("grad_norm").size(), norms ? 10u : 0u);
  EXPECT_EQ(read.Problems(), "");
}

// Written by SwanLab 0.10.3 and 0.6.8.
TEST(LoggerFiles, SwanlabsRuns) {
  for (const char* name : {"run-2.swanlab", "backup.swanlab"}) {
    const std::string bytes = Written(name);
    EXPECT_TRUE(Recognises(SwanlabFormat(), bytes, name));
    EXPECT_FALSE(Recognises(WandbFormat(), bytes, name));
    const PointsRead read = ReadPoints(SwanlabFormat(), bytes, {}, name);
    ExpectTenRows(read, "train/loss");
    EXPECT_EQ(read.run.substr(0, 8), "run-nan ") << read.run;
    // In pieces; cut; damaged.
    ExpectTenRows(ReadPoints(SwanlabFormat(), bytes, {}, name, 100), "train/loss");
    const PointsRead cut = ReadPoints(SwanlabFormat(), bytes.substr(0, bytes.size() - 5), {}, name);
    EXPECT_NE(cut.Problems().find("note"), std::string::npos);
    std::string damaged = bytes;
    damaged[bytes.size() / 2] ^= 1;
    EXPECT_NE(ReadPoints(SwanlabFormat(), damaged, {}, name).Problems().find("error"),
              std::string::npos);
  }
  EXPECT_FALSE(Recognises(SwanlabFormat(), std::string(":SWL\xd6\xe1\x07", 7), "run.swanlab"));
}

// Written by comet_ml 3.
TEST(LoggerFiles, CometsExperiments) {
  const std::string archive = Written("comet.zip");
  EXPECT_TRUE(Recognises(CometFormat(), archive, "comet.zip"));
  const PointsRead read = ReadPoints(CometFormat(), archive, {}, "comet.zip");
  ExpectTenRows(read, "train_loss");
  EXPECT_EQ(read.run, "run-nan");
  EXPECT_EQ(read.report.settings.at("config: lr"), "0.001");
  EXPECT_FALSE(read.report.settings.contains("config: curr_step"));
  // Its content, unpacked.
  const size_t begin = archive.find("{\"payload\"");
  const std::string messages = archive.substr(begin, archive.rfind("}\n") + 2 - begin);
  EXPECT_TRUE(Recognises(CometFormat(), messages, "messages.json"));
  ExpectTenRows(ReadPoints(CometFormat(), messages, {}, "messages.json"), "train_loss");
  EXPECT_NE(ReadPoints(CometFormat(), messages + "no message\n", {}, "messages.json")
                .Problems()
                .find("error"),
            std::string::npos);
  const PointsRead cut = ReadPoints(CometFormat(), archive.substr(0, 3000), {}, "comet.zip");
  EXPECT_NE(cut.Problems().find("end record"), std::string::npos) << cut.Problems();
}

// Written by sacred 0.8.7.
TEST(LoggerFiles, SacredsMetrics) {
  const std::string metrics = Written("sacred_metrics.json");
  EXPECT_TRUE(Recognises(SacredFormat(), metrics, "metrics.json"));
  EXPECT_FALSE(Recognises(JsonLinesFormat(), metrics, "metrics.json"));
  const PointsRead read = ReadPoints(SacredFormat(), metrics, {}, "metrics.json");
  ExpectTenRows(read, "train.loss", false);
  EXPECT_EQ(read.Steps("val.loss"), (Steps{0, 50}));
  EXPECT_EQ(ReadPoints(SacredFormat(),
                       "{\"loss\": {\"steps\": [1, 2], \"values\": [{\"dtype\": \"float64\", "
                       "\"value\": 2.5}, Infinity], \"timestamps\": []}}")
                .Values("loss")[0],
            2.5);
  const PointsRead cut = ReadPoints(SacredFormat(), metrics.substr(0, metrics.size() / 2));
  EXPECT_NE(cut.Problems().find("note"), std::string::npos) << cut.Problems();
  const PointsRead other = ReadPoints(SacredFormat(), "{\"loss\": {\"steps\": [1] x}}");
  EXPECT_NE(other.Problems().find("error"), std::string::npos);
}

TEST(LoggerFiles, CatboostsTables) {
  const std::string table = Written("learn_error.tsv");
  EXPECT_TRUE(Recognises(CsvFormat(), table, "learn_error.tsv"));
  const PointsRead read = ReadPoints(CsvFormat(), table, {}, "learn_error.tsv");
  EXPECT_EQ(read.Steps("RMSE"), (Steps{0, 1, 2, 3, 4}));
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
  // LLaMA-Factory: the total in each row is not a step.
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
