// Writes the report as text for a terminal or a log: problems first, counts last.
#pragma once

#include <string>

#include "audit/render/text_util.h"
#include "audit/session/audit.h"

namespace plumbline::audit {

// Writes findings, one block per incident; passed verdicts; inconclusive verdicts with their
// reasons (many reasons as counts); inputs with problems. If no path exists, only the inputs are
// listed. The last line is "2 findings (1 error, 1 warning), 14 judged, 3 inconclusive, 0 dropped".
// If some findings share an incident: "10 findings (10 errors) in 2 incidents, ...". If nothing
// could be judged: "0 judged, N inconclusive".
std::string RenderText(const AuditResult& result, const TextStyle& style);

}  // namespace plumbline::audit
