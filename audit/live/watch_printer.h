// Formats the output of plumb watch for each event. Uses no network.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "audit/render/finding_text.h"
#include "audit/render/text_util.h"
#include "plumbline/v1/query.pb.h"
#include "rules/words/words.h"

namespace plumbline::audit {

// Not thread-safe.
class WatchPrinter {
 public:
  enum class Format { kText, kJson };
  WatchPrinter(Format format, TextStyle style) : format_(format), style_(style) {}

  // Returns the text to print, or "" if the event has no news for a person. Existing incidents are
  // printed together before the next event of another kind, each root before its symptoms. An
  // incident is printed
  // whole when it opens and when its level, strength or cause changes. It is printed in one line
  // when its state changes, each time its number of sites has doubled, and each time it was seen
  // ten times as often. A symptom of an incident that was printed (rules/causes.h) is one line.
  // JSON prints every event, with "symptom_of" if it is a symptom. An event that was printed
  // already (a server may repeat it after a restart) is never printed again.
  std::string Event(const v1::IncidentEvent& event);
  // Returns the text of the existing incidents that were not printed yet.
  std::string Existing();
  // Returns how many open incidents there are, without the symptoms of others.
  size_t Open() const;

 private:
  struct Shown {
    v1::Level level = v1::LEVEL_UNSPECIFIED;
    v1::Strength strength = v1::STRENGTH_UNSPECIFIED;
    std::string cause;
    uint64_t count = 0;
    int64_t opened_unix_ns = 0;
    v1::Incident::State state = v1::Incident::STATE_OPEN;
    uint64_t sites = 0;
  };
  struct Seen {
    int64_t opened_unix_ns = 0;
    uint64_t revision = 0;
  };
  struct Kept {
    uint64_t id = 0;
    bool open = false;
    v1::Finding finding;
  };
  // The incident that another one is a symptom of, and the symptoms of an incident, one line each.
  struct Kin {
    std::string root;  // its fingerprint; "" if the incident is no symptom
    std::vector<std::string> symptoms;
  };

  std::string Now(const v1::IncidentEvent& event);
  bool Repeated(const v1::IncidentEvent& event);
  std::string Left(const v1::IncidentEvent& event);
  std::string Text(const v1::IncidentEvent& event);
  void Keep(const v1::IncidentEvent& event);
  Kin KinOf(const std::string& fingerprint) const;
  std::string Block(const v1::IncidentEvent& event) const;
  std::string Headline(const std::string& what, int64_t unix_ns) const;

  const Format format_;
  const TextStyle style_;
  std::map<std::string, Shown> shown_;       // by fingerprint
  std::map<std::string, Seen> seen_;         // of every event, by fingerprint
  std::map<std::string, Kept> kept_;         // incidents that are not resolved, by fingerprint
  std::vector<v1::IncidentEvent> existing_;  // not printed yet
};

// Returns "2026-11-21 12:03:41", in local time.
std::string TimeText(int64_t unix_ns);
// Returns one event as one line of JSON that ends with a newline. `symptom_of` is the fingerprint
// of the incident that this one is a symptom of, or "".
std::string EventJson(const v1::IncidentEvent& event, const std::string& symptom_of = "");
// Returns an incident on one line: {"id":…,"state":…,"count":…,"fingerprint":…,"cause":…,"sites":…,
// "opened":…,"updated":…,"findings":[…] (the first 64),"finding":{…}, the one that is displayed}.
// If a person set the state, also their name and reason.
std::string IncidentJson(const v1::Incident& incident, const v1::IncidentStatus& status = {});
// Returns the incident's fingerprint. Older servers have one incident per finding; then returns the
// fingerprint of the finding.
const std::string& FingerprintOf(const v1::Incident& incident, const v1::IncidentStatus& status);
// Returns the sites as text output shows them.
IncidentSites SitesOf(const v1::IncidentStatus& status);
// "open", "acknowledged", "silenced", "resolved".
using rules::StateName;
// Returns RFC 3339 with milliseconds, in UTC.
std::string Rfc3339(int64_t unix_ns);
// Returns " by ann: known since Monday, until step 900"; "" if no person changed the state.
std::string StatusText(const v1::Incident& incident, const v1::IncidentStatus& status);

}  // namespace plumbline::audit
