// The report as SARIF 2.1.0 (OASIS), which code hosts and editors show.
#pragma once

#include <string>

#include "audit/session/audit.h"

namespace plumbline::audit {

// One run: the rules that judged, with their pages; a result a finding; what is wrong with the
// inputs as notifications of the one invocation, which says `exit_status`. Paths below `folder`
// (absolute: the working directory) are relative. A result is "new" where a baseline was given. The
// same result gives the same bytes. Valid UTF-8, ends with a newline.
std::string RenderSarif(const AuditResult& result, int exit_status, const std::string& folder);

}  // namespace plumbline::audit
