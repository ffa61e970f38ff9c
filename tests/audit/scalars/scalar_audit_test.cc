// Tests logs of scalars through the whole audit: a usual folder, statements about series, maps, and
// verdicts equal to those of a run record.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "audit/render/finding_json.h"
#include "audit/render/json_report.h"
#include "audit/render/text_report.h"
#include "tests/audit/audit_dumps.h"
#include "tests/audit/plumb_process.h"
#include "tests/audit/record_builder.h"
#include "tests/audit/report_check.h"
#include "tests/audit/rollout_files.h"
#include "tests/audit/scalars/scalar_files.h"
#include "tests/support/batches.h"

namespace plumbline::audit {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using namespace testing;  // NOLINT: the builders
using Json = nlohmann::ordered_json;

// A healthy run's event file.
std::string Healthy(int64_t steps = 50) {
  EventFile file;
  for (int64_t step = 0; step < steps; ++step) {
    file.Scalar(step, "train/loss", 3.0f / (1.0f + 0.1f * static_cast<float>(step)));
    file.Scalar(step, "lr", 1e-3f);
    file.Scalar(step, "grad_norm", 1.0f + 0.01f * static_cast<float>(step % 7));
  }
  return file.bytes();
}

// A learning rate that is zero from step 10 on, as in the tests of learning-rate.
float RateAt(int64_t step) { return step < 10 ? 1e-3f : 0.0f; }

// No column has the name of a step; the user names the column.
TEST(ScalarAudit, ATableIsKnownByTheStepThatIsStated) {
  const TempFolder dir;
  std::string csv = "foo_counter,loss,width\n", jsonl;
  for (int step = 0; step < 20; ++step) {
    csv += std::to_string(step) + ",2.5,1\n";
    jsonl += "{\"foo_counter\": " + std::to_string(step) + ", \"loss\": 2.5}\n";
  }
  for (const auto& [name, bytes] : {std::pair("foo.csv", csv), std::pair("foo.json", jsonl)}) {
    AuditOptions options;
    options.paths = {dir.Write(name, bytes)};
    EXPECT_TRUE(RunAudit(options, nullptr)->inputs_failed()) << name;
    options.readers.scalars.step = "foo_counter";
    const auto result = RunAudit(options, nullptr);
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(Problems(*result), "") << name;
    EXPECT_EQ(result->inputs[0].records, 20u) << name;
    EXPECT_NE(VerdictOf(*result, "health/loss-non-finite"), nullptr) << name;
    options.readers.scalars.step = "other";
    EXPECT_TRUE(RunAudit(options, nullptr)->inputs_failed()) << name;
  }
}

// A table is complete when it is compressed.
TEST(ScalarAudit, ACompressedTableThatStopsIsDamaged) {
  const TempFolder dir;
  std::string csv = "step,loss\n", jsonl;
  for (int step = 0; step < 5000; ++step) {
    const std::string loss = std::to_string(2 + 0.001 * (step * 7919 % 997));
    csv += std::to_string(step) + "," + loss + "\n";
    jsonl += "{\"step\": " + std::to_string(step) + ", \"loss\": " + loss + "}\n";
  }
  for (const auto& [name, bytes] : {std::pair("a.csv.gz", csv), std::pair("a.jsonl.gz", jsonl)}) {
    const std::string packed = Gzip(bytes);
    EXPECT_FALSE(Audit({dir.Write(name, packed)}).inputs_failed()) << name;
    const AuditResult cut = Audit({dir.Write(name, packed.substr(0, packed.size() * 2 / 3))});
    EXPECT_EQ(cut.inputs_failed(), cut.inputs[0].format == "csv") << name;
    EXPECT_THAT(Problems(cut), HasSubstr("expected the end of the gzip data")) << name;
    EXPECT_GT(cut.inputs[0].records, 100u) << name;
  }
}

TEST(ScalarAudit, AFolderAsPeopleHaveIt) {
  const TempFolder dir;
  dir.Write("exp1/events.out.tfevents.1700000000.host.1.0", Healthy());
  dir.Write("exp1/events.out.tfevents.1700000099.host.2.0", "");
  dir.Write("exp1/config.yaml", "lr: 0.1\nsteps: 50\n");
  dir.Write("exp1/config.json", "{\"lr\": 0.1}\n");
  dir.Write("exp1/notes.md", "# notes\n");
  dir.Write("exp1/checkpoints/step-10/optimizer.bin", std::string(5000, '\x7f'));
  dir.Write("exp1/train.tfrecord", TfRecord("\x0a\x03"
                                            "abc"));
  dir.Write("wandb/offline-run-20240101_000000-abc/run-abc.wandb",
            WandbRun()
                .Begin("abc")
                .History(0, {{"loss", "1"}, {"lr", "0.1"}})
                .History(1, {{"loss", "1"}, {"lr", "0.1"}})
                .Exit(0)
                .bytes());
  dir.Write("wandb/offline-run-20240101_000000-abc/files/wandb-metadata.json",
            "{\"os\": \"Linux\"}\n");
  dir.Write("wandb/offline-run-20240101_000000-abc/logs/debug.log", "2024-01-01 INFO MainThread\n");
  dir.Write(".git/HEAD", "ref: refs/heads/main\n");
  dir.Write(".git/objects/ab/cdef", std::string("\x78\x01") + std::string(100, '\x55'));
  dir.Write("train.py", "import torch\n");
  const AuditResult result = Audit({dir.path()});
  EXPECT_EQ(Problems(result), "");
  EXPECT_FALSE(result.inputs_failed());
  const Json report = CheckReport(RenderJson(result));
  int events = 0, runs = 0;
  for (const Json& input : report["inputs"]) {
    if (input["format"] == "tensorboard") ++events;
    if (input["format"] == "wandb") ++runs;
  }
  EXPECT_EQ(events, 2);
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(report["findings"].size(), 0u) << report["findings"].dump(1);
  EXPECT_GT(report["coverage"]["judged"], 0);
}

TEST(ScalarAudit, WhatWasTakenForWhatIsReported) {
  const TempFolder dir;
  dir.Write("exp1/events.out.tfevents.1", Healthy(20));
  AuditOptions options;
  options.paths = {dir.path()};
  options.engine.roles.Set("grad_norm", SeriesRole::kTokens);
  const auto result = RunAudit(options, nullptr);
  ASSERT_TRUE(result.ok());
  const Json series = CheckReport(RenderJson(*result))["inputs"][0]["series"];
  EXPECT_EQ(series.dump(), R"([{"name":"grad_norm","role":"tokens","points":20},)"
                           R"({"name":"lr","role":"rate","points":20},)"
                           R"({"name":"train/loss","role":"loss","points":20}])");
  const std::string text = RenderText(*result, TextStyle{});
  EXPECT_THAT(text, HasSubstr("loss: train/loss"));
  EXPECT_THAT(text, HasSubstr("rate: lr"));
  EXPECT_THAT(text, HasSubstr("tokens: grad_norm"));
}

// The same numbers, from a log and from the record of an agent: the same finding.
TEST(ScalarAudit, AsARunRecordStates) {
  const TempFolder dir;
  EventFile file;
  std::vector<v1::Batch> batches;
  RecordPlan plan;
  plan.run = "mine";
  for (int64_t step = 0; step < 40; ++step) {
    file.Scalar(step, "lr", RateAt(step)).Scalar(step, "loss", 1);
    v1::Batch batch = test::BatchOf(test::SourceOf("mine"));
    batch.set_stream_id(1);
    batch.set_sequence(static_cast<uint64_t>(step) + 1);
    test::AddScalar(&batch, "lr", step, RateAt(step));
    test::AddScalar(&batch, "loss", step, 1);
    test::AddProgress(&batch, step);
    batches.push_back(batch);
  }
  const AuditResult recorded = Audit({dir.Write("run.plr", RecordFile(plan, batches))});
  AuditOptions options;
  options.paths = {dir.Write("mine/events.out.tfevents.1", file.bytes())};
  const auto logged = RunAudit(options, nullptr);
  ASSERT_TRUE(logged.ok());
  EXPECT_EQ(Problems(*logged), "");
  ASSERT_EQ(recorded.report.findings().size(), 1u);
  ASSERT_EQ(logged->report.findings().size(), 1u);
  EXPECT_EQ(FindingJson(*logged->report.findings()[0]),
            FindingJson(*recorded.report.findings()[0]));
  EXPECT_EQ(logged->coverage.judged, recorded.coverage.judged);
  EXPECT_EQ(logged->coverage.inconclusive, recorded.coverage.inconclusive);
}

TEST(ScalarAudit, AProcessThatFailedIsReported) {
  const TempFolder dir;
  const std::string bytes = WandbRun().Begin("abc").History(0, {{"loss", "1"}}).Exit(3).bytes();
  const AuditResult result = Audit({dir.Write("run-abc.wandb", bytes)});
  ASSERT_NE(VerdictOf(result, "health/run-died"), nullptr);
  EXPECT_EQ(VerdictOf(result, "health/run-died")->kind(), v1::Verdict::KIND_FINDING);
}

class ScalarCli : public ::testing::Test {
 protected:
  std::string Map(const std::string& text) { return dir_.Write("map.toml", text); }
  const TempFolder dir_;
  const std::string events_ = dir_.Write("exp1/events.out.tfevents.1", Healthy(30));
};

TEST_F(ScalarCli, MapAndRun) {
  const std::string map = Map("run = \"named\"\n[series]\n\"grad_norm\" = \"update-ratio\"\n");
  const auto ended = RunPlumb({"audit", events_, "--map", map, "--format", "json"});
  EXPECT_EQ(ended.status, 0) << ended.errors;
  const Json report = CheckReport(ended.output);
  EXPECT_EQ(report["inputs"][0]["series"][0]["role"], "update-ratio");
  EXPECT_EQ(report["verdicts"][0]["site"]["run"], "named");
  const auto named = RunPlumb({"audit", events_, "--run", "other", "--format", "json"});
  EXPECT_EQ(CheckReport(named.output)["verdicts"][0]["site"]["run"], "other");
}

TEST_F(ScalarCli, WrongMapsAreNamed) {
  const auto wrong = [&](const std::string& text) {
    const auto ended = RunPlumb({"audit", events_, "--map", Map(text)});
    EXPECT_EQ(ended.status, 2) << text;
    return ended.errors;
  };
  EXPECT_THAT(wrong("[series]\nx = \"los\"\n"), HasSubstr("map.toml:2: expected a role"));
  EXPECT_THAT(wrong("[series]\nx = \"los\"\n"), HasSubstr("did you mean loss?"));
  EXPECT_THAT(wrong("[series]\nx = 3\n"), HasSubstr("map.toml:2: expected a role, found 3"));
  EXPECT_THAT(wrong("series = 3\n"), HasSubstr("expected a table"));
  EXPECT_THAT(wrong("rank = \"(\"\n"), HasSubstr("expected a regular expression"));
  EXPECT_THAT(wrong("rank = \"r\"\n"), HasSubstr("expected a group"));
  EXPECT_THAT(wrong("run = 1\n"), HasSubstr("expected a non-empty string, found 1"));
  EXPECT_THAT(wrong("run = \"x\"\nstepp = \"y\"\n"), HasSubstr("did you mean step?"));
}

// A step for one table only, names that no file has, and files that are no map.
TEST_F(ScalarCli, WhatAMapStatesInVain) {
  dir_.Write("two/a.csv", "it,loss\n1,2.5\n2,2.25\n");
  dir_.Write("two/b.csv", "step,acc\n10,0.5\n20,0.75\n");
  const auto audit = [&](const std::string& text) {
    return RunPlumb({"audit", dir_.path() + "/two", "--map", Map(text), "--format", "json"});
  };
  auto ended = audit("step = \"it\"\n[series]\nacc = \"none\"\nlos = \"loss\"\n");
  EXPECT_EQ(ended.status, 0) << ended.errors;
  EXPECT_THAT(ended.output, HasSubstr("the column that --map declares as the step"));
  EXPECT_THAT(ended.output, HasSubstr("did you mean loss?"));
  const Json report = CheckReport(ended.output);
  EXPECT_EQ(report["inputs"][1]["problems"].size(), 0u);
  EXPECT_EQ(report["inputs"][1]["notes"].size(), 1u);
  ended = audit("step = \"nothing\"\n");
  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(ended.errors, HasSubstr("found no file with this column"));
  EXPECT_THAT(audit("").errors, HasSubstr("found an empty map"));
  EXPECT_THAT(audit("sreies = 1\n").errors, HasSubstr("did you mean series?"));
  EXPECT_THAT(audit("zzzzzz = 1\n").errors, HasSubstr("series run step rank"));
}

// The reader of the output closes the pipe early.
TEST_F(ScalarCli, AReaderThatGoesAway) {
  // `true` reads nothing from the pipe. The shell writes the exit status to stderr.
  const auto ended = test::RunToEnd(
      {"/bin/sh", "-c",
       "(sleep 0.2; " + PlumbProgram() + " audit " + events_ + "; echo $? >&2) | true"});
  EXPECT_EQ(ended.errors, "0\n");
}

TEST_F(ScalarCli, NamesThatSteerATerminal) {
  const std::string bytes = "step,loss\u202Ex\n1,nan\n2,nan\n";
  const auto ended = RunPlumb({"audit", dir_.Write("tables/m.csv", bytes)});
  EXPECT_THAT(ended.output, Not(HasSubstr("\u202E")));
  EXPECT_THAT(ended.output, HasSubstr("\\u202e"));
}

TEST_F(ScalarCli, ExitStatusOfDamage) {
  const std::string bytes = Healthy(30);
  std::string length = bytes, data = bytes;
  // The first record's length, and a byte of its data.
  length[0] = static_cast<char>(length[0] ^ 1);
  data[14] = static_cast<char>(data[14] ^ 1);
  const auto status = [&](const std::string& content) {
    return RunPlumb({"audit", dir_.Write("events.out.tfevents.5", content)}).status;
  };
  EXPECT_EQ(status(bytes), 0);
  EXPECT_EQ(status(bytes.substr(0, bytes.size() - 5)), 0);
  EXPECT_EQ(status(data), 0);
  EXPECT_EQ(status(length), 2);
}

}  // namespace
}  // namespace plumbline::audit
