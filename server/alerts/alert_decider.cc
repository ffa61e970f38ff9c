#include "server/alerts/alert_decider.h"

#include <algorithm>
#include <utility>

#include "rules/words/hide_ids.h"

namespace plumbline::server {
namespace {

bool IsQuiet(const IncidentTable::Change& change) {
  return change.incident.state() == v1::Incident::STATE_ACKNOWLEDGED ||
         change.incident.state() == v1::Incident::STATE_SILENCED;
}

}  // namespace

const ReceiverState* AlertDecider::Find(const std::string& route,
                                        const std::string& fingerprint) const {
  const auto found = reported_.find({route, fingerprint});
  return found == reported_.end() ? nullptr : &found->second;
}

std::optional<AlertEvent> AlertDecider::EventFor(const AlertRoute& route,
                                                 const ReceiverState* reported,
                                                 const IncidentTable::Change& change) const {
  const v1::Finding& finding = change.incident.finding();
  const bool firing = reported != nullptr && reported->firing;
  switch (change.incident.state()) {
    case v1::Incident::STATE_OPEN:
      if (!route.Matches(finding)) return std::nullopt;
      if (!firing) return reported == nullptr ? AlertEvent::kOpened : AlertEvent::kReturned;
      if (finding.level() > reported->level) return AlertEvent::kEscalated;
      if (reported->quiet) return AlertEvent::kReopened;
      return std::nullopt;
    case v1::Incident::STATE_RESOLVED:
      if (firing) return AlertEvent::kResolved;
      // The incident opened and was resolved before it was reported.
      if (reported == nullptr && change.opened_at > known_ && route.Matches(finding))
        return AlertEvent::kResolved;
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

// Includes the incidents that were merged into this one, because it inherits their state.
std::optional<AlertEvent> AlertDecider::EventFor(const AlertRoute& route, const Known& known,
                                                 const IncidentTable::Change& change) const {
  const auto event = EventFor(route, known.own, change);
  if (known.others.empty()) return event;
  const bool begins = event == AlertEvent::kOpened || event == AlertEvent::kReturned;
  if (begins) {
    return change.incident.finding().level() > known.level ? AlertEvent::kEscalated
                                                           : AlertEvent::kMoved;
  }
  if (event) return event;
  // Only the alerts of the merged incidents end.
  return known.firing() ? AlertEvent::kMoved : AlertEvent::kResolved;
}

AlertDecider::Known AlertDecider::KnownTo(const AlertRoute& route, const std::string& fingerprint,
                                          const std::vector<std::string>& merged) const {
  Known known;
  known.own = Find(route.name, fingerprint);
  for (const std::string& other : merged) {
    const ReceiverState* reported = Find(route.name, other);
    if (reported == nullptr || !reported->firing) continue;
    known.others.emplace_back(other, reported);
    known.level = std::max(known.level, reported->level);
  }
  return known;
}

std::vector<std::string> AlertDecider::Known::Bodies() const {
  std::vector<std::string> bodies;
  if (firing()) bodies.push_back(own->body);
  for (const auto& [fingerprint, reported] : others) bodies.push_back(reported->body);
  return bodies;
}

bool AlertDecider::AnybodyHeardOf(const std::string& fingerprint) const {
  return std::any_of(config_.routes.begin(), config_.routes.end(), [&](const AlertRoute& route) {
    const ReceiverState* reported = Find(route.name, fingerprint);
    return reported != nullptr && reported->firing;
  });
}

std::vector<AlertDecision> AlertDecider::Decide(const IncidentTable::Change& change,
                                                const IncidentTable& incident_table) const {
  if (!change.status.merged_into().empty()) {
    if (!AnybodyHeardOf(change.status.fingerprint())) return {};
    const auto into = incident_table.Get(change.status.merged_into());
    return into.ok() ? Decide(*into, incident_table) : std::vector<AlertDecision>();
  }
  // Include incidents that were merged into the merged ones.
  std::vector<std::string> merged(change.status.absorbed().begin(), change.status.absorbed().end());
  for (size_t i = 0; i < merged.size(); ++i) {
    const auto other = incident_table.Get(merged[i]);
    if (!other.ok()) continue;
    merged.insert(merged.end(), other->status.absorbed().begin(), other->status.absorbed().end());
  }
  std::vector<AlertDecision> out;
  for (const AlertRoute& route : config_.routes) DecideFor(route, change, merged, &out);
  return out;
}

void AlertDecider::DecideFor(const AlertRoute& route, const IncidentTable::Change& change,
                             const std::vector<std::string>& merged,
                             std::vector<AlertDecision>* out) const {
  const v1::Finding& finding = change.incident.finding();
  const Known known = KnownTo(route, change.status.fingerprint(), merged);
  const bool holds_alerts = route.sink() == AlertRoute::Sink::kAlertmanager;
  AlertDecision d;
  d.route = route.name;
  d.fingerprint = change.status.fingerprint();
  if (known.own != nullptr) d.reported = *known.own;
  const bool quiet = IsQuiet(change);
  const auto make = [&](AlertEvent event) {
    const v1::Level before = known.firing() ? known.own->level : known.level;
    if (route.raw_ids)
      return MakeNotification(event, change, before, config_.page, route.name, known.Bodies(),
                              true);
    IncidentTable::Change hidden = change;
    *hidden.incident.mutable_finding() = rules::WithoutIds(finding);
    return MakeNotification(event, hidden, before, config_.page, route.name, known.Bodies());
  };
  const auto event = EventFor(route, known, change);
  if (quiet && (known.firing() ? !known.own->quiet : !known.others.empty())) {
    if (!known.firing()) {
      d.reported = *known.others.front().second;
      d.reported.level = known.level;
      d.reported.body = make(AlertEvent::kMoved).body;
      d.reported.revision = change.revision;
    }
    d.reported.quiet = true;
    d.reported.who = change.status.who();
    d.reported.reason = change.status.reason();
  } else if (event) {
    Notification n = make(*event);
    const bool resolved = *event == AlertEvent::kResolved;
    const bool moved = *event == AlertEvent::kMoved;
    const bool only_others_end = resolved && !known.firing() && !known.others.empty();
    d.reported = ReceiverState();
    d.reported.firing = !resolved;
    d.reported.level =
        moved && !holds_alerts ? std::max(finding.level(), known.level) : finding.level();
    if (known.firing() && moved) {
      d.reported.level = known.own->level;
      d.reported.quiet = known.own->quiet;
      d.reported.who = known.own->who;
      d.reported.reason = known.own->reason;
    }
    d.reported.revision = change.revision;
    if (!resolved) d.reported.body = n.body;
    const bool wanted = holds_alerts || (resolved ? route.resolved && !only_others_end : !moved);
    if (wanted && !d.reported.quiet) d.notification = std::move(n);
  } else {
    return;
  }
  out->push_back(std::move(d));
  for (const auto& [fingerprint, reported] : known.others)
    out->push_back({route.name, fingerprint, ReceiverState(), std::nullopt});
}

bool AlertDecider::Opens(const std::vector<AlertDecision>& decisions) {
  return std::any_of(decisions.begin(), decisions.end(), [](const AlertDecision& d) {
    return d.notification && d.notification->event != AlertEvent::kResolved;
  });
}

void AlertDecider::Apply(const std::vector<AlertDecision>& decisions) {
  for (const AlertDecision& d : decisions) reported_[{d.route, d.fingerprint}] = d.reported;
}

std::vector<AlertDecision> AlertDecider::Stale(const IncidentTable& incident_table) const {
  std::vector<AlertDecision> out;
  for (const auto& [key, reported] : reported_) {
    if (!reported.firing) continue;
    const auto& [name, fingerprint] = key;
    const auto route =
        std::find_if(config_.routes.begin(), config_.routes.end(),
                     [&name = key.first](const AlertRoute& r) { return r.name == name; });
    if (route != config_.routes.end() && incident_table.Get(fingerprint).ok()) continue;
    out.push_back({name, fingerprint, ReceiverState(), std::nullopt});
    const std::string incident = incident_table.IncidentOf(fingerprint);
    if (route == config_.routes.end() || incident.empty()) continue;
    const ReceiverState* known = Find(name, incident);
    if (known == nullptr || !known->firing) out.push_back({name, incident, reported, std::nullopt});
  }
  return out;
}

}  // namespace plumbline::server
