// Notifies systemd, if plumbd runs as a unit of Type=notify: that it listens, makes progress, or
// stops (sd_notify(3), through the socket in NOTIFY_SOCKET). Otherwise does nothing.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace plumbline::server {

// Thread-safe once made.
class ServiceManager {
 public:
  // Reads the environment and clears it, because commands that we start do not belong to the
  // service. Call before any thread starts.
  static ServiceManager FromEnvironment();

  void Ready() const { Report("READY=1"); }
  void Stopping() const { Report("STOPPING=1"); }
  void GetsOn() const { Report("WATCHDOG=1"); }
  // Extends the start timeout: plumbd does not listen yet.
  void StillStarting() const { Report("EXTEND_TIMEOUT_USEC=30000000"); }
  // Sets the line in `systemctl status`.
  void Status(std::string_view text) const;

  // Returns the period in which GetsOn must be called: half of the unit's limit; 0: there is no
  // watchdog.
  std::chrono::microseconds watchdog() const { return watchdog_; }

 private:
  void Report(std::string_view text) const;

  std::string address_;  // empty: no service manager
  std::chrono::microseconds watchdog_{0};
};

}  // namespace plumbline::server
