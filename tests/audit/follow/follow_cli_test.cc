// plumb audit --follow as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/audit/follow/growing_file.h"
#include "tests/audit/plumb_process.h"
#include "tests/support/eventually.h"
#include "tests/support/files.h"
#include "tests/support/process.h"

namespace plumbline::audit {
namespace {

using namespace testing;  // NOLINT: the builders
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;
using test::Eventually;
using test::Process;
using test::TempFolder;

// Returns true once the process waits for SIGINT itself: before that it would end by the signal.
bool BlocksInterrupts(const Process& process) {
  const std::string status = test::ReadFile("/proc/" + std::to_string(process.pid()) + "/status");
  const size_t at = status.find("SigBlk:");
  return at != std::string::npos &&
         (std::stoull(status.substr(at + 7), nullptr, 16) >> (SIGINT - 1) & 1) != 0;
}

bool States(Process& process, const std::string& text) {
  return Eventually(
      [&] { return process.output().find(text) != std::string::npos || !process.running(); });
}

TEST(FollowCli, FindingsAsTheyComeAndTheReportInTheEnd) {
  const TempFolder dir;
  const std::string log = dir.Write("train.log", HealthyIterations(1, 60));
  Process plumb({PLUMB_PROGRAM, "audit", log, "--follow"});
  Append(log, Iteration(60, "nan"));
  EXPECT_TRUE(States(plumb, "health/loss-non-finite")) << plumb.errors();
  Append(log, HealthyIterations(61, 80) + Iteration(80, "9.5"));
  EXPECT_TRUE(States(plumb, "the loss jumped"));
  Append(log, HealthyIterations(81, 100));
  EXPECT_TRUE(States(plumb, "changed: health/loss-spike")) << plumb.output();
  const std::string before = plumb.output();
  EXPECT_EQ(before.find("judged"), std::string::npos) << before;
  plumb.Signal(SIGINT);
  EXPECT_EQ(plumb.Wait(), 1);
  EXPECT_THAT(plumb.output().substr(before.size()), HasSubstr("2 findings"));
}

TEST(FollowCli, JsonIsAnObjectALine) {
  const TempFolder dir;
  const std::string log = dir.Write("train.log", HealthyIterations(1, 60));
  Process plumb(
      {PLUMB_PROGRAM, "audit", log, "--follow", "--format", "json", "--rules", "health/*"});
  Append(log, Iteration(60, "nan"));
  EXPECT_TRUE(States(plumb, "\n"));
  plumb.Signal(SIGTERM);
  EXPECT_EQ(plumb.Wait(), 1);
  std::vector<Json> lines;
  std::istringstream text(plumb.output());
  for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
  ASSERT_EQ(lines.size(), 2u) << plumb.output();
  EXPECT_EQ(lines[0]["event"], "found");
  EXPECT_EQ(lines[0]["finding"]["rule"], "health/loss-non-finite");
  EXPECT_EQ(lines[0]["finding"]["site"]["step_first"], 60);
  EXPECT_EQ(lines[1]["event"], "report");
  EXPECT_EQ(lines[1]["report"]["schema"], "plumbline.report/1");
  EXPECT_EQ(lines[1]["report"]["findings"].size(), 1u);
}

// trainer_state.json of a run that went back to a checkpoint: it no longer contains the NaN.
TEST(FollowCli, WhatIsGoneIsWithdrawn) {
  const TempFolder dir;
  const auto state = [&](const std::string& loss) {
    std::string history;
    for (int step = 1; step <= 20; ++step) {
      history += std::string(step > 1 ? ", " : "") + "{\"step\": " + std::to_string(step) +
                 ", \"loss\": " + (step == 20 ? loss : "2.5") + "}";
    }
    return dir.Write("trainer_state.json", "{\"log_history\": [" + history + "]}\n");
  };
  Process plumb({PLUMB_PROGRAM, "audit", state("NaN"), "--follow"});
  EXPECT_TRUE(States(plumb, "health/loss-non-finite")) << plumb.errors();
  state("2.500");
  EXPECT_TRUE(States(plumb, "withdrawn, because later data contradict it: health/loss-non-finite"))
      << plumb.output();
  plumb.Signal(SIGINT);
  EXPECT_EQ(plumb.Wait(), 0) << plumb.output();
}

TEST(FollowCli, AHealthyRunEndsWithNothing) {
  const TempFolder dir;
  const std::string log = dir.Write("train.log", HealthyIterations(1, 60));
  Process plumb({PLUMB_PROGRAM, "audit", log, "--follow", "--output", dir.File("report.json"),
                 "--format", "json"});
  EXPECT_TRUE(Eventually([&] { return BlocksInterrupts(plumb); }));
  Append(log, HealthyIterations(60, 150));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  plumb.Signal(SIGINT);
  EXPECT_EQ(plumb.Wait(), 0) << plumb.errors();
  EXPECT_EQ(plumb.output(), "");
  EXPECT_EQ(Json::parse(test::ReadFile(dir.File("report.json")))["inputs"][0]["records"], 149);
}

TEST(FollowCli, APathThatIsNotThereYetIsWaitedFor) {
  const TempFolder dir;
  Process plumb({PLUMB_PROGRAM, "audit", dir.File("train.log"), "--follow"});
  EXPECT_TRUE(Eventually([&] { return plumb.errors().find("waiting") != std::string::npos; }));
  dir.Write("train.log", HealthyIterations(1, 60) + Iteration(60, "nan"));
  EXPECT_TRUE(States(plumb, "health/loss-non-finite"));
  EXPECT_EQ(plumb.errors().find("expected"), std::string::npos) << plumb.errors();
  plumb.Signal(SIGINT);
  EXPECT_EQ(plumb.Wait(), 1);
}

TEST(FollowCli, WhatIsWrongWithTheLineIsStated) {
  const TempFolder dir;
  const std::string log = dir.Write("train.log", HealthyIterations(1, 60));
  EXPECT_THAT(RunPlumb({"audit", log, "--follow", "--format", "html"}).errors,
              HasSubstr("--output"));
  const test::Ended nameless = RunPlumb({"audit", log, "--send", "127.0.0.1:1"});
  EXPECT_EQ(nameless.status, 2);
  EXPECT_THAT(nameless.errors, HasSubstr("--run RUN"));
}

}  // namespace
}  // namespace plumbline::audit
