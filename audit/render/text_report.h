// The report as text for a terminal or a log: what is wrong first, counts last.
#pragma once

#include <string>

#include "audit/render/text_util.h"
#include "audit/session/audit.h"

namespace plumbline::audit {

// Findings, one block an incident (but where every path leads nowhere: the inputs say so), what
// passed, what could not be judged and why (many reasons as counts), inputs with problems. The last
// line is "2 findings (1 error, 1 warning), 14 judged, 3 inconclusive, 0 dropped" ("10 findings (10
// errors) in 2 incidents, ..." where some share one), or, when nothing could be judged, "0 judged,
// N inconclusive".
std::string RenderText(const AuditResult& result, const TextStyle& style);

}  // namespace plumbline::audit
