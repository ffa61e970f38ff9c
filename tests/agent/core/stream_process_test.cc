// A run that streams to a server in another process, which is stopped and continued; and the
// effects of the run on its own process: threads and time.
#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "tests/agent/core/streamed_run.h"
#include "tests/support/process.h"

namespace plumbline::agent {
namespace {

using namespace testing;  // NOLINT: the tests' own
using std::chrono::milliseconds;

std::set<std::string> ThreadIds() {
  std::set<std::string> ids;
  DIR* dir = opendir("/proc/self/task");
  while (const dirent* entry = readdir(dir)) {
    if (entry->d_name[0] != '.') ids.insert(entry->d_name);
  }
  closedir(dir);
  return ids;
}

bool ThreadNamed(const std::string& name) {
  for (const std::string& id : ThreadIds()) {
    std::string found;
    std::getline(std::ifstream("/proc/self/task/" + id + "/comm") >> std::ws, found);
    if (found == name) return true;
  }
  return false;
}

// Prints its address when it listens.
class ServerProcess {
 public:
  const std::string& target() const { return target_; }
  void Stop() const { process_.Signal(SIGSTOP); }
  void Continue() const { process_.Signal(SIGCONT); }

 private:
  test::Process process_{{PLUMBLINE_BINARY_DIR "/bin/agent_server_process"}};
  const std::string target_ = process_.FirstLine();
};

TEST(Stream, CloseReturnsWhenTheServerIsStopped) {
  ServerProcess server;
  TestRun run(ServerOptions(server.target()));
  RouterCall call(32, 8, 2);
  Train(&run, &call, 0, 50, milliseconds(1));
  plumbline_error_t error;
  ASSERT_EQ(run.run().Flush(20000, &error), PLUMBLINE_OK) << error.text;
  server.Stop();
  EXPECT_LT(Train(&run, &call, 50, 200, milliseconds(1)), 1.0);
  const auto start = Clock::now();
  EXPECT_EQ(run.Close(2000), PLUMBLINE_DEADLINE_EXCEEDED);
  const double seconds = Seconds(Clock::now() - start);
  EXPECT_GE(seconds, 1.9);
  EXPECT_LT(seconds, 10.0) << "about 2 s are meant; more only if the machine is very busy";
  std::printf("close of a stopped server: %.2f s\n", seconds);
  // The call was cancelled, not abandoned.
  EXPECT_TRUE(test::Eventually([] { return !ThreadNamed("plumb-stream"); }));
  EXPECT_FALSE(ThreadNamed("plumb-drain"));
}

// The server was stopped before it could send its first message.
TEST(Stream, CloseReturnsWhenTheServerNeverGreets) {
  ServerProcess server;
  server.Stop();
  TestRun run(ServerOptions(server.target()));
  RouterCall call(32, 8, 2);
  Train(&run, &call, 0, 50, milliseconds(1));
  const auto start = Clock::now();
  EXPECT_EQ(run.Close(500), PLUMBLINE_DEADLINE_EXCEEDED);
  EXPECT_LT(Seconds(Clock::now() - start), 10.0);
}

TEST(Stream, GoesOnWhenTheServerContinues) {
  ServerProcess server;
  TestRun run(ServerOptions(server.target()));
  RouterCall call(32, 8, 2);
  Train(&run, &call, 0, 50, milliseconds(1));
  server.Stop();
  Train(&run, &call, 50, 100, milliseconds(1));
  server.Continue();
  EXPECT_EQ(run.Close(20000), PLUMBLINE_OK) << run.error();
}

// Every thread that the run starts blocks the signals that a trainer handles.
TEST(Stream, ThreadsBlockSignals) {
  ServerProcess server;  // another process: its gRPC threads are not in this process
  const std::set<std::string> before = ThreadIds();
  TestRun run(ServerOptions(server.target()));
  RouterCall call(32, 8, 2);
  Train(&run, &call, 0, 20, milliseconds(1));
  plumbline_error_t error;
  ASSERT_EQ(run.run().Flush(20000, &error), PLUMBLINE_OK) << error.text;
  std::set<std::string> names;
  int checked = 0;
  for (const std::string& id : ThreadIds()) {
    if (before.count(id) != 0) continue;
    std::ifstream status("/proc/self/task/" + id + "/status");
    std::string line, name;
    uint64_t blocked = 0;
    while (std::getline(status, line)) {
      if (line.rfind("Name:", 0) == 0) name = line.substr(6);
      if (line.rfind("SigBlk:", 0) == 0) blocked = std::stoull(line.substr(8), nullptr, 16);
    }
    if (name.empty()) continue;  // it has ended in the meantime
    names.insert(name);
    ++checked;
    for (const int signal :
         {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGUSR1, SIGUSR2, SIGALRM, SIGPROF}) {
      EXPECT_TRUE(blocked >> (signal - 1) & 1) << name << " takes signal " << signal;
    }
  }
  EXPECT_GE(checked, 2);
  EXPECT_TRUE(names.count("plumb-drain"));
  EXPECT_TRUE(names.count("plumb-stream"));
  EXPECT_EQ(run.Close(), PLUMBLINE_OK);
}

TEST(Stream, IdleCostsNextToNothing) {
  ServerProcess server;
  TestRun run(ServerOptions(server.target()));
  std::this_thread::sleep_for(milliseconds(2500));
  constexpr double kBound = 0.01;  // the target is 0.3 %; a busy machine's accounting is coarse
  const double share = IdleCpuShare(kBound);
  std::printf("idle CPU with a server: %.3f %% of a core\n", 100 * share);
  EXPECT_LT(share, kBound);
  EXPECT_EQ(run.Close(), PLUMBLINE_OK);
}

}  // namespace
}  // namespace plumbline::agent
