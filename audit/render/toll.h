// Which toll is paid, by the verdicts of a report over time: the one line at its end.
#pragma once

#include <string>
#include <vector>

#include "analysis/timeline/timeline.h"
#include "audit/session/audit.h"

namespace plumbline::audit {

// Mean shares over the traces that were judged, in the order in which tolls are paid; empty: none.
std::vector<timeline::Toll> TollsOf(const AuditResult& result);

// "Toll: the cable, 23 % of the time; ..."; empty: none.
std::string TollLineOf(const AuditResult& result);

}  // namespace plumbline::audit
