// Explains why an audit has no verdict. Thread-safe.
#pragma once

#include <string>

#include "audit/session/audit.h"

namespace plumbline::audit {

// Returns one line for a result without a verdict: nothing was found, nothing could be read, or no
// rule judges what was read.
std::string WhyNothingWasJudged(const AuditResult& result);

}  // namespace plumbline::audit
