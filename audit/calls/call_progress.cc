#include "audit/calls/call_progress.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "audit/calls/process_calls.h"
#include "base/clock.h"

namespace plumbline::audit {
namespace {

constexpr int kMilliseconds = 1000;

}  // namespace

CallProgress::CallProgress(std::string folder)
    : folder_(std::move(folder)),
      stop_(eventfd(0, EFD_CLOEXEC)),
      changed_ns_(static_cast<int64_t>(MonotonicNs())) {
  // Signals are for the thread that forwards them.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  if (stop_ >= 0) thread_ = std::thread(&CallProgress::Run, this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

CallProgress::~CallProgress() {
  if (stop_ < 0) return;
  eventfd_write(stop_, 1);
  thread_.join();
  close(stop_);
}

double CallProgress::SecondsSinceLast() const {
  return static_cast<double>(static_cast<int64_t>(MonotonicNs()) - changed_ns_.load()) / 1e9;
}

void CallProgress::Run() {
  uint64_t calls = 0;
  pollfd stopped{stop_, POLLIN, 0};
  while (poll(&stopped, 1, kMilliseconds) == 0) {
    const uint64_t now = CollectivesOf(ReadTables(folder_));
    if (now == calls) continue;
    calls = now;
    changed_ns_.store(static_cast<int64_t>(MonotonicNs()));
  }
}

}  // namespace plumbline::audit
