// Groups findings of one (rule, run, cause) into one incident, regardless of their sites. The live
// incidents of a server (server/incidents) and those of a report are the same function of the final
// findings. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "plumbline/v1/finding.pb.h"

namespace plumbline::rules {

// Returns 32 hex digits over (rule, run, cause), the same on every host.
std::string IncidentFingerprint(const v1::Finding& finding);

// Returns true if `a` represents its incident rather than `b`: first one that is not suppressed,
// then the stronger (level, then strength), the earlier, the first by rank, layer and op. A total
// order over findings of different fingerprints.
bool ShowsBefore(const v1::Finding& a, const v1::Finding& b);

struct Incident {
  std::string fingerprint;
  std::vector<const v1::Finding*> findings;  // at least one; the representative first
  std::vector<Incident> symptoms;            // incidents of other rules or causes that follow from
                                             // this one (rules/causes.h)

  const v1::Finding& shown() const { return *findings.front(); }
};

// Returns the incidents by level (errors first), strength, rule, run, cause. An incident that is a
// symptom of another one is only in its `symptoms`. The findings must have different fingerprints
// and outlive the result.
std::vector<Incident> IncidentsOf(const std::vector<const v1::Finding*>& findings);

}  // namespace plumbline::rules
