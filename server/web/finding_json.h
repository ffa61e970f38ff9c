// Incidents as the page reads them; of findings rules/words knows it.
#pragma once

#include <string>

#include "plumbline/v1/finding.pb.h"
#include "plumbline/v1/query.pb.h"
#include "rules/words/page_json.h"
#include "server/incidents/incident_table.h"

namespace plumbline::server {

using Json = rules::Json;

// Unix ns as decimal text: JavaScript's numbers do not hold them.
std::string NsText(int64_t unix_ns);

// What every view counts an incident as: "open", or put aside as "acknowledged", "silenced" or
// "suppressed" (by a rule in a file), or "resolved". Only what is open asks for somebody.
const char* StandingOf(const IncidentTable::Change& change);
// What a row of a list says of an incident.
Json IncidentRow(const IncidentTable::Change& change);
Json SitesJson(const v1::IncidentStatus& status);

}  // namespace plumbline::server
