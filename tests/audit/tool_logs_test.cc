// Consoles of tools, a few literal lines each in the tool's own format: which points are read, and
// that a NaN loss in the last of them is reported at its step.
#include "tests/audit/tool_logs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/audit/point_reading.h"

namespace plumbline::audit {
namespace {

using testing::PointsRead;
using testing::ReadPoints;
using testing::Recognises;
using testing::ToolLog;

// Both tables.
std::vector<ToolLog> ToolLogs() {
  std::vector<ToolLog> logs;
  for (const auto of : {testing::NetworkLogs(), testing::OtherLogs()})
    logs.insert(logs.end(), of.begin(), of.end());
  return logs;
}

PointsRead ReadTool(const ToolLog& tool, const std::string& text) {
  return ReadPoints(TrainerLogFormat(), text, {}, tool.name);
}

TEST(ToolLogs, EveryPointIsRead) {
  for (const ToolLog& tool : ToolLogs()) {
    SCOPED_TRACE(tool.name);
    EXPECT_TRUE(Recognises(TrainerLogFormat(), tool.text, tool.name));
    std::string points;
    for (const testing::ReadPoint& p : ReadTool(tool, tool.text).points) {
      char value[32];
      std::snprintf(value, sizeof value, "%.10g", p.value);
      points += std::to_string(p.step) + " " + p.series + " " + value + "\n";
    }
    EXPECT_EQ(points, tool.points);
  }
}

TEST(ToolLogs, ANanIsReadAtItsStep) {
  for (const ToolLog& tool : ToolLogs()) {
    SCOPED_TRACE(tool.name);
    std::string text = tool.text;
    const std::string last = tool.last;
    text.replace(text.rfind(last), last.size(), "nan");
    const PointsRead healthy = ReadTool(tool, tool.text), read = ReadTool(tool, text);
    ASSERT_FALSE(read.Values(tool.loss).empty());
    EXPECT_TRUE(std::isnan(read.Values(tool.loss).back()));
    EXPECT_EQ(read.Steps(tool.loss), healthy.Steps(tool.loss));
    for (size_t i = 0; i + 1 < read.Values(tool.loss).size(); ++i)
      EXPECT_EQ(read.Values(tool.loss)[i], healthy.Values(tool.loss)[i]);
  }
}

TEST(ToolLogs, AGrowingFileGivesTheSame) {
  for (const ToolLog& tool : ToolLogs()) {
    SCOPED_TRACE(tool.name);
    const PointsRead whole = ReadTool(tool, tool.text);
    const PointsRead grown = ReadPoints(TrainerLogFormat(), tool.text, {}, tool.name, 97);
    // Only the first lines show how fractions are written.
    if (std::string(tool.name) == "decimal_comma.log") continue;
    EXPECT_EQ(grown.Text(), whole.Text());
  }
}

// Numbers that are left out are counted, with the text before the first one.
TEST(ToolLogs, WhatIsLeftOutIsCounted) {
  const PointsRead read = ReadPoints(TrainerLogFormat(),
                                     "step 1 | loss: 2.5 | the rate was lowered to: 3\n"
                                     "step 2 | loss: 2.5 | the rate was lowered to: 3\n");
  EXPECT_NE(read.Problems().find("found 2 numbers without a name on lines with a step, the first "
                                 "after \"the rate was lowered to\": they are ignored"),
            std::string::npos)
      << read.Problems();
  EXPECT_EQ(ReadPoints(TrainerLogFormat(), "step 1 | loss: 2.5 |\n").Problems(), "");
}

// A dictionary without a step takes the step of the training bar above it.
TEST(ToolLogs, StepsOfABar) {
  const std::string log =
      "Map: 100%|##| 5000/5000 [00:01<00:00, 4000.5 examples/s]\n"
      " 10%|#   | 10/100 [00:01<00:09]\n{'loss': 2.5, 'epoch': 0.1}\n"
      " 20%|##  | 20/100 [00:01<00:09]\n{'loss': nan, 'epoch': 0.2}\n"
      "100%|####| 5/5 [00:01<00:00]\n{'eval_loss': 2.5, 'epoch': 0.2}\n";
  const PointsRead read = ReadPoints(TrainerLogFormat(), log);
  EXPECT_EQ(read.Steps("loss"), (std::vector<int64_t>{10, 20}));
  EXPECT_EQ(read.Steps("eval_loss"), (std::vector<int64_t>{20}));
  EXPECT_EQ(read.Values("Map").size(), 0u);
}

// The number of tokens seen is also in the dictionaries of an evaluation: it does not begin a step.
TEST(ToolLogs, TokensSeenBeginNoStep) {
  const PointsRead read = ReadPoints(
      TrainerLogFormat(),
      "{'loss': 2.5, 'num_input_tokens_seen': 10}\n{'eval_loss': 3.5, 'num_input_tokens_seen': "
      "10}\n{'loss': 2.25, 'num_input_tokens_seen': 20}\n");
  EXPECT_EQ(read.Steps("loss"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(read.Steps("eval_loss"), (std::vector<int64_t>{1}));
}

// The source location that rich prints at the edge is not a value, at any width.
TEST(ToolLogs, LinesThatATerminalCut) {
  for (const size_t width : {20u, 34u, 60u}) {
    std::string log;
    for (int step = 0; step < 4; ++step) {
      const std::string message =
          "step " + std::to_string(step) + " loss 2.5 grad_norm 1.25 lr 0.5 tokens 12";
      for (size_t at = 0; at < message.size();) {
        size_t end = std::min(message.size(), at + width);
        while (end < message.size() && message[end] != ' ') --end;
        std::string row = message.substr(at, end - at);
        row.resize(width, ' ');
        log += at == 0 ? "[11/29/26 06:44:05] INFO     " + row + " train.py:52\n"
                       : std::string(29, ' ') + row + "\n";
        at = end + 1;
      }
    }
    const PointsRead read = ReadPoints(TrainerLogFormat(), log);
    for (const auto& [series, value] : {std::pair("loss", 2.5), std::pair("grad_norm", 1.25),
                                        std::pair("lr", 0.5), std::pair("tokens", 12.0)}) {
      EXPECT_EQ(read.Values(series), std::vector<double>(4, value)) << series << "\n" << log;
      EXPECT_EQ(read.Steps(series), (std::vector<int64_t>{0, 1, 2, 3})) << series;
    }
    EXPECT_EQ(read.points.size(), 16u) << read.Text();
  }
}

// Lines of other programs that contain a count, a colon or an epoch.
TEST(ToolLogs, LinesThatAreNoTraining) {
  const char* texts[] = {
      "epoch: 100\nloss_weight: 0.5\nlr: 0.1\n",
      "[1/20] Building CXX object a.o\n[2/20] Linking CXX executable b\n",
      "Early stopping patience: 3 epochs\nmax epoch: 10, lr: 0.5\n",
      "12: learned to read\n[3] see: page 5\n[4] see: page 6\n",
      "| name | value |\n|------|-------|\n| a | 3 |\n| b | 4 |\n",
      "2024/01/02 batch 5 of letters sent\n",
  };
  for (const char* text : texts) EXPECT_FALSE(Recognises(TrainerLogFormat(), text)) << text;
}

}  // namespace
}  // namespace plumbline::audit
