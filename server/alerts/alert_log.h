// Stores decided notifications and their deliveries: DATA/alerts.sqlite. A decision is stored
// before it is sent, so that a killed process loses none. Deliveries are stored too, so that a
// restart repeats none (except one that was in flight, which is sent again with the same id).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "plumbline/v1/finding.pb.h"
#include "server/alerts/notification.h"
#include "server/alerts/sink.h"
#include "server/store/database.h"

namespace plumbline::server {

// The last state of an incident that a route's receiver got.
struct ReceiverState {
  bool firing = false;  // false: the receiver was notified that the incident is resolved
  bool quiet = false;   // a person has acknowledged or silenced it since
  v1::Level level = v1::LEVEL_UNSPECIFIED;
  uint64_t revision = 0;
  std::string who, reason;  // of the acknowledgement or silence
  std::string body;         // of the last notification, while firing
};

// A change of one receiver's state, and the notification for it, if there is one.
struct AlertDecision {
  std::string route;
  std::string fingerprint;
  ReceiverState reported;
  std::optional<Notification> notification;
};

// A notification that waits for delivery.
struct WaitingAlert {
  int64_t row = 0;
  Notification notification;
  int64_t decided_unix_ns = 0;
  uint32_t tries = 0;
};

// One line of an incident's history of alerts.
struct AlertDelivery {
  enum class State { kWaiting, kDelivered, kGivenUp, kHeldBack, kSummarised };
  std::string route;
  AlertEvent event = AlertEvent::kTest;
  uint64_t revision = 0;
  State state = State::kWaiting;
  uint32_t tries = 0;
  int64_t decided_unix_ns = 0;
  int64_t done_unix_ns = 0;  // 0: not yet
  std::string problem;       // of the last try that failed
};
const char* StateWord(AlertDelivery::State state);

// Thread-safe. Errors name the file; a failed call stored nothing.
class AlertLog {
 public:
  // Opens the log; an empty path: in memory. A damaged file is renamed and a new one begun: after
  // that, open incidents are reported again. Returns ResourceExhausted if it cannot be written.
  static absl::StatusOr<std::unique_ptr<AlertLog>> Open(const std::string& path);

  using ReportedKey = std::pair<std::string, std::string>;  // route, fingerprint
  absl::StatusOr<std::map<ReportedKey, ReceiverState>> AllReported();
  // Returns the incident table, and its position up to which everything is decided.
  absl::StatusOr<std::pair<std::string, uint64_t>> Position();
  // Stores all of it or nothing.
  absl::Status Keep(const std::vector<AlertDecision>& decisions, const std::string& incident_table,
                    uint64_t position, int64_t unix_ns);
  // Forgets the receivers' states, which belong to another incident table.
  absl::Status Forget();

  // Returns the oldest alert that waits for delivery to a route.
  absl::StatusOr<std::optional<WaitingAlert>> NextWaiting(const std::string& route);
  absl::Status Tried(int64_t row, const std::string& problem);
  absl::Status Done(int64_t row, AlertDelivery::State state, int64_t unix_ns,
                    const std::string& problem);

  // Sets all waiting alerts aside until Summarise. Returns how many there were.
  absl::StatusOr<uint64_t> HoldBack(const std::string& route);
  absl::StatusOr<std::vector<Notification>> HeldBack(const std::string& route);
  // Replaces the alerts that were set aside by the summary, which waits for delivery.
  absl::Status Summarise(const std::string& route, const Notification& summary, int64_t unix_ns);

  absl::StatusOr<std::vector<OpenAlert>> OpenOf(const std::string& route);
  struct Waiting {
    uint64_t count = 0;
    int64_t oldest_unix_ns = 0;
  };
  absl::StatusOr<Waiting> WaitingOf(const std::string& route);
  absl::StatusOr<std::vector<AlertDelivery>> History(const std::string& fingerprint);

  // Gives up the waiting alerts of all other routes.
  absl::Status GiveUpOthers(const std::set<std::string>& routes, int64_t unix_ns);
  // Deletes finished alerts that are older.
  absl::Status Retain(int64_t before_unix_ns);

 private:
  explicit AlertLog(std::unique_ptr<Database> database) : database_(std::move(database)) {}
  absl::Status Prepare() PLUMB_REQUIRES(mutex_);
  absl::Status InTransaction(const std::function<absl::Status()>& work) PLUMB_REQUIRES(mutex_);
  absl::Status Put(const AlertDecision& decision, int64_t unix_ns) PLUMB_REQUIRES(mutex_);
  absl::Status Insert(const std::string& route, const Notification& n, int64_t unix_ns)
      PLUMB_REQUIRES(mutex_);

  Mutex mutex_;
  std::unique_ptr<Database> database_ PLUMB_GUARDED_BY(mutex_);
  Statement all_reported_ PLUMB_GUARDED_BY(mutex_);
  Statement put_reported_ PLUMB_GUARDED_BY(mutex_);
  Statement insert_ PLUMB_GUARDED_BY(mutex_);
  Statement next_ PLUMB_GUARDED_BY(mutex_);
  Statement tried_ PLUMB_GUARDED_BY(mutex_);
  Statement done_ PLUMB_GUARDED_BY(mutex_);
  Statement hold_ PLUMB_GUARDED_BY(mutex_);
  Statement held_ PLUMB_GUARDED_BY(mutex_);
  Statement summarised_ PLUMB_GUARDED_BY(mutex_);
  Statement open_ PLUMB_GUARDED_BY(mutex_);
  Statement waiting_ PLUMB_GUARDED_BY(mutex_);
  Statement history_ PLUMB_GUARDED_BY(mutex_);
  Statement put_meta_ PLUMB_GUARDED_BY(mutex_);
  Statement get_meta_ PLUMB_GUARDED_BY(mutex_);
  Statement unfinished_ PLUMB_GUARDED_BY(mutex_);
  Statement give_up_ PLUMB_GUARDED_BY(mutex_);
  Statement retain_ PLUMB_GUARDED_BY(mutex_);
};

}  // namespace plumbline::server
