// The façade with the real agent: problems from loading protobuf and gRPC into a process.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "tests/agent/facade/process.h"
#include "tests/agent/facade/scenarios.h"
#include "tests/support/files.h"

namespace {

namespace fs = std::filesystem;
using plumbline::test::Environment;
using plumbline::test::Outcome;

// The output without the lines that name a record (tests/agent/core/printed_test.cc).
std::string WithoutRecords(const std::string& output) {
  std::string rest;
  for (size_t at = 0; at < output.size();) {
    const size_t end = std::min(output.find('\n', at), output.size() - 1) + 1;
    const std::string line = output.substr(at, end - at);
    if (!line.starts_with("plumbline: recorded in ")) rest += line;
    at = end;
  }
  return rest;
}

// The output without the messages of children that open a run after a fork; *lines is their number.
std::string WithoutForked(std::string output, int* lines) {
  const std::string begin =
      "plumbline: open: this process was forked from a process with an open run";
  for (*lines = 0; output.starts_with(begin); ++*lines) output.erase(0, output.find('\n') + 1);
  return output;
}

// Runs a scenario that records to its own directory; true when something was recorded.
void RunRecorded(const std::string& scenario, Environment extra = {},
                 const std::string& stated = "") {
  const plumbline::test::TempFolder folder;
  const std::string record = folder.File("record");
  extra["SCENARIO_RECORD"] = record;
#if defined(PLUMBLINE_SANITIZED)
  // It cannot stop a forked child's threads (there are none), and prints a message.
  extra["ASAN_OPTIONS"] = "detect_leaks=0";
#endif
  const Outcome o = plumbline::test::SpawnScenario(scenario, extra);
  EXPECT_EQ(o.status, 0) << o.output;
  int forked = 0;
  EXPECT_EQ(WithoutForked(WithoutRecords(o.output), &forked), stated);
  // If a child opens a run that can observe nothing, it gets a message.
  const bool forks = scenario == "fork-after-load" || scenario == "fork-storm";
  EXPECT_EQ(forked > 0, forks) << o.output;
  uintmax_t bytes = 0;
  if (fs::exists(record)) {
    for (const auto& entry : fs::recursive_directory_iterator(record)) {
      if (entry.is_regular_file()) bytes += entry.file_size();
    }
  }
  EXPECT_GT(bytes, 0u) << "nothing was recorded";
}

TEST(FacadeWithAgent, Threads) { RunRecorded("threads"); }
TEST(FacadeWithAgent, CloseWhileOthersObserve) { RunRecorded("close-under-fire"); }
TEST(FacadeWithAgent, ForkedChildrenReturnAtOnce) { RunRecorded("fork-after-load"); }
TEST(FacadeWithAgent, ManyForksWhileTheAgentLoads) { RunRecorded("fork-storm"); }
TEST(FacadeWithAgent, ChildrenForkedBeforeOpenAreTrainers) { RunRecorded("fork-before-open"); }
TEST(FacadeWithAgent, ExitWithoutClose) { RunRecorded("loads-at-first-step-end"); }
TEST(FacadeWithAgent, ServerThatIsNotThere) {
  RunRecorded(
      "no-server", {{"PLUMBLINE_SERVER", "127.0.0.1:9"}},
      "plumbline: no server answers at 127.0.0.1:9: Connection refused. Evidence is stored, "
      "and sent when a server accepts it.\n");
}

// A sanitizer replaces the allocator.
#if !defined(PLUMBLINE_SANITIZED)
class AgentAllocator : public ::testing::TestWithParam<const char*> {};

TEST_P(AgentAllocator, SharesTheProcessHeap) {
  ASSERT_TRUE(fs::exists(GetParam())) << GetParam() << " is missing; tools/setup installs it";
  RunRecorded("threads", {{"LD_PRELOAD", GetParam()}});
  RunRecorded("fork-storm", {{"LD_PRELOAD", GetParam()}});
}

INSTANTIATE_TEST_SUITE_P(Preloaded, AgentAllocator,
                         ::testing::ValuesIn(plumbline::test::kAllocators));
#endif

}  // namespace

int main(int argc, char** argv) { return plumbline::test::RunScenarioOrTests(argc, argv); }
