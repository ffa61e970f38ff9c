// What an audit saw of ranks' times, as a trace in Chrome's format that Perfetto's viewer opens.
#pragma once

#include <string>

#include "audit/session/audit.h"

namespace plumbline::audit {

// One process a rank, with tracks of steps, of gaps (named by their cause), of the host's waits by
// class and of findings, on the clock of the trace that was read: events of both lie below each
// other. Strict JSON, the same bytes for the same result.
std::string RenderTimeline(const AuditResult& result);

}  // namespace plumbline::audit
