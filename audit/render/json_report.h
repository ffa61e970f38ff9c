// The report as JSON, schema "plumbline.report/1" of the contract.
#pragma once

#include <string>

#include "audit/render/finding_json.h"
#include "audit/session/audit.h"

namespace plumbline::audit {

// Strict JSON, valid UTF-8, the same bytes for the same result; a number that is not finite is the
// string "nan", "inf" or "-inf". `bias`, `forecast` and `false_alarm` are left out where they do
// not apply; every other key of the contract is always there. `left_out` ({"baseline", "since"}:
// how many findings) is there where a selection was asked for. Ends with a newline.
std::string RenderJson(const AuditResult& result);

}  // namespace plumbline::audit
