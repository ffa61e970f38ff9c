// Tests the file of a run that records: it is readable at any time, also with a full disk and after
// the end of its process. There is one file per attempt. Also tests the cost of the writing thread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "tests/agent/core/support.h"
#include "tests/support/process.h"

namespace plumbline::agent {
namespace {

using namespace testing;  // NOLINT: the tests' own
using ::testing::HasSubstr;

TEST(Record, ReadableWhileItIsWritten) {
  TempFolder dir;
  TestRun run(RecordOptions(dir.path()));
  for (int64_t step = 0; step < 5; ++step) {
    run.run().StepBegin(step);
    run.run().Scalar(step, "loss", 1);
    run.run().StepEnd(step);
    plumbline_error_t error;
    ASSERT_EQ(run.run().Flush(10000, &error), PLUMBLINE_OK) << error.text;
    const Account account = AccountOf(ReadRecord(FirstRecord(dir.path())));
    EXPECT_EQ(account.items, static_cast<uint64_t>(step + 1));
    EXPECT_EQ(account.complete_through, step);
    EXPECT_FALSE(account.finished);
  }
  EXPECT_EQ(run.Close(), PLUMBLINE_OK);
}

TEST(Record, ARepeatedRunGetsTheNextAttempt) {
  TempFolder dir;
  for (uint32_t repeat = 0; repeat < 3; ++repeat) {
    TestRun run(RecordOptions(dir.path()));
    EXPECT_EQ(run.run().state().source.attempt(), repeat);
    EXPECT_EQ(run.Close(), PLUMBLINE_OK);
  }
  AgentOptions restarted = RecordOptions(dir.path());
  restarted.attempt = 7;
  {
    TestRun run(restarted);
    EXPECT_EQ(run.run().state().source.attempt(), 7u);
    run.Close();
  }
  AgentOptions other_rank = RecordOptions(dir.path());
  other_rank.rank = 1;
  other_rank.world_size = 2;
  TestRun run(other_rank);
  EXPECT_EQ(run.run().state().source.attempt(), 0u);
  run.Close();
  EXPECT_TRUE(std::filesystem::exists(dir.File("trainer-r00000-a2.plr")));
  EXPECT_TRUE(std::filesystem::exists(dir.File("trainer-r00000-a7.plr")));
  EXPECT_TRUE(std::filesystem::exists(dir.File("trainer-r00001-a0.plr")));
}

// Several processes of one rank that begin together: every process has its own record.
TEST(Record, OneFileOnePerProcess) {
  for (int round = 0; round < 20; ++round) {
    TempFolder dir;
    constexpr int kProcesses = 4;
    int gate[2];
    ASSERT_EQ(pipe(gate), 0);
    std::vector<pid_t> children;
    for (int i = 0; i < kProcesses; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        close(gate[1]);
        char byte;
        if (read(gate[0], &byte, 1) != 0) _exit(9);  // until the parent opens it for all
        const auto attempt = ClaimAttempt(dir.path(), v1::ROLE_TRAINER, 0, 0);
        _exit(attempt.ok() && *attempt < kProcesses ? static_cast<int>(*attempt) : 8);
      }
      children.push_back(child);
    }
    close(gate[0]);
    close(gate[1]);
    std::vector<int> attempts;
    for (const pid_t child : children) {
      int status = -1;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFEXITED(status));
      attempts.push_back(WEXITSTATUS(status));
    }
    EXPECT_THAT(attempts, ::testing::UnorderedElementsAre(0, 1, 2, 3));
  }
}

// The file of the other process is not changed, even if it is written late.
TEST(Record, AnEmptyFileIsAnothers) {
  TempFolder dir;
  const std::string theirs = RecordPath(dir.path(), v1::ROLE_TRAINER, 0, 0);
  std::ofstream(theirs).flush();  // created, its header is not yet written
  TestRun run(RecordOptions(dir.path()));
  EXPECT_EQ(run.run().state().source.attempt(), 1u);
  EXPECT_EQ(run.Close(), PLUMBLINE_OK);
  EXPECT_EQ(std::filesystem::file_size(theirs), 0u);
}

TEST(Record, AnUnusableDirectoryIsAnErrorThatNamesIt) {
  TempFolder dir;
  std::ofstream(dir.File("file")) << "x";
  const auto run = Run::Open(RecordOptions(dir.File("file/sub")));
  ASSERT_FALSE(run.ok());
  EXPECT_THAT(std::string(run.status().message()), HasSubstr(dir.File("file/sub")));
}

// With a full disk the run continues, and flush and close report the error. When there is space
// again, the record states exactly which items are missing.
TEST(Record, AFullDiskIsCountedAndStated) {
  TempFolder dir;
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  TestRun run(RecordOptions(dir.path()));
  plumbline_error_t error;
  const auto step = [&](int64_t n) {
    run.run().StepBegin(n);
    EXPECT_EQ(run.run().Scalar(n, "loss", 1), PLUMBLINE_OK);
    run.run().StepEnd(n);
  };
  step(0);
  ASSERT_EQ(run.run().Flush(10000, &error), PLUMBLINE_OK) << error.text;
  rlimit full = before;
  full.rlim_cur = std::filesystem::file_size(FirstRecord(dir.path())) + 20;  // also cuts a frame
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  for (int64_t n = 1; n <= 5; ++n) {
    step(n);
    EXPECT_EQ(run.run().Flush(10000, &error), PLUMBLINE_INTERNAL);
  }
  EXPECT_THAT(error.text, HasSubstr(FirstRecord(dir.path())));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  // Tried again every second.
  int64_t n = 6;
  for (const auto start = std::chrono::steady_clock::now();
       std::chrono::steady_clock::now() - start < std::chrono::seconds(30); ++n) {
    step(n);
    if (run.run().Flush(10000, &error) == PLUMBLINE_OK) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(run.Close(), PLUMBLINE_INTERNAL);  // a measured item is not in the record
  EXPECT_THAT(run.error(), HasSubstr("File too large"));
  const auto batches = ReadRecord(FirstRecord(dir.path()));
  const Account account = AccountOf(batches);
  EXPECT_GE(account.lost_by_cause.at("record-write"), 5u);
  EXPECT_EQ(account.items + account.lost, static_cast<uint64_t>(n + 1));
  EXPECT_EQ(account.complete_through, n);
  EXPECT_TRUE(account.finished);
  for (size_t i = 0; i < batches.size(); ++i) EXPECT_EQ(batches[i].sequence(), i + 1);
}

TEST(Record, ARemovedOrCutFileIsALoss) {
  for (const bool removes : {true, false}) {
    TempFolder dir;
    TestRun run(RecordOptions(dir.path()));
    run.run().StepBegin(0);
    EXPECT_EQ(run.run().Scalar(0, "loss", 1), PLUMBLINE_OK);
    run.run().StepEnd(0);
    plumbline_error_t error;
    ASSERT_EQ(run.run().Flush(10000, &error), PLUMBLINE_OK) << error.text;
    const std::string path = FirstRecord(dir.path());
    if (removes) {
      std::filesystem::remove(path);
    } else {
      std::filesystem::rename(path, path + ".old");
      std::ofstream(path).put('x');
    }
    EXPECT_EQ(run.Close(), PLUMBLINE_INTERNAL);
    EXPECT_THAT(run.error(), HasSubstr(path + (removes ? ": was removed" : ": expected ")));
  }
}

// The thread's CPU time over some idle seconds; the target is 0.3 % of a core.
TEST(Record, IdleCostsNextToNothing) {
  TempFolder dir;
  TestRun run(RecordOptions(dir.path()));
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  constexpr double kBound = 0.01;  // the target is 0.3 %; a busy machine's accounting is coarse
  const double share = IdleCpuShare(kBound);
  RecordProperty("idle_cpu_percent", std::to_string(100 * share));
  std::printf("idle CPU: %.3f %% of a core\n", 100 * share);
  EXPECT_LT(share, kBound);
  run.Close();
}

// The evidence of the last steps is in the record after the trainer is killed.
TEST(Record, SurvivesSigkill) {
  TempFolder dir;
  const std::string file = FirstRecord(dir.path());
  test::Process trainer({PLUMBLINE_BINARY_DIR "/bin/agent_trainer_process", "record", dir.path()});
  Account account;
  test::Eventually([&] {
    if (std::filesystem::exists(file) && std::filesystem::file_size(file) > 100) {
      account = AccountOf(ReadRecord(file));
    }
    return account.complete_through >= 30;
  });
  trainer.Signal(SIGKILL);
  ASSERT_EQ(trainer.Wait(), 128 + SIGKILL);
  ASSERT_GE(account.complete_through, 30);
  const Account after = AccountOf(ReadRecord(file));
  EXPECT_GE(after.complete_through, account.complete_through);
  EXPECT_GE(after.items, account.items);
  // Each complete step has its three observations.
  EXPECT_GE(after.items, static_cast<uint64_t>(3 * (after.complete_through + 1)));
  EXPECT_FALSE(after.finished);
}

}  // namespace
}  // namespace plumbline::agent
