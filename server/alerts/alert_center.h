// Turns incidents into notifications. It follows the incident table, so that the judging thread
// never waits for it. One thread decides which notifications must be sent, and stores them
// (alert_log.h); one thread per route delivers it.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "plumbline/v1/query.pb.h"
#include "server/alerts/alert_decider.h"
#include "server/alerts/alert_log.h"
#include "server/alerts/route_sender.h"
#include "server/alerts/sink.h"
#include "server/incidents/incident_table.h"
#include "server/process/confirmed_clock.h"
#include "server/settings/alert_config.h"

namespace plumbline::server {

struct AlertOptions {
  AlertConfig config;
  std::string path;  // path of the log; empty: the log is lost with the process
  // Returns false while the incident table is being restored from a journal. Then nothing is
  // decided, because these changes are in the past. Called on any thread. Empty: always true.
  std::function<bool()> settled;
  UnixClock clock;  // empty: the system's clock
  SenderTimes times;
  // Makes a route's sink; empty: MakeSink.
  std::function<std::unique_ptr<AlertSink>(const AlertRoute&)> make_sink;
};

// Thread-safe.
class AlertCenter {
 public:
  struct Route {
    std::string name;
    AlertRoute::Sink sink;
    const AlertCounts* counts;
    AlertLog::Waiting waiting;
  };

  // Starts the threads. The configuration must be valid. Returns ResourceExhausted if the log
  // cannot be written. `incident_table` must outlive it.
  static absl::StatusOr<std::unique_ptr<AlertCenter>> Start(AlertOptions options,
                                                            IncidentTable* incident_table);
  ~AlertCenter();

  // Decides all changes, tries to deliver them for a short time, and stops.
  void Stop();

  std::vector<Route> Routes() const;
  // True if a route sends incidents with this finding.
  bool Routed(const v1::Finding& finding) const;
  // Returns the notifications of an incident and their results.
  absl::StatusOr<std::vector<AlertDelivery>> History(const std::string& fingerprint) const;
  // Returns the same for queries; empty if the log cannot be read.
  std::vector<v1::AlertDelivery> Deliveries(const std::string& fingerprint) const;

 private:
  using Clock = std::chrono::steady_clock;

  AlertCenter(AlertOptions options, IncidentTable* incident_table)
      : options_(std::move(options)), incident_table_(incident_table) {}
  absl::Status Init();
  void Loop();
  bool WaitSettled();
  absl::Status TakeUp();
  void Look();
  Clock::time_point DecideDue(bool all);
  bool StillGathers(const IncidentTable::Change& change,
                    const std::vector<AlertDecision>& decisions) const;
  bool Keep(const std::vector<AlertDecision>& decisions);
  bool WaitForNews(Clock::time_point until);

  AlertOptions options_;
  IncidentTable* const incident_table_;
  std::unique_ptr<AlertLog> log_;
  std::vector<std::unique_ptr<RouteSender>> senders_;

  // Used only by the deciding thread.
  std::unique_ptr<AlertDecider> decider_;
  uint64_t cursor_ = 0;    // the incident table was read up to here
  uint64_t position_ = 0;  // ... and decided
  struct Pending {
    Clock::time_point due;     // earliest time
    Clock::time_point latest;  // latest time, whether its step is closed or not
  };
  std::map<std::string, Pending> pending_;  // by fingerprint
  ConfirmedClock retention_clock_;
  Clock::time_point next_retention_{};
  bool complained_ = false;

  Mutex mutex_;
  CondVar wake_;
  bool changed_ PLUMB_GUARDED_BY(mutex_) = false;
  bool stopping_ PLUMB_GUARDED_BY(mutex_) = false;
  int subscription_ = 0;
  std::thread thread_;
};

}  // namespace plumbline::server
