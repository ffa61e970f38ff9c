// What plumbd tells systemd, where it runs as a unit of Type=notify: that it listens, that it still
// gets on, that it stops (sd_notify(3), over the socket that NOTIFY_SOCKET names). Elsewhere:
// nothing.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace plumbline::server {

// Thread-safe once made.
class ServiceManager {
 public:
  // From the environment, which it clears: the commands that we start are no part of the service.
  // Before any thread starts.
  static ServiceManager FromEnvironment();

  void Ready() const { Say("READY=1"); }
  void Stopping() const { Say("STOPPING=1"); }
  void GetsOn() const { Say("WATCHDOG=1"); }
  // It does not listen yet and is to be waited for.
  void StillStarting() const { Say("EXTEND_TIMEOUT_USEC=30000000"); }
  // Of `systemctl status`; one line.
  void Status(std::string_view text) const;

  // How often GetsOn must be said, half of what the unit allows; 0: nobody waits for it.
  std::chrono::microseconds watchdog() const { return watchdog_; }

 private:
  void Say(std::string_view text) const;

  std::string address_;  // empty: nobody listens
  std::chrono::microseconds watchdog_{0};
};

}  // namespace plumbline::server
