// Decides which notification each receiver must get, from the receiver's last state and the state
// of an incident. Compares states, not changes, so that missed, merged or repeated changes make no
// difference.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "server/alerts/alert_log.h"
#include "server/incidents/incident_table.h"
#include "server/settings/alert_config.h"

namespace plumbline::server {

// Not thread-safe.
class AlertDecider {
 public:
  // `known`: incidents that opened at or before this position of the incident table, and are
  // resolved and unreported by now, are ignored.
  AlertDecider(const AlertConfig& config, std::map<AlertLog::ReportedKey, ReceiverState> reported,
               uint64_t known)
      : config_(config), reported_(std::move(reported)), known_(known) {}

  // Returns the notifications that must be sent or recorded now. If an incident was merged, it
  // passes its receivers' states to the incident into which it was merged. Only receivers that hold
  // alerts are notified of this, unless the level is higher there.
  std::vector<AlertDecision> Decide(const IncidentTable::Change& change,
                                    const IncidentTable& incident_table) const;
  // Returns true if one of the decisions reports the incident as open.
  static bool Opens(const std::vector<AlertDecision>& decisions);
  // Records decisions that were stored.
  void Apply(const std::vector<AlertDecision>& decisions);

  // Returns decisions that forget the states of incidents which the incident table does not have,
  // and of routes that are no longer configured. States of a single finding, from a server that had
  // one incident per finding, count for its incident.
  std::vector<AlertDecision> Stale(const IncidentTable& incident_table) const;

 private:
  const ReceiverState* Find(const std::string& route, const std::string& fingerprint) const;
  bool AnybodyHeardOf(const std::string& fingerprint) const;
  std::optional<AlertEvent> EventFor(const AlertRoute& route, const ReceiverState* reported,
                                     const IncidentTable::Change& change) const;
  // The states that one route has of an incident and of those merged into it.
  struct Known {
    const ReceiverState* own = nullptr;
    std::vector<std::pair<std::string, const ReceiverState*>> others;  // those that fire
    v1::Level level = v1::LEVEL_UNSPECIFIED;  // the highest level of the others

    bool firing() const { return own != nullptr && own->firing; }
    std::vector<std::string> Bodies() const;
  };
  Known KnownTo(const AlertRoute& route, const std::string& fingerprint,
                const std::vector<std::string>& merged) const;
  std::optional<AlertEvent> EventFor(const AlertRoute& route, const Known& known,
                                     const IncidentTable::Change& change) const;
  void DecideFor(const AlertRoute& route, const IncidentTable::Change& change,
                 const std::vector<std::string>& merged, std::vector<AlertDecision>* out) const;

  const AlertConfig config_;
  std::map<AlertLog::ReportedKey, ReceiverState> reported_;
  const uint64_t known_;
};

}  // namespace plumbline::server
