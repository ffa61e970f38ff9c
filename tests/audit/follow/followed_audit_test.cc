// FollowedAudit on growing files gives the same result as an audit of the whole files.
#include "audit/follow/followed_audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <set>
#include <thread>

#include "audit/render/json_report.h"
#include "tests/audit/audit_dumps.h"
#include "tests/audit/follow/growing_file.h"
#include "tests/audit/scalars/scalar_files.h"
#include "tests/support/eventually.h"
#include "tests/support/files.h"

namespace plumbline::audit {
namespace {

using namespace testing;  // NOLINT: the builders
using test::Eventually;
using test::TempFolder;

std::unique_ptr<FollowedAudit> Follow(const std::vector<std::string>& paths) {
  AuditOptions options;
  options.paths = paths;
  auto audit = FollowedAudit::Create(options);
  EXPECT_TRUE(audit.ok()) << audit.status();
  return *std::move(audit);
}

bool Found(const FollowedAudit& audit, const std::string& rule) {
  const auto all = audit.report().findings();
  return std::any_of(all.begin(), all.end(), [&](auto* found) { return found->rule() == rule; });
}

bool Finds(FollowedAudit& audit, const std::string& rule) {
  return Eventually([&] {
    audit.Look();
    return Found(audit, rule);
  });
}

// The report without the sizes that inputs had when they were opened.
std::string ReportOf(AuditResult result) {
  for (InputReport& input : result.inputs) input.bytes = 0;
  return RenderJson(result);
}

TEST(FollowedAudit, ANanIsFoundAsItComesAndTheRestAsByAnAudit) {
  const TempFolder dir;
  const std::string log = dir.Write("train.log", HealthyIterations(1, 60));
  auto audit = Follow({log});
  audit->Look();
  EXPECT_FALSE(Found(*audit, "health/loss-non-finite"));
  Append(log, HealthyIterations(60, 70));
  audit->Look();
  Append(log, Iteration(70, "nan"));
  EXPECT_TRUE(Finds(*audit, "health/loss-non-finite"));
  Append(log, HealthyIterations(71, 130));
  audit->Look();
  EXPECT_EQ(ReportOf(audit->Finish()), ReportOf(Audit({log})));
}

TEST(FollowedAudit, ALineThatIsNotWholeWaits) {
  const TempFolder dir;
  const std::string csv = dir.Write("log.csv", "step,loss\n1,2.5\n2,2.5\n3,2.");
  auto audit = Follow({csv});
  audit->Look();
  Append(csv, "5\n4,na");
  audit->Look();
  EXPECT_FALSE(Found(*audit, "health/loss-non-finite"));
  Append(csv, "n\n");
  EXPECT_TRUE(Finds(*audit, "health/loss-non-finite"));
  const AuditResult result = audit->Finish();
  EXPECT_EQ(Problems(result), "");
  ASSERT_EQ(result.inputs.size(), 1u);
  EXPECT_EQ(result.inputs[0].records, 4u);
}

TEST(FollowedAudit, AnUnfinishedEndIsNotedInTheEnd) {
  const TempFolder dir;
  EventFile file;
  for (int64_t step = 0; step < 5; ++step) file.Scalar(step, "loss", 1);
  const std::string bytes = file.bytes();
  const std::string path = dir.Write("events.out.tfevents.1", bytes.substr(0, bytes.size() - 3));
  auto audit = Follow({path});
  audit->Look();
  EXPECT_EQ(ReportOf(audit->Finish()), ReportOf(Audit({path})));
}

// Byte by byte, so that every record and line is cut at every position.
TEST(FollowedAudit, InPiecesOfAnySize) {
  EventFile events;
  WandbRun wandb;
  std::string csv = "step,loss,lr\n", jsonl;
  wandb.Begin("abc");
  for (int64_t step = 0; step < 40; ++step) {
    const std::string loss = step == 30 ? "NaN" : HealthyLoss(step);
    events.Scalar(step, "loss", step == 30 ? NAN : std::stof(loss)).Scalar(step, "lr", 0.1f);
    wandb.History(step, {{"loss", step == 30 ? "\"NaN\"" : loss}, {"lr", "0.1"}});
    csv += std::to_string(step) + "," + loss + ",0.1\n";
    jsonl += "{\"step\": " + std::to_string(step) + ", \"loss\": " + loss + ", \"lr\": 0.1}\n";
  }
  const std::vector<std::pair<std::string, std::string>> files = {
      {"events.out.tfevents.1", events.bytes()},
      {"run-abc.wandb", wandb.bytes()},
      {"log.csv", csv},
      {"log.jsonl", jsonl},
      {"train.log", HealthyIterations(1, 30)}};
  for (const auto& [name, bytes] : files) {
    const TempFolder dir;
    const std::string path = dir.File(name);
    auto audit = Follow({path});
    size_t piece = 1;
    for (size_t at = 0; at < bytes.size(); at += piece, piece = piece % 97 + 1) {
      Append(path, bytes.substr(at, piece));
      audit->Look();
    }
    EXPECT_EQ(ReportOf(audit->Finish()), ReportOf(Audit({path}))) << name;
  }
}

// A validation writes its loss for a much earlier step.
TEST(FollowedAudit, WhatComesForAnEarlierStepIsJudgedAnew) {
  const TempFolder dir;
  std::string rows = "step,train_loss,val_loss\n";
  for (int step = 0; step < 60; ++step) rows += std::to_string(step) + ",2.5,\n";
  const std::string csv = dir.Write("metrics.csv", rows);
  auto audit = Follow({csv});
  audit->Look();
  Append(csv, "59,,nan\n20,,2.5\n");
  EXPECT_TRUE(Finds(*audit, "health/loss-non-finite"));
  Append(csv, "60,2.5,\n");
  audit->Look();
  EXPECT_EQ(ReportOf(audit->Finish()), ReportOf(Audit({csv})));
}

TEST(FollowedAudit, ARestartInTheSameFile) {
  const TempFolder dir;
  const std::string log = dir.Write("train.log", HealthyIterations(1, 60));
  auto audit = Follow({log});
  audit->Look();
  Append(log, HealthyIterations(30, 45));
  audit->Look();
  Append(log, HealthyIterations(45, 80) + Iteration(80, "inf"));
  EXPECT_TRUE(Finds(*audit, "health/loss-non-finite"));
  EXPECT_EQ(ReportOf(audit->Finish()), ReportOf(Audit({log})));
}

bool FindsCause(FollowedAudit& audit, const std::string& cause, bool found = true) {
  return Eventually([&] {
    audit.Look();
    const auto& findings = audit.report().findings();
    return found == std::any_of(findings.begin(), findings.end(),
                                [&](const auto* f) { return f->cause().id() == cause; });
  });
}

// What no single rule sees: NaN in a series of no role, reported once.
TEST(FollowedAudit, ANanInASeriesOfNoRole) {
  const TempFolder dir;
  const std::string csv = dir.Write("log.csv", "step,loss,foo\n");
  const auto rows = [](int64_t from, int64_t to, const std::string& foo) {
    std::string text;
    for (int64_t step = from; step < to; ++step)
      text += std::to_string(step) + "," + HealthyLoss(step) + "," + foo + "\n";
    return text;
  };
  auto audit = Follow({csv});
  Append(csv, rows(0, 40, "1.5"));
  audit->Look();
  EXPECT_TRUE(audit->report().findings().empty());
  Append(csv, rows(40, 42, "nan"));
  EXPECT_TRUE(FindsCause(*audit, "unknown-series"));
  Append(csv, rows(42, 60, "nan") + rows(60, 90, "1.5"));
  audit->Look();
  EXPECT_EQ(audit->report().findings().size(), 1u);
  EXPECT_EQ(ReportOf(audit->Finish()), ReportOf(Audit({csv})));
}

// A rank of which nothing comes any more; it is withdrawn if the rank goes on.
TEST(FollowedAudit, ARankThatFallsSilent) {
  const TempFolder dir;
  const std::string logs[] = {dir.Write("run/rank0.log", ""), dir.Write("run/rank1.log", "")};
  auto audit = Follow({dir.path()});
  const auto both = [&](int64_t from, int64_t to) {
    for (const std::string& log : logs) Append(log, HealthyIterations(from, to));
    audit->Look();
  };
  for (int64_t step = 1; step < 60; step += 10) both(step, step + 10);
  Append(logs[0], HealthyIterations(61, 69));
  audit->Look();
  EXPECT_TRUE(audit->report().findings().empty());
  Append(logs[0], HealthyIterations(69, 120));
  EXPECT_TRUE(FindsCause(*audit, "rank-silent"));
  Append(logs[1], HealthyIterations(61, 120));
  EXPECT_TRUE(FindsCause(*audit, "rank-silent", false));
  EXPECT_EQ(ReportOf(audit->Finish()), ReportOf(Audit({dir.path()})));
}

// Ranks that write in blocks are apart all the time: no rank is silent, no evidence is lost.
TEST(FollowedAudit, ARankThatWritesInBlocksIsHealthy) {
  for (const int64_t length : {13, 100}) {
    const TempFolder dir;
    const std::string line = dir.Write("run/rank0.log", ""), block = dir.Write("run/rank1.log", "");
    auto audit = Follow({dir.path()});
    for (int64_t step = 1, next = step + length; step < 4 * length; step = next, next += length) {
      Append(line, HealthyIterations(step, next - 5));
      audit->Look();
      std::this_thread::sleep_for(std::chrono::milliseconds(200));  // then no rank is waited for
      audit->Look();
      Append(line, HealthyIterations(next - 5, next));
      Append(block, HealthyIterations(step, next));
      audit->Look();
      for (const v1::Finding* finding : audit->report().findings())
        ADD_FAILURE() << finding->rule();
    }
    EXPECT_EQ(ReportOf(audit->Finish()), ReportOf(Audit({dir.path()})));
  }
}

// What a log states in sentences is reported at the end.
TEST(FollowedAudit, HowALogEnds) {
  const TempFolder dir;
  const std::string log = dir.Write("train.log", HealthyIterations(1, 60));
  auto audit = Follow({log});
  audit->Look();
  Append(log,
         "Traceback (most recent call last):\n  File \"train.py\", line 8, in <module>\n"
         "RuntimeError: expected a tensor\n");
  audit->Look();
  const AuditResult result = audit->Finish();
  ASSERT_EQ(result.findings().size(), 1u);
  EXPECT_EQ(result.findings()[0]->rule(), "health/run-died");
}

TEST(FollowedAudit, FilesThatAppear) {
  const TempFolder dir;
  auto audit = Follow({dir.path()});
  audit->Look();
  EXPECT_TRUE(audit->reports().empty());
  const std::string first = dir.Write("exp1/train.log", HealthyIterations(1, 50));
  EXPECT_TRUE(Eventually([&] {
    audit->Look();
    return !audit->reports().empty();
  }));
  // The run was named train.log; now there are two with that name.
  dir.Write("exp2/train.log", HealthyIterations(1, 50) + Iteration(50, "nan"));
  EXPECT_TRUE(Finds(*audit, "health/loss-non-finite"));
  Append(first, HealthyIterations(50, 60));
  EXPECT_EQ(ReportOf(audit->Finish()), ReportOf(Audit({dir.path()})));
}

TEST(FollowedAudit, ALogThatIsRotated) {
  const TempFolder dir;
  const std::string log = dir.Write("train.log", HealthyIterations(1, 60));
  auto audit = Follow({log});
  audit->Look();
  Append(log, HealthyIterations(60, 62));  // not read before the file is replaced
  std::filesystem::rename(log, dir.File("train.log.1"));
  audit->Look();
  dir.Write("train.log", HealthyIterations(62, 120));
  audit->Look();
  Append(log, Iteration(120, "nan"));
  EXPECT_TRUE(Finds(*audit, "health/loss-non-finite"));
  const AuditResult result = audit->Finish();
  ASSERT_EQ(result.inputs.size(), 1u);
  EXPECT_EQ(result.inputs[0].records, 120u);
  for (const SeriesSeen& series : result.inputs[0].series) EXPECT_EQ(series.points, 120u);
}

TEST(FollowedAudit, ALogThatIsCutShort) {
  const TempFolder dir;
  const std::string log = dir.Write("train.log", HealthyIterations(1, 60));
  auto audit = Follow({log});
  audit->Look();
  dir.Write("train.log", HealthyIterations(60, 70));
  audit->Look();
  EXPECT_EQ(audit->Finish().inputs[0].records, 69u);
}

// trainer_state.json is rewritten at each checkpoint: this is not a restart.
TEST(FollowedAudit, ADocumentThatIsWrittenAnew) {
  const TempFolder dir;
  const auto state = [&](int64_t steps, const std::string& last) {
    std::string history;
    for (int64_t step = 1; step <= steps; ++step) {
      history += std::string(step > 1 ? ", " : "") + "{\"step\": " + std::to_string(step) +
                 ", \"loss\": " + (step == steps ? last : "2.5") + "}";
    }
    return dir.Write("trainer_state.json", "{\"epoch\": " + std::to_string(steps) +
                                               ", \"log_history\": [" + history + "]}\n");
  };
  auto audit = Follow({state(20, "2.5")});
  audit->Look();
  const std::string path = state(40, "NaN");
  EXPECT_TRUE(Finds(*audit, "health/loss-non-finite"));
  EXPECT_EQ(ReportOf(audit->Finish()), ReportOf(Audit({path})));
}

// transformers copies it into the folder of each checkpoint: a spike is reported once.
TEST(FollowedAudit, CopiesOfATrainersStateAreOneRun) {
  const TempFolder dir;
  const auto state = [&](const std::string& folder, int64_t steps) {
    std::string history;
    for (int64_t step = 1; step <= steps; ++step) {
      history += std::string(step > 1 ? ", " : "") + "{\"step\": " + std::to_string(10 * step) +
                 ", \"loss\": " + (step == 30 ? "NaN" : HealthyLoss(step)) + "}";
    }
    dir.Write(folder + "trainer_state.json", "{\"log_history\": [" + history + "]}\n");
  };
  const auto runs = [](const FollowedAudit& audit) {
    std::set<std::string> names;
    for (const v1::Finding* finding : audit.report().findings())
      names.insert(finding->site().run());
    return names;
  };
  state("checkpoint-200/", 20);
  auto audit = Follow({dir.path()});
  audit->Look();
  state("checkpoint-400/", 40);
  EXPECT_TRUE(Finds(*audit, "health/loss-non-finite"));
  state("checkpoint-1000/", 100);
  state("", 100);
  const auto all_read = [&] {
    uint64_t records = 0;
    for (const InputReport& report : audit->reports()) records = std::max(records, report.records);
    return records >= 100;
  };
  EXPECT_TRUE(Eventually([&] {
    audit->Look();
    return all_read();
  }));
  EXPECT_EQ(runs(*audit), std::set<std::string>{"trainer_state.json"});
  EXPECT_EQ(ReportOf(audit->Finish()), ReportOf(Audit({dir.path()})));
}

// The user's name for the run does not make two runs.
TEST(FollowedAudit, SeveralFormatsUnderOneName) {
  const TempFolder dir;
  std::string csv = "step,train_loss\n";
  EventFile events;
  for (int64_t step = 0; step < 200; ++step) {
    csv += std::to_string(10 * step) + "," + HealthyLoss(step) + "\n";
    events.Scalar(10 * step, "train_loss", std::stof(HealthyLoss(step)));
  }
  dir.Write("version_0/metrics.csv", csv);
  dir.Write("version_0/events.out.tfevents.1", events.bytes());
  AuditOptions options;
  options.paths = {dir.path()};
  options.readers.scalars.run = "exp1";
  auto followed = FollowedAudit::Create(options);
  ASSERT_TRUE(followed.ok());
  (*followed)->Look();
  const auto whole = RunAudit(options, nullptr);
  ASSERT_TRUE(whole.ok());
  std::set<std::string> runs;
  for (const v1::Verdict* verdict : whole->report.verdicts()) {
    runs.insert(verdict->site().run());
    EXPECT_NE(verdict->rule(), "meta/data-loss");
  }
  EXPECT_EQ(runs, (std::set<std::string>{"exp1", "exp1/metrics.csv"}));
  ASSERT_EQ(whole->inputs.size(), 2u);
  EXPECT_TRUE(whole->inputs[0].notes.empty());
  ASSERT_EQ(whole->inputs[1].notes.size(), 1u);
  EXPECT_NE(whole->inputs[1].notes[0].find("exp1/"), std::string::npos);
  EXPECT_EQ(ReportOf((*followed)->Finish()), RenderJson([&] {
              AuditResult copy = *RunAudit(options, nullptr);
              for (InputReport& input : copy.inputs) input.bytes = 0;
              return copy;
            }()));
}

TEST(FollowedAudit, AFileThatNeverCame) {
  const TempFolder dir;
  auto audit = Follow({dir.File("train.log")});
  audit->Look();
  const AuditResult result = audit->Finish();
  EXPECT_TRUE(result.inputs_failed());
  EXPECT_TRUE(result.nothing_there);
}

TEST(FollowedAudit, ABannerBeforeTheFirstInformativeLine) {
  const TempFolder dir;
  const std::string log = dir.Write("train.log", "loading the data\n");
  auto audit = Follow({log});
  audit->Look();
  Append(log, HealthyIterations(1, 30) + Iteration(30, "nan"));
  EXPECT_TRUE(Finds(*audit, "health/loss-non-finite"));
  EXPECT_EQ(ReportOf(audit->Finish()), ReportOf(Audit({log})));
}

}  // namespace
}  // namespace plumbline::audit
