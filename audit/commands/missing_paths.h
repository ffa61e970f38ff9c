// Reports paths that do not exist.
#pragma once

#include "audit/session/audit.h"

namespace plumbline::audit {

// Call if no input exists. Prints a line to standard error for each input, with the nearest name in
// its folder. Returns the exit status.
int ReportMissing(const AuditResult& result);

}  // namespace plumbline::audit
