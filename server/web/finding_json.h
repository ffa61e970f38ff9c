// Converts incidents to JSON for the page; rules/words does so for findings.
#pragma once

#include <string>

#include "plumbline/v1/finding.pb.h"
#include "plumbline/v1/query.pb.h"
#include "rules/words/page_json.h"
#include "server/incidents/incident_table.h"

namespace plumbline::server {

using Json = rules::Json;

// Returns Unix ns as decimal text, because JavaScript's numbers cannot hold them.
std::string NsText(int64_t unix_ns);

// Returns the state of an incident that every view counts: "open", or "acknowledged", "silenced",
// "suppressed" (by a rule in a file) or "resolved". Only open ones need attention.
const char* StandingOf(const IncidentTable::Change& change);
// Returns a row of a list of incidents.
Json IncidentRow(const IncidentTable::Change& change);
Json SitesJson(const v1::IncidentStatus& status);

}  // namespace plumbline::server
