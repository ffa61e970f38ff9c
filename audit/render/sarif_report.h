// Writes the report as SARIF 2.1.0 (OASIS), which code hosts and editors show.
#pragma once

#include <string>

#include "audit/session/audit.h"

namespace plumbline::audit {

// Returns one run: the rules that judged, with their pages; one result per finding; problems of the
// inputs as notifications of the one invocation, with `exit_status`. Paths below `folder`
// (absolute: the working directory) are relative. If a baseline was given, a result is "new". The
// same result gives the same bytes. Valid UTF-8 that ends with a newline.
std::string RenderSarif(const AuditResult& result, int exit_status, const std::string& folder);

}  // namespace plumbline::audit
