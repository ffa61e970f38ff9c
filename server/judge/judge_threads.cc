#include "server/judge/judge_threads.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace plumbline::server {
namespace {

constexpr int64_t kSharedBy = 10;  // threads that share one processor, as a guess
// The priority of a thread from which others took over: if all processors are in use, it gets about
// a tenth of one.
constexpr int kSlowNice = 10;
// If other processes use all processors, nearly each item takes longer than TurnLock::kSlow, so
// some thread would always be taken over, and a checkpoint that is due would never be taken.
constexpr std::chrono::milliseconds kSlowIfPatient{250};

int64_t CpuNs(clockid_t clock) {
  timespec at{};
  if (clock_gettime(clock, &at) != 0) return 0;
  return int64_t{1'000'000'000} * at.tv_sec + at.tv_nsec;
}

}  // namespace

thread_local JudgeThreads::Worker* JudgeThreads::mine_ = nullptr;

void JudgeThreads::Start(std::function<void()> what) {
  {
    const MutexLock lock(mutex_);
    ++threads_;
  }
  std::thread([this, what = std::move(what)]() mutable {
    Worker worker;
    worker.threads = this;
    worker.thread = gettid();
    (void)pthread_getcpuclockid(pthread_self(), &worker.cpu_clock);
    mine_ = &worker;
    {
      const MutexLock lock(mutex_);
      workers_.push_back(&worker);
    }
    what();
    what = nullptr;
    mine_ = nullptr;
    const MutexLock lock(mutex_);
    workers_.remove(&worker);
    --threads_;
    changed_.NotifyAll();
  }).detach();
}

void JudgeThreads::StartTakeover(std::function<void()> loop) {
  Start([this, loop = std::move(loop)] {
    if (!turn_.TakeOver()) return;
    {
      const MutexLock lock(mutex_);
      for (Worker* worker : workers_) worker->slow = worker->busy.For().count() > 0;
    }
    StartTakeover(loop);
    loop();
  });
}

void JudgeThreads::WaitForEnd() {
  MutexLock lock(mutex_);
  changed_.Wait(lock, [this]() PLUMB_REQUIRES(mutex_) { return threads_ == 0; });
}

void JudgeThreads::BeginWork(bool takeover, bool patient) {
  turn_.AllowTakeover(takeover, patient ? kSlowIfPatient : TurnLock::kSlow);
  mine_->slow = false;
  mine_->cpu_begun = CpuNs(CLOCK_THREAD_CPUTIME_ID);
  mine_->busy.Begin();
  turn_.Begin(&mine_->work);
}

bool JudgeThreads::EndWork() {
  mine_->busy.End();
  turn_.End(&mine_->work);
  return !mine_->work.slow;
}

// A single run must not wait for the threads that receive its evidence. Each slow thread ends with
// its current work, so its priority is never restored. A thread that waited for a processor has
// used little of one and keeps its priority; otherwise it would wait forever on a machine whose
// processors are all in use.
void JudgeThreads::LowerSlow() {
  const MutexLock lock(mutex_);
  for (Worker* worker : workers_) {
    if (worker == mine_ || !worker->slow || worker->gives_way) continue;
    constexpr auto kUsed = std::chrono::nanoseconds(TurnLock::kSlow).count();
    if (CpuNs(worker->cpu_clock) - worker->cpu_begun < kUsed) continue;
    worker->gives_way = true;
    (void)setpriority(PRIO_PROCESS, worker->thread, kSlowNice);
  }
}

std::chrono::nanoseconds JudgeThreads::LongestWork() const {
  const MutexLock lock(mutex_);
  std::chrono::nanoseconds longest{0};
  for (const Worker* worker : workers_) {
    const auto at = worker->busy.For();
    longest = std::max(longest, worker->slow ? at / kSharedBy : at);
  }
  return longest;
}

}  // namespace plumbline::server
