#include "server/alerts/alert_decider.h"

#include <algorithm>
#include <utility>

namespace plumbline::server {
namespace {

bool IsQuiet(const IncidentBook::Change& change) {
  return change.incident.state() == v1::Incident::STATE_ACKNOWLEDGED ||
         change.incident.state() == v1::Incident::STATE_SILENCED;
}

}  // namespace

const Told* AlertDecider::Find(const std::string& route, const std::string& fingerprint) const {
  const auto found = told_.find({route, fingerprint});
  return found == told_.end() ? nullptr : &found->second;
}

std::optional<AlertEvent> AlertDecider::EventFor(const AlertRoute& route, const Told* told,
                                                 const IncidentBook::Change& change) const {
  const v1::Finding& finding = change.incident.finding();
  const bool firing = told != nullptr && told->firing;
  switch (change.incident.state()) {
    case v1::Incident::STATE_OPEN:
      if (!route.Matches(finding)) return std::nullopt;
      if (!firing) return told == nullptr ? AlertEvent::kOpened : AlertEvent::kReturned;
      if (finding.level() > told->level) return AlertEvent::kEscalated;
      if (told->quiet) return AlertEvent::kReopened;
      return std::nullopt;
    case v1::Incident::STATE_RESOLVED:
      if (firing) return AlertEvent::kResolved;
      // It came and went before anybody looked.
      if (told == nullptr && change.opened_at > known_ && route.Matches(finding))
        return AlertEvent::kResolved;
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

std::vector<AlertDecision> AlertDecider::Decide(const IncidentBook::Change& change) const {
  std::vector<AlertDecision> out;
  const v1::Finding& finding = change.incident.finding();
  for (const AlertRoute& route : config_.routes) {
    const Told* told = Find(route.name, finding.fingerprint());
    AlertDecision d;
    d.route = route.name;
    d.fingerprint = finding.fingerprint();
    if (told != nullptr) d.told = *told;
    if (const auto event = EventFor(route, told, change)) {
      Notification n = MakeNotification(*event, change, d.told.level, config_.page, route.name);
      const bool resolved = *event == AlertEvent::kResolved;
      d.told = Told();
      d.told.firing = !resolved;
      d.told.level = finding.level();
      d.told.revision = change.revision;
      if (!resolved) d.told.body = n.body;
      const bool wanted =
          !resolved || route.resolved || route.sink() == AlertRoute::Sink::kAlertmanager;
      if (wanted) d.notification = std::move(n);
    } else if (told != nullptr && told->firing && IsQuiet(change) && !told->quiet) {
      d.told.quiet = true;
      d.told.who = change.status.who();
      d.told.reason = change.status.reason();
    } else {
      continue;
    }
    out.push_back(std::move(d));
  }
  return out;
}

bool AlertDecider::Opens(const std::vector<AlertDecision>& decisions) {
  return std::any_of(decisions.begin(), decisions.end(), [](const AlertDecision& d) {
    return d.notification && d.notification->event != AlertEvent::kResolved;
  });
}

void AlertDecider::Apply(const std::vector<AlertDecision>& decisions) {
  for (const AlertDecision& d : decisions) told_[{d.route, d.fingerprint}] = d.told;
}

std::vector<AlertDecision> AlertDecider::Stale(const IncidentBook& book) const {
  std::vector<AlertDecision> out;
  for (const auto& [key, told] : told_) {
    if (!told.firing) continue;
    const auto& [name, fingerprint] = key;
    const auto route =
        std::find_if(config_.routes.begin(), config_.routes.end(),
                     [&name = key.first](const AlertRoute& r) { return r.name == name; });
    if (route != config_.routes.end() && book.Get(fingerprint).ok()) continue;
    out.push_back({name, fingerprint, Told(), std::nullopt});
  }
  return out;
}

}  // namespace plumbline::server
