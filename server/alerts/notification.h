// What one receiver is told once about one incident, as JSON (docs/alerts.md describes it) and as
// text for people. What came from a trainer is made printable.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plumbline/v1/finding.pb.h"
#include "server/incidents/incident_table.h"

namespace plumbline::server {

enum class AlertEvent {
  kOpened,     // first told to this receiver
  kEscalated,  // its level rose
  kReturned,   // found again after it was resolved
  kReopened,   // somebody opened it again, or a silence ended
  kResolved,
  kMoved,    // its findings were told as those of another incident; for receivers that hold alerts
  kSummary,  // of several that were held back by the route's limit
  kTest,
};
// "opened", "escalated", ...
const char* EventWord(AlertEvent event);
AlertEvent EventOf(const std::string& word);  // kTest where the word is unknown

struct Notification {
  // The same for every try of one notification, so that a receiver can tell it has seen it:
  // "FINGERPRINT-REVISION", "summary-...".
  std::string id;
  std::string fingerprint;  // empty: of no single incident
  uint64_t revision = 0;    // of the incident
  AlertEvent event = AlertEvent::kTest;
  std::string body;  // JSON, valid UTF-8
};

// `previous`: the level this receiver was told before, for kEscalated. `page` and `route` as
// configured. `ended`: bodies of earlier notifications that this one takes the place of.
// `raw_ids`: with the finding's witness, which may name token and sequence ids.
Notification MakeNotification(AlertEvent event, const IncidentTable::Change& change,
                              v1::Level previous, const std::string& page, const std::string& route,
                              const std::vector<std::string>& ended = {}, bool raw_ids = false);

// One for all that was held back. `id` tells it from other summaries.
Notification MakeSummary(const std::string& id, const std::vector<Notification>& held,
                         const std::string& page, const std::string& route, int64_t unix_ns);

// Says that it is a test.
Notification MakeTest(const std::string& route, int64_t unix_ns);

// "2026-11-21T12:03:41.250Z"
std::string AlertTime(int64_t unix_ns);

}  // namespace plumbline::server
