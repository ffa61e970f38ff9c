// Findings and incidents as the page reads them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "plumbline/v1/finding.pb.h"
#include "plumbline/v1/query.pb.h"
#include "server/incidents/incident_table.h"

namespace plumbline::server {

using Json = nlohmann::ordered_json;

constexpr int kMostElements = 2048;  // of a list in a witness or in details; the page says so

const char* LevelWord(v1::Level level);            // "error", ...
const char* StateWord(v1::Incident::State state);  // "open", "acknowledged", ...

// Not finite: "nan", "inf", "-inf", as text.
Json NumberJson(double value);
// Unix ns as decimal text: JavaScript's numbers do not hold them.
std::string NsText(int64_t unix_ns);

// The finding of the report (plumbline.report/1), with bounded lists.
Json FindingJson(const v1::Finding& finding);
// What a row of a list says of an incident.
Json IncidentRow(const IncidentTable::Change& change);
Json SitesJson(const v1::IncidentStatus& status);

}  // namespace plumbline::server
