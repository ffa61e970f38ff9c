// Writes the ranks' times as a trace in Chrome's format, for Perfetto's viewer.
#pragma once

#include <string>

#include "audit/session/audit.h"

namespace plumbline::audit {

// Writes one process per rank, with tracks of steps, gaps (named by their cause), waits of the host
// by class, and findings. It uses the clock of the trace that was read, so that events of both
// align. Strict JSON; the same result gives the same bytes.
std::string RenderTimeline(const AuditResult& result);

}  // namespace plumbline::audit
