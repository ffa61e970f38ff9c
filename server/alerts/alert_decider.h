// Who has to be told what, from what they know and how an incident stands. Compares states instead
// of following changes: however many were missed, merged or repeated, the answer is the same.
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
  // `known`: incidents that opened at or before this position of the incident table and are
  // resolved by now, untold, are old news.
  AlertDecider(const AlertConfig& config, std::map<AlertLog::ToldKey, ReceiverState> told,
               uint64_t known)
      : config_(config), told_(std::move(told)), known_(known) {}

  // What has to be told or remembered now. An incident that was merged passes on what is known of
  // it to the one it was merged into: nobody is told of that but a receiver that holds alerts,
  // unless the level is higher there.
  std::vector<AlertDecision> Decide(const IncidentTable::Change& change,
                                    const IncidentTable& incident_table) const;
  // Whether one of those would say that the incident is open.
  static bool Opens(const std::vector<AlertDecision>& decisions);
  // They were kept.
  void Apply(const std::vector<AlertDecision>& decisions);

  // What receivers were told of incidents that the incident table does not have, or by routes that
  // are configured no more: forgotten. What they were told of a finding by itself, by a server that
  // had one incident a finding, counts for its incident.
  std::vector<AlertDecision> Stale(const IncidentTable& incident_table) const;

 private:
  const ReceiverState* Find(const std::string& route, const std::string& fingerprint) const;
  bool AnybodyHeardOf(const std::string& fingerprint) const;
  std::optional<AlertEvent> EventFor(const AlertRoute& route, const ReceiverState* told,
                                     const IncidentTable::Change& change) const;
  // What one route knows, of an incident and of those that were merged into it.
  struct Known {
    const ReceiverState* own = nullptr;
    std::vector<std::pair<std::string, const ReceiverState*>> others;  // that fire
    v1::Level level = v1::LEVEL_UNSPECIFIED;                           // the highest of the others

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
  std::map<AlertLog::ToldKey, ReceiverState> told_;
  const uint64_t known_;
};

}  // namespace plumbline::server
