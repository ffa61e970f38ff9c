// A message to one receiver about one incident, as JSON (docs/alerts.md describes it) and as text
// for people. Text that came from a trainer is made printable.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plumbline/v1/finding.pb.h"
#include "server/incidents/incident_table.h"

namespace plumbline::server {

enum class AlertEvent {
  kOpened,     // first message to this receiver
  kEscalated,  // its level rose
  kReturned,   // found again after it was resolved
  kReopened,   // a person opened it again, or a silence ended
  kResolved,
  kMoved,    // its findings were reported under another incident; for receivers that hold alerts
  kSummary,  // for several alerts that the route's limit held back
  kTest,
};
// Returns "opened", "escalated", ...
const char* EventWord(AlertEvent event);
AlertEvent EventOf(const std::string& word);  // kTest if the word is unknown

struct Notification {
  // The same for every try of one notification, so that a receiver can detect repetitions:
  // "FINGERPRINT-REVISION", "summary-...".
  std::string id;
  std::string fingerprint;  // empty: not of a single incident
  uint64_t revision = 0;    // of the incident
  AlertEvent event = AlertEvent::kTest;
  std::string body;  // JSON, valid UTF-8
};

// Makes a notification. `previous`: the level that was reported to this receiver before, for
// kEscalated. `page` and `route` as configured. `ended`: bodies of earlier notifications that this
// one replaces.
// `raw_ids`: with the finding's witness, which may name token and sequence ids.
Notification MakeNotification(AlertEvent event, const IncidentTable::Change& change,
                              v1::Level previous, const std::string& page, const std::string& route,
                              const std::vector<std::string>& ended = {}, bool raw_ids = false);

// Makes one summary of all alerts that were held back. `id` distinguishes it from other summaries.
Notification MakeSummary(const std::string& id, const std::vector<Notification>& held,
                         const std::string& page, const std::string& route, int64_t unix_ns);

// Makes a test notification, whose text states this.
Notification MakeTest(const std::string& route, int64_t unix_ns);

// Returns "2026-11-21T12:03:41.250Z".
std::string AlertTime(int64_t unix_ns);

}  // namespace plumbline::server
