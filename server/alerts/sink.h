// Where notifications go: one interface, three kinds.
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
  std::string detail;  // what went wrong, for people; no secrets
};

// An incident that a receiver was told of and that is not resolved.
struct OpenAlert {
  std::string fingerprint;
  std::string body;    // of the notification that told it
  bool quiet = false;  // acknowledged or silenced since
  std::string who;     // ... by whom and why
  std::string reason;
};

// Used by one thread, but for Cancel.
class AlertSink {
 public:
  virtual ~AlertSink() = default;
  virtual SendResult Send(const Notification& notification) = 0;

  // How often the receiver must be told again what is open, or it takes it for resolved; zero:
  // never. The first time at once.
  virtual std::chrono::nanoseconds refresh_period() const { return {}; }
  virtual SendResult Refresh(const std::vector<OpenAlert>&) { return {}; }

  // From any thread: what is under way ends soon, and so does all that follows.
  virtual void Cancel() = 0;
};

using UnixClock = std::function<int64_t()>;  // nanoseconds

// The sink of a route that was validated. Secrets are read from their files at each use.
std::unique_ptr<AlertSink> MakeSink(const AlertRoute& route, UnixClock clock);

}  // namespace plumbline::server
