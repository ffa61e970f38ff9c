// The findings of a run, live and by an audit of the stored run.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "tests/server/support.h"

namespace plumbline::test {

// incident -> its cause, its findings.
using FoundIncidents = std::map<std::string, std::pair<std::string, std::set<std::string>>>;

inline FoundIncidents FoundLive(const Plumbd& server, const std::string& run) {
  FoundIncidents found;
  for (const v1::IncidentStatus& status : server.Statuses(run)) {
    auto& [cause, findings] = found[status.fingerprint()];
    cause = status.cause();
    for (const v1::IncidentSite& site : status.sites()) findings.insert(site.fingerprint());
  }
  return found;
}

inline FoundIncidents FoundByAudit(const Plumbd& server, const std::string& run) {
  FoundIncidents found;
  const Ended audit = RunToEnd({PLUMB_PROGRAM, "audit", "--server", server.address(), "--run", run,
                                "--format", "json", "--quiet"});
  const auto report = nlohmann::json::parse(audit.output, nullptr, false);
  EXPECT_TRUE(report.is_object()) << audit.errors;
  if (!report.is_object()) return found;
  for (const auto& incident : report["incidents"]) {
    auto& [cause, findings] = found[incident["fingerprint"]];
    cause = incident["cause"];
    for (const auto& finding : incident["findings"]) findings.insert(finding.get<std::string>());
  }
  return found;
}

// Returns true once the run has been judged as a whole, as an audit judges it.
inline bool IsOver(Plumbd& server, const std::string& run) {
  return Eventually([&] {
    return server.process().errors().find("run \"" + run + "\": over") != std::string::npos;
  });
}

inline bool HasCause(const FoundIncidents& found, const std::string& cause) {
  for (const auto& [fingerprint, incident] : found) {
    if (incident.first == cause) return true;
  }
  return false;
}

}  // namespace plumbline::test
