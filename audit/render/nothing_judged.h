// Why an audit has no verdict. Thread-safe.
#pragma once

#include <string>

#include "audit/session/audit.h"

namespace plumbline::audit {

// One line, for a result without a verdict: nothing was found, nothing could be read, or what was
// read has no part that a rule judges.
std::string WhyNothingWasJudged(const AuditResult& result);

}  // namespace plumbline::audit
