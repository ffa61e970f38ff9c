// Which toll is paid, by the verdicts of a report over time: the one line at its end.
#pragma once

#include <vector>

#include "analysis/timeline/timeline.h"
#include "audit/session/audit.h"

namespace plumbline::audit {

// Mean shares over the traces that were judged, in the order in which tolls are paid; empty: none.
std::vector<timeline::Toll> TollsOf(const AuditResult& result);

}  // namespace plumbline::audit
