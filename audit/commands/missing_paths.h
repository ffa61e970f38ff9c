// Reports paths that do not exist.
#pragma once

#include "audit/session/audit.h"

namespace plumbline::audit {

// Prints a line to standard error for each input, none of which exists, with the nearest name in
// its folder. Returns the exit status.
int ReportMissing(const AuditResult& result);

}  // namespace plumbline::audit
