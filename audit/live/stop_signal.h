// Ctrl-C, SIGTERM or a deadline as a callback, on a thread of its own.
#pragma once

#include <atomic>
#include <csignal>
#include <functional>
#include <thread>

namespace plumbline::audit {

// Blocks both signals while it lives. Create before other threads start, which inherit that.
class EndingSignalsBlocked {
 public:
  EndingSignalsBlocked();
  ~EndingSignalsBlocked();

 private:
  sigset_t previous_{};
};

// Waits for a blocked signal. `on_stop` runs once at most.
class StopSignal {
 public:
  // `timeout_seconds` 0: no deadline.
  StopSignal(double timeout_seconds, std::function<void()> on_stop);
  ~StopSignal();

  bool stopped() const { return stopped_; }

 private:
  void Wait(double timeout_seconds);

  const std::function<void()> on_stop_;
  std::atomic<bool> stopped_{false};
  std::atomic<bool> done_{false};
  std::thread thread_;
};

}  // namespace plumbline::audit
