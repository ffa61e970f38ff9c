// Calls a callback on Ctrl-C, SIGTERM or a deadline, on a separate thread.
#pragma once

#include <atomic>
#include <csignal>
#include <functional>
#include <thread>

namespace plumbline::audit {

// Blocks both signals during its lifetime. Create it before other threads start, because they
// inherit the mask.
class EndingSignalsBlocked {
 public:
  EndingSignalsBlocked();
  ~EndingSignalsBlocked();

 private:
  sigset_t previous_{};
};

// Waits for a blocked signal. Calls `on_stop` at most once.
class StopSignal {
 public:
  // If `timeout_seconds` is 0, there is no deadline.
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
