// The ranks of one run in lock step, one process each (lockstep_trainer), and their shared state.
// PLUMB_TRAINER is the program's path.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/server/support.h"

namespace plumbline::test {

struct TrainerPlan {
  std::string run;
  uint32_t world = 2;
  int64_t steps = 0;
  int64_t step_ms = 0;
  // If set, they record losses, and rank 0's is NaN in this step (-1: never).
  std::optional<int64_t> nan_at;
};

class TrainerProcesses {
 public:
  TrainerProcesses(TrainerPlan plan, const std::string& server) : plan_(std::move(plan)) {
    const std::string barrier =
        folder_.Write("barrier", std::string(plan_.world * sizeof(int64_t), '\xff'));  // -1
    const int fd = open(barrier.c_str(), O_RDWR | O_CLOEXEC);
    done_ = static_cast<std::atomic<int64_t>*>(
        mmap(nullptr, plan_.world * sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    close(fd);
    for (uint32_t rank = 0; rank < plan_.world; ++rank) {
      std::vector<std::string> command = {PLUMB_TRAINER,
                                          plan_.run,
                                          std::to_string(rank),
                                          std::to_string(plan_.world),
                                          std::to_string(plan_.steps),
                                          std::to_string(plan_.step_ms),
                                          barrier};
      if (plan_.nan_at) command.push_back(std::to_string(*plan_.nan_at));
      ranks_.push_back(std::make_unique<Process>(
          std::move(command),
          std::vector<std::string>{"PLUMBLINE_SERVER=" + server, "PLUMBLINE_RECORD=" + Records(),
                                   "PLUMBLINE_SPOOL=" + Spools()}));
    }
  }
  ~TrainerProcesses() {
    ranks_.clear();
    munmap(done_, plan_.world * sizeof(int64_t));
  }
  TrainerProcesses(const TrainerProcesses&) = delete;
  TrainerProcesses& operator=(const TrainerProcesses&) = delete;

  const TrainerPlan& plan() const { return plan_; }
  std::string Records() const { return folder_.File("records"); }
  std::string Spools() const { return folder_.File("spools"); }
  Process& rank(uint32_t rank) { return *ranks_[rank]; }
  int64_t at(uint32_t rank) const { return done_[rank]; }  // the last step that it completed
  void SignalAll(int signal) {
    for (const auto& rank : ranks_) rank->Signal(signal);
  }
  bool AnyRuns() {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const auto& r) { return r->running(); });
  }
  std::optional<uint32_t> killed() const { return killed_; }

 protected:
  // Kills a rank; the others continue without it. Returns the last step that it completed.
  int64_t KillRank(uint32_t rank) {
    ranks_[rank]->Signal(SIGKILL);
    ranks_[rank]->Wait();
    killed_ = rank;
    return done_[rank].exchange(std::numeric_limits<int64_t>::max());
  }

 private:
  const TrainerPlan plan_;
  TempFolder folder_;
  std::atomic<int64_t>* done_ = nullptr;
  std::vector<std::unique_ptr<Process>> ranks_;
  std::optional<uint32_t> killed_;
};

}  // namespace plumbline::test
