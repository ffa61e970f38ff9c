// One cause, one incident: findings of one (rule, run, cause) gathered, whatever their sites. What
// a server keeps live (server/incidents) and what a report shows are the same function of the
// findings as they finally stand. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "plumbline/v1/finding.pb.h"

namespace plumbline::rules {

// 32 hex digits over (rule, run, cause), the same on every host.
std::string IncidentFingerprint(const v1::Finding& finding);

// Whether `a` shows for their incident rather than `b`: one that nothing suppresses, the stronger
// (level, then strength), the earlier, the first by rank, layer and op. Total over findings of
// different fingerprints.
bool ShowsBefore(const v1::Finding& a, const v1::Finding& b);

struct Incident {
  std::string fingerprint;
  std::vector<const v1::Finding*> findings;  // at least one; the one that shows for it first

  const v1::Finding& shown() const { return *findings.front(); }
};

// By level (errors first), strength, rule, run, cause. The findings have different fingerprints
// and must outlive what is returned.
std::vector<Incident> IncidentsOf(const std::vector<const v1::Finding*>& findings);

}  // namespace plumbline::rules
