#include "agent/core/shared/threads.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace plumbline::agent {
namespace {

// Gives the calling thread the batch policy: when it wakes, it does not preempt a running thread.
// A collective whose ranks share a host waits for the slowest of them. The thread still gets its
// share of the processor. With a lower priority (nice) it could not keep up if there are more
// running threads than cores, and the ring would overflow.
void RunAsBatch() {
  const sched_param parameters{};
  pthread_setschedparam(pthread_self(), SCHED_BATCH, &parameters);
}

}  // namespace

struct SignalsBlocked::Saved {
  sigset_t mask;
};

SignalsBlocked::SignalsBlocked() : saved_(std::make_unique<Saved>()) {
  sigset_t all;
  sigfillset(&all);
  for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP}) sigdelset(&all, signal);
  pthread_sigmask(SIG_BLOCK, &all, &saved_->mask);
}

SignalsBlocked::~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &saved_->mask, nullptr); }

bool DetachedThread::Start(const std::string& name, std::function<void()> body) {
  const SignalsBlocked blocked;
  auto end = std::make_shared<End>();
  try {
    std::thread thread([end, body = std::move(body)]() mutable {
      RunAsBatch();
      {
        const MutexLock lock(end->mutex);
        pthread_getcpuclockid(pthread_self(), &end->cpu_clock);
        end->running = true;
      }
      body();
      body = nullptr;  // destroys the thread's objects before its end is reported
      const MutexLock lock(end->mutex);
      end->ended = true;
      end->running = false;
      end->changed.NotifyAll();
    });
    pthread_setname_np(thread.native_handle(), name.substr(0, 15).c_str());
    thread.detach();
  } catch (const std::system_error&) {
    return false;
  }
  end_ = std::move(end);
  return true;
}

uint64_t DetachedThread::CpuNs() const {
  if (end_ == nullptr) return 0;
  const MutexLock lock(end_->mutex);
  timespec used{};
  if (!end_->running || clock_gettime(end_->cpu_clock, &used) != 0) return 0;
  return static_cast<uint64_t>(used.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(used.tv_nsec);
}

bool DetachedThread::WaitEnded(Clock::time_point deadline) const {
  if (end_ == nullptr) return true;
  MutexLock lock(end_->mutex);
  return end_->changed.WaitUntil(lock, deadline,
                                 [&]() PLUMB_REQUIRES(end_->mutex) { return end_->ended; });
}

}  // namespace plumbline::agent
