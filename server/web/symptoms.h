// Incidents that are symptoms of another one (rules/causes.h), for the page's lists.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "server/incidents/incident_table.h"
#include "server/web/finding_json.h"

namespace plumbline::server {

// Refers to the list from which it is made. Thread-safe.
class Symptoms {
 public:
  // A resolved incident has only resolved symptoms, because a finding that is still open then has
  // another cause.
  explicit Symptoms(const std::vector<IncidentTable::Change>& all);

  // Returns the incident whose symptom this is, or null if it is not a symptom.
  const IncidentTable::Change* RootOf(const IncidentTable::Change& change) const;
  // Returns the symptoms, by first step.
  std::vector<const IncidentTable::Change*> Of(const IncidentTable::Change& root) const;
  // Returns IncidentRow, with the rows of its symptoms.
  Json Row(const IncidentTable::Change& root) const;

 private:
  std::map<std::string, const IncidentTable::Change*> roots_;  // by the symptom's fingerprint
  std::multimap<std::string, const IncidentTable::Change*> symptoms_;  // by the root's
};

}  // namespace plumbline::server
