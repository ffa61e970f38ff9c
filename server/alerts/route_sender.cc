#include "server/alerts/route_sender.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/process/log.h"

namespace plumbline::server {
namespace {

constexpr std::chrono::seconds kLogPause{1};  // after the log could not be read or written
constexpr std::chrono::seconds kComplainEvery{60};

}  // namespace

RouteSender::RouteSender(const AlertRoute& route, const std::string& page, AlertLog* log,
                         std::unique_ptr<AlertSink> sink, UnixClock clock, const SenderTimes& times)
    : route_(route),
      page_(page),
      log_(log),
      sink_(std::move(sink)),
      clock_(std::move(clock)),
      times_(times) {
  const auto held = log_->HeldBack(route_.name);
  held_ = held.ok() && !held->empty();  // set aside by an earlier process, whose window is over
  thread_ = std::thread([this] { Loop(); });
}

RouteSender::~RouteSender() { Stop(); }

void RouteSender::Wake(bool refresh) {
  const MutexLock lock(mutex_);
  woken_ = true;
  refresh_ = refresh_ || refresh;
  wake_.NotifyAll();
}

void RouteSender::BeginStop() {
  const MutexLock lock(mutex_);
  if (stopping_) return;
  stopping_ = true;
  stop_by_ = Clock::now() + times_.drain;
  wake_.NotifyAll();
}

void RouteSender::Cancel() {
  {
    MutexLock lock(mutex_);
    wake_.WaitUntil(lock, stop_by_, [this]() PLUMB_REQUIRES(mutex_) { return over_; });
  }
  sink_->Cancel();
}

void RouteSender::Stop() {
  BeginStop();
  Cancel();
  if (thread_.joinable()) thread_.join();
}

void RouteSender::Loop() {
  for (;;) {
    bool stopping = false;
    {
      const MutexLock lock(mutex_);
      stopping = stopping_;
      woken_ = false;
      if (std::exchange(refresh_, false)) refresh_due_ = {};
    }
    const Clock::time_point next = Work(stopping);
    MutexLock lock(mutex_);
    // While stopping, alerts that cannot be sent at once stay in the log.
    if (stopping && (next > Clock::now() || Clock::now() >= stop_by_)) break;
    wake_.WaitUntil(lock, next, [this]() PLUMB_REQUIRES(mutex_) { return woken_ || stopping_; });
  }
  const MutexLock lock(mutex_);
  over_ = true;
  wake_.NotifyAll();
}

// Does one step. Returns when the next one is due, unless it is woken.
RouteSender::Clock::time_point RouteSender::Work(bool stopping) {
  const Clock::time_point now = Clock::now();
  if (now < paused_until_ && !stopping) return paused_until_;
  if (held_ && (now >= window_end_ || stopping)) {
    const auto held = log_->HeldBack(route_.name);
    if (!Kept(held.status())) return now + kLogPause;
    const std::string id = absl::StrCat("summary-", route_.name, "-", clock_());
    if (!held->empty() &&
        !Kept(log_->Summarise(route_.name, MakeSummary(id, *held, page_, route_.name, clock_()),
                              clock_()))) {
      return now + kLogPause;
    }
    held_ = false;
    window_end_ = now;  // the summary is the first alert of a new window
  }
  auto waiting = log_->NextWaiting(route_.name);
  if (!Kept(waiting.status())) return now + kLogPause;
  if (!*waiting) return Idle(stopping);
  if (delivered_.contains((*waiting)->row)) {  // delivered, but not recorded in the log yet
    if (!Kept(log_->Done((*waiting)->row, AlertDelivery::State::kDelivered, clock_(), "")))
      return now + kLogPause;
    delivered_.erase((*waiting)->row);
    return now;
  }
  if (Limited() && !stopping) return HoldBack();
  return Deliver(std::move(**waiting));
}

bool RouteSender::Limited() const {
  return route_.most_a_minute > 0 && sink_->refresh_period().count() == 0 &&
         Clock::now() < window_end_ && sent_in_window_ >= route_.most_a_minute;
}

RouteSender::Clock::time_point RouteSender::HoldBack() {
  const auto count = log_->HoldBack(route_.name);
  if (!Kept(count.status())) return Clock::now() + kLogPause;
  counts_.held_back += *count;
  held_ = true;
  return window_end_;
}

RouteSender::Clock::time_point RouteSender::Deliver(WaitingAlert alert) {
  const SendResult result = sink_->Send(alert.notification);
  const Clock::time_point now = Clock::now();
  if (result.kind == SendResult::Kind::kDelivered) {
    ++counts_.delivered;
    Count(alert.decided_unix_ns);
    pause_ = {};
    if (now >= window_end_) {
      window_end_ = now + times_.window;
      sent_in_window_ = 0;
    }
    ++sent_in_window_;
    if (Kept(log_->Done(alert.row, AlertDelivery::State::kDelivered, clock_(), ""))) return now;
    delivered_.insert(alert.row);
    return now + kLogPause;
  }
  ++counts_.failed_tries;
  const double hours = static_cast<double>(clock_() - alert.decided_unix_ns) / 3.6e12;
  if (result.kind == SendResult::Kind::kRefused || hours >= route_.retry_hours) {
    ++counts_.given_up;
    LogError("alerts: route {:?}: {} is dropped after {} attempts: {}", route_.name,
             alert.notification.id, alert.tries + 1, result.detail);
    Kept(log_->Done(alert.row, AlertDelivery::State::kGivenUp, clock_(), result.detail));
    return now;
  }
  if (alert.tries == 0) {
    LogWarning("alerts: route {:?}: {} will be retried: {}", route_.name, alert.notification.id,
               result.detail);
  }
  Kept(log_->Tried(alert.row, result.detail));
  return Pause();
}

RouteSender::Clock::time_point RouteSender::Pause() {
  pause_ = std::clamp(2 * pause_, times_.first_pause, times_.longest_pause);
  paused_until_ = Clock::now() + pause_;
  return paused_until_;
}

// No alert waits, so sends the open alerts to an Alertmanager again.
RouteSender::Clock::time_point RouteSender::Idle(bool stopping) {
  const Clock::time_point now = Clock::now();
  const auto period = sink_->refresh_period();
  const Clock::time_point never = now + std::chrono::hours(1);
  if (period.count() == 0 || stopping) return held_ ? window_end_ : never;
  if (now < refresh_due_) return refresh_due_;
  const auto open = log_->OpenOf(route_.name);
  if (!Kept(open.status())) return now + kLogPause;
  const SendResult result = sink_->Refresh(*open);
  if (result.kind != SendResult::Kind::kDelivered) {
    ++counts_.failed_tries;
    if (pause_.count() == 0) {
      LogWarning("alerts: route {:?}: open incidents cannot be notified again: {}", route_.name,
                 result.detail);
    }
    return Pause();
  }
  pause_ = {};
  refresh_due_ = now + period;
  return refresh_due_;
}

void RouteSender::Count(int64_t decided_unix_ns) {
  const double seconds = std::max(0.0, static_cast<double>(clock_() - decided_unix_ns) / 1e9);
  counts_.total_ms += static_cast<uint64_t>(seconds * 1e3);
  for (size_t i = 0; i < AlertCounts::kSeconds.size(); ++i) {
    if (seconds <= AlertCounts::kSeconds[i]) ++counts_.within[i];
  }
}

// Returns false, and counts a failure, if the log failed.
bool RouteSender::Kept(const absl::Status& status) {
  if (status.ok()) return true;
  ++counts_.log_failures;
  const Clock::time_point now = Clock::now();
  if (now >= complained_) {
    LogError("alerts: route {:?}: {}", route_.name, std::string(status.message()));
    complained_ = now + kComplainEvery;
  }
  return false;
}

}  // namespace plumbline::server
