// Delivers the waiting alerts of one route, on a separate thread: in order, within the route's
// limit, with growing pauses between tries.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "server/alerts/alert_log.h"
#include "server/alerts/sink.h"
#include "server/settings/alert_config.h"

namespace plumbline::server {

struct SenderTimes {
  std::chrono::nanoseconds first_pause = std::chrono::milliseconds(500);
  std::chrono::nanoseconds longest_pause = std::chrono::seconds(60);
  std::chrono::nanoseconds window = std::chrono::seconds(60);  // of the limit "a minute"
  // to deliver waiting alerts when it stops
  std::chrono::nanoseconds drain = std::chrono::seconds(2);
};

// Thread-safe; each value only grows.
struct AlertCounts {
  static constexpr std::array<double, 12> kSeconds = {0.1, 0.25, 0.5, 1,   2,    5,
                                                      10,  30,   60,  300, 3600, 86400};
  std::atomic<uint64_t> delivered{0};
  std::atomic<uint64_t> failed_tries{0};
  std::atomic<uint64_t> given_up{0};   // refused by the receiver, or too old
  std::atomic<uint64_t> held_back{0};  // reported in a summary instead
  std::atomic<uint64_t> log_failures{0};
  // Time from the decision to the delivery: the number of deliveries that took at most kSeconds,
  // and the sum of the times.
  std::array<std::atomic<uint64_t>, kSeconds.size()> within{};
  std::atomic<uint64_t> total_ms{0};
};

// Thread-safe.
class RouteSender {
 public:
  // `log` must outlive it.
  RouteSender(const AlertRoute& route, const std::string& page, AlertLog* log,
              std::unique_ptr<AlertSink> sink, UnixClock clock, const SenderTimes& times);
  ~RouteSender();

  // Wakes the thread because an alert waits. `refresh`: open alerts must be sent to an Alertmanager
  // again.
  void Wake(bool refresh);
  // Tries to deliver for a short time, and stops. To stop several at the same time, call BeginStop
  // of all, then Cancel of all.
  void Stop();
  void BeginStop();
  void Cancel();  // after that time

  const AlertRoute& route() const { return route_; }
  const AlertCounts& counts() const { return counts_; }

 private:
  using Clock = std::chrono::steady_clock;

  void Loop();
  Clock::time_point Work(bool stopping);
  Clock::time_point Deliver(WaitingAlert alert);
  Clock::time_point HoldBack();
  Clock::time_point Idle(bool stopping);
  Clock::time_point Pause();
  bool Limited() const;
  void Count(int64_t decided_unix_ns);
  bool Kept(const absl::Status& status);

  const AlertRoute route_;
  const std::string page_;
  AlertLog* const log_;
  const std::unique_ptr<AlertSink> sink_;
  const UnixClock clock_;
  const SenderTimes times_;
  AlertCounts counts_;

  // Used only by the thread.
  std::chrono::nanoseconds pause_{0};
  Clock::time_point paused_until_{};
  Clock::time_point window_end_{};
  int64_t sent_in_window_ = 0;
  bool held_ = false;
  Clock::time_point refresh_due_{};
  std::set<int64_t> delivered_;  // rows whose delivery is not recorded in the log yet
  Clock::time_point complained_{};

  Mutex mutex_;
  CondVar wake_;
  bool woken_ PLUMB_GUARDED_BY(mutex_) = true;
  bool refresh_ PLUMB_GUARDED_BY(mutex_) = false;
  bool stopping_ PLUMB_GUARDED_BY(mutex_) = false;
  Clock::time_point stop_by_ PLUMB_GUARDED_BY(mutex_) = Clock::time_point::max();
  bool over_ PLUMB_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace plumbline::server
