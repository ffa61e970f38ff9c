#include "audit/live/stop_signal.h"

#include <chrono>
#include <ctime>

namespace plumbline::audit {
namespace {

constexpr long kPollNanos = 50'000'000;

sigset_t EndingSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

EndingSignalsBlocked::EndingSignalsBlocked() {
  const sigset_t ending = EndingSignals();
  pthread_sigmask(SIG_BLOCK, &ending, &previous_);
}

EndingSignalsBlocked::~EndingSignalsBlocked() { pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }

StopSignal::StopSignal(double timeout_seconds, std::function<void()> on_stop)
    : on_stop_(std::move(on_stop)) {
  thread_ = std::thread([this, timeout_seconds] { Wait(timeout_seconds); });
}

StopSignal::~StopSignal() {
  done_ = true;
  thread_.join();
}

void StopSignal::Wait(double timeout_seconds) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const sigset_t ending = EndingSignals();
  const timespec poll{0, kPollNanos};
  while (!done_) {
    const bool signalled = sigtimedwait(&ending, nullptr, &poll) > 0;
    const double waited = std::chrono::duration<double>(Clock::now() - start).count();
    if (!signalled && (timeout_seconds <= 0 || waited < timeout_seconds)) continue;
    stopped_ = true;
    on_stop_();
    return;
  }
}

}  // namespace plumbline::audit
