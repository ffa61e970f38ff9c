// A trainer's output folder: several loggers of one run, files that no reader takes, two such
// folders next to each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/audit/dump_builder.h"
#include "tests/audit/plumb_process.h"
#include "tests/audit/scalars/scalar_files.h"
#include "tests/support/files.h"

namespace plumbline::audit::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

// A folder with event files, a table, JSON lines and a console log of one run, whose loss is NaN
// from `broken` on.
class Output {
 public:
  explicit Output(int broken = -1) {
    EventFile events;
    std::string table = "step,loss,lr\n", lines, log;
    for (int i = 0; i < 120; ++i) {
      const bool nan = broken >= 0 && i >= broken;
      const double loss = nan ? std::nan("") : 1 + 2 * std::exp(-i / 30.0) + 0.01 * ((i * 7) % 5);
      const std::string text = nan ? "nan" : std::to_string(loss);
      events.Scalar(i, "loss", static_cast<float>(loss));
      table += std::to_string(i) + "," + text + ",3e-4\n";
      lines += "{\"step\": " + std::to_string(i) + ", \"loss\": " + (nan ? "NaN" : text) + "}\n";
      log += "step " + std::to_string(i) + " loss " + text.substr(0, 6) + "\n";
    }
    dir_.Write("events.out.tfevents.1.host", events.bytes());
    dir_.Write("metrics.csv", table);
    dir_.Write("log.jsonl", lines);
    dir_.Write("train.log", log);
  }
  const TempFolder& dir() const { return dir_; }
  std::string path() const { return dir_.path(); }

 private:
  TempFolder dir_;
};

Json Audit(const std::string& path, int status) {
  const auto run = RunPlumb({"audit", path, "--quiet", "--format", "json"});
  EXPECT_EQ(run.status, status) << run.errors;
  return Json::parse(run.output);
}

TEST(LoggerFolder, OneCauseInFourLoggersIsOneFinding) {
  const Output broken(73);
  const Json report = Audit(broken.path(), 1);
  ASSERT_EQ(report["findings"].size(), 1u) << report["findings"].dump(1);
  EXPECT_EQ(report["findings"][0]["rule"], "health/loss-non-finite");
  const auto text = RunPlumb({"audit", broken.path(), "--quiet"});
  EXPECT_THAT(text.output, HasSubstr("3 findings are not repeated"));
  EXPECT_EQ(Audit(Output().path(), 0)["findings"].size(), 0u);
}

// A folder as transformers' Trainer writes it: the state in each checkpoint, event files in runs/,
// a console log, weights. The loss is NaN from `broken` on, the weights of checkpoints from `lost`
// on.
std::string TrainerFolder(const TempFolder& dir, int broken, int lost) {
  EventFile events;
  std::string state = "{\"log_history\": [", log;
  for (int i = 1; i <= 60; ++i) {
    const bool nan = i >= broken;
    const double loss = 1 + 2 * std::exp(-i / 30.0) + 0.01 * ((i * 7) % 5);
    events.Scalar(i, "train/loss", static_cast<float>(nan ? std::nan("") : loss));
    state += std::string(i > 1 ? ", " : "") + "{\"step\": " + std::to_string(i) +
             ", \"epoch\": " + std::to_string(i / 60.0) +
             ", \"loss\": " + (nan ? "NaN" : std::to_string(loss)) + "}";
    log += "{'loss': '" + (nan ? "nan" : std::to_string(loss).substr(0, 6)) + "', 'epoch': '" +
           std::to_string(i / 60.0) + "'}\n";
  }
  dir.Write("runs/Nov29_host/events.out.tfevents.1.host", events.bytes());
  dir.Write("train.log", log);
  for (int step = 10; step <= 60; step += 10) {
    const std::string folder = "checkpoint-" + std::to_string(step) + "/";
    if (step == 60) dir.Write(folder + "trainer_state.json", state + "], \"global_step\": 60}");
    std::vector<float> values(64);
    for (size_t k = 0; k < values.size(); ++k)
      values[k] = step >= lost ? std::nanf("")
                               : 0.01F * static_cast<float>(k + 1) / static_cast<float>(step);
    Dump weights;
    weights.metadata = {{"format", "pt"}};
    weights.tensors = {{"model.layers.0.mlp.weight", "F32", {8, 8}, Bytes(values)}};
    dir.Write(folder + "model.safetensors", weights.File());
  }
  return dir.path();
}

TEST(LoggerFolder, OneFaultInATrainersFolderIsOneIncident) {
  const TempFolder later, first, healthy;
  const Json loss = Audit(TrainerFolder(later, 32, 40), 1);
  ASSERT_EQ(loss["incidents"].size(), 1u) << loss["findings"].dump(1);
  EXPECT_EQ(loss["incidents"][0]["rule"], "health/loss-non-finite");
  const auto text = RunPlumb({"audit", later.path(), "--quiet"});
  EXPECT_THAT(text.output, HasSubstr("precision/non-finite of step 40 is not repeated"));
  const Json weights = Audit(TrainerFolder(first, 31, 30), 1);
  ASSERT_EQ(weights["incidents"].size(), 1u) << weights["findings"].dump(1);
  EXPECT_EQ(weights["incidents"][0]["rule"], "precision/non-finite");
  EXPECT_EQ(Audit(TrainerFolder(healthy, 99, 99), 0)["findings"].size(), 0u);
}

// Another cause in one of the loggers is a separate finding.
TEST(LoggerFolder, ASecondCauseIsNotHidden) {
  const Output broken(73);
  std::string other = "step,loss\n";
  for (int i = 0; i < 120; ++i)
    other += std::to_string(i) + "," + (i >= 40 ? "nan" : std::to_string(2.0 - 0.01 * i)) + "\n";
  broken.dir().Write("other.csv", other);
  EXPECT_EQ(Audit(broken.path(), 1)["findings"].size(), 2u);
}

TEST(LoggerFolder, TwoFoldersAreComparedLoggerByLogger) {
  const Output healthy, broken(73);
  const auto run = RunPlumb({"diff", healthy.path(), broken.path()});
  EXPECT_EQ(run.status, 0) << run.errors;
  EXPECT_THAT(run.output, HasSubstr("B is NaN from step 73 on: loss"));
  for (const char* logger : {"metrics.csv", "log.jsonl", "train.log", "tensorboard"})
    EXPECT_THAT(run.output, HasSubstr(std::string("loss of ") + logger +
                                      ", 120 common steps: first "
                                      "differs at step 73"));
  EXPECT_THAT(run.output, HasSubstr("B is NaN from step 73 on; no departure; "));
  const Output copy;
  const auto same = RunPlumb({"diff", healthy.path(), copy.path()});
  EXPECT_EQ(same.status, 0) << same.errors;
  EXPECT_THAT(same.output, Not(HasSubstr("first differs")));
  EXPECT_THAT(same.output, Not(HasSubstr(" alone")));
  EXPECT_THAT(same.output, HasSubstr("no departure; 0 settings, 0 models and 0 incidents differ"));
}

TEST(LoggerFolder, FilesThatNoReaderTakes) {
  const Output healthy;
  healthy.dir().Write("server.log", "listening on port 8080\nworker 3 done in 5 s\n");
  healthy.dir().Write("requirements.txt", "numpy==2.4.6\ntorch==2.9\n");
  const auto run = RunPlumb({"audit", healthy.path(), "--quiet"});
  EXPECT_THAT(run.output, HasSubstr("1 file looks like a log and was not read: "));
  EXPECT_THAT(run.output, HasSubstr("1 file has an unknown format: "));
}

TEST(LoggerFolder, StoresThatAreNotReadAreNamedWithTheWayThatWorks) {
  const TempFolder dir;
  dir.Write(".aim/meta/000005.log", std::string("\x01\x02\x00\x03", 4));
  const auto aim = RunPlumb({"audit", dir.path() + "/.aim/meta", "--quiet"});
  EXPECT_EQ(aim.status, 2);
  EXPECT_THAT(aim.output, HasSubstr("the aim repository " + dir.path()));
  const std::string data = std::string(PLUMBLINE_SOURCE_DIR) + "/tests/audit/data/rollouts/";
  for (const char* name : {"verl", "trl", "openrlhf"}) {
    const std::string file = data + name + ".jsonl";
    const auto read = RunPlumb({"audit", file, "--quiet"});
    EXPECT_NE(read.status, 2) << read.output << read.errors;
    EXPECT_EQ(read.output, RunPlumb({"audit", file, "--map", name, "--quiet"}).output);
  }
  const std::string samples =
      dir.Write("7.jsonl", "{\"input\": \"a\", \"output\": \"b\", \"points\": 1.0, \"step\": 7}\n");
  EXPECT_THAT(RunPlumb({"audit", samples, "--quiet"}).output,
              HasSubstr("samples (prompts and answers) without log-probabilities"));
  const std::string last = dir.Write("all_results.json", "{\"epoch\": 3.0, \"train_loss\": 2.5}");
  EXPECT_THAT(RunPlumb({"audit", last, "--quiet"}).output, HasSubstr("audit trainer_state.json"));
}

// A file per parameter, next to a file per series.
TEST(LoggerFolder, ParametersOfMlflowsStoreAreCompared) {
  const TempFolder dir;
  const auto store = [&](const std::string& side, const std::string& rate) {
    const std::string run = side + "/mlruns/0/" + side + "1234/";
    std::string points;
    for (int step = 0; step < 80; ++step)
      points += std::to_string(1700000000000 + step) + " 2.5 " + std::to_string(step) + "\n";
    for (const char* name : {"train/loss", "eval/loss", "lr"})
      dir.Write(run + "metrics/" + name, points);
    dir.Write(run + "params/lr", rate);
    dir.Write(run + "params/optimizer/name", "adamw\n");
    dir.Write(run + "params/prompt", std::string(1 << 20, 'a'));
    return dir.path() + "/" + side;
  };
  const std::string a = store("a", "3e-4"), b = store("b", "3e-2"), c = store("c", "3e-4");
  const auto other = RunPlumb({"diff", a, b, "--format", "json"});
  EXPECT_EQ(Json::parse(other.output)["settings"],
            Json::parse(R"([{"name": "config: lr", "a": "3e-4", "b": "3e-2"}])"))
      << other.output;
  EXPECT_EQ(Json::parse(RunPlumb({"diff", a, c, "--format", "json"}).output)["settings"].size(),
            0u);
}

// On a terminal the report shows the error already.
TEST(LoggerFolder, AnErrorIsPrintedOnceWhereBothOutputsAreOne) {
  const auto count = [](const std::string& redirect) {
    const auto run = test::RunToEnd(
        {"/bin/sh", "-c", PlumbProgram() + " audit missing/path --quiet" + redirect});
    EXPECT_EQ(run.status, 2);
    const std::string all = run.output + run.errors;
    size_t found = 0;
    for (size_t at = 0; (at = all.find("missing/path", at)) != std::string::npos; ++at) ++found;
    return found;
  };
  EXPECT_EQ(count(" 2>&1"), 1u);
  EXPECT_EQ(count(" 2>&1 | cat; exit 2"), 1u);
  EXPECT_EQ(count(" >/dev/null"), 1u);
  EXPECT_EQ(count(" --format json 2>&1 >/dev/null"), 1u);
}

// CatBoost writes its errors three times: tables, event files, one JSON document.
TEST(LoggerFolder, CatboostsFolderIsOneRunALogger) {
  const TempFolder dir;
  std::string learn = "iter\tRMSE\n", test = "iter\tRMSE\n", left = "iter\tPassed\tRemaining\n";
  for (int i = 0; i < 120; ++i) {
    const std::string step = std::to_string(i);
    learn += step + "\t" + std::to_string(1.5 - 0.01 * i) + "\n";
    test += step + "\t" + (i < 73 ? std::to_string(1.75 - 0.01 * i) : "nan") + "\n";
    left += step + "\t" + step + "\t9\n";
  }
  dir.Write("learn_error.tsv", learn);
  dir.Write("test_error.tsv", test);
  dir.Write("time_left.tsv", left);
  const Json report = Audit(dir.path(), 1);
  ASSERT_EQ(report["findings"].size(), 1u + 1u) << report["findings"].dump(1);
  EXPECT_EQ(report["findings"][0]["site"]["op"], "test/RMSE");
  EXPECT_EQ(report["findings"][0]["site"]["run"], "learn_error.tsv");
  EXPECT_EQ(report["findings"][1]["rule"], "meta/probe-coverage");
}

}  // namespace
}  // namespace plumbline::audit::testing
