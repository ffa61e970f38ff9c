// Finds the largest bottleneck, from the verdicts of a report over time, for the report's last
// line.
#pragma once

#include <string>
#include <vector>

#include "analysis/timeline/timeline.h"
#include "audit/session/audit.h"

namespace plumbline::audit {

// Returns mean shares over the traces that were judged, in the order of timeline::BottlenecksOf. If
// there are none, returns an empty list.
std::vector<timeline::Bottleneck> BottlenecksOf(const AuditResult& result);

// Returns "Bottleneck: the cable, 23 % of the time; ..."; "" if there is none.
std::string BottleneckLineOf(const AuditResult& result);

}  // namespace plumbline::audit
