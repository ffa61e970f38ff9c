// Sends notifications: one interface, three kinds.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "plumbline/v1/finding.pb.h"
#include "server/alerts/notification.h"
#include "server/settings/alert_config.h"

namespace plumbline::server {

struct SendResult {
  enum class Kind {
    kDelivered,
    kTryAgain,  // it may work later
    kRefused,   // it never will
  };
  Kind kind = Kind::kDelivered;
  std::string detail;  // the error, for people; no secrets
};

// An unresolved incident that was reported to a receiver.
struct OpenAlert {
  std::string fingerprint;
  std::string body;    // of the notification that reported it
  bool quiet = false;  // acknowledged or silenced since
  std::string who;     // name of the person and the reason
  std::string reason;
};

// Used by one thread, except Cancel.
class AlertSink {
 public:
  virtual ~AlertSink() = default;
  virtual SendResult Send(const Notification& notification) = 0;

  // Returns how often open alerts must be sent again, because the receiver otherwise resolves them;
  // zero: never. The first time is at once.
  virtual std::chrono::nanoseconds refresh_period() const { return {}; }
  virtual SendResult Refresh(const std::vector<OpenAlert>&) { return {}; }

  // May be called from any thread: operations in progress and later operations end soon.
  virtual void Cancel() = 0;
};

using UnixClock = std::function<int64_t()>;  // nanoseconds

// Makes the sink of a validated route. Secrets are read from their files at each use.
std::unique_ptr<AlertSink> MakeSink(const AlertRoute& route, UnixClock clock);

}  // namespace plumbline::server
