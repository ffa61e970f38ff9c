// Writes the report as JSON, schema "plumbline.report/1" of the contract.
#pragma once

#include <string>

#include "audit/render/finding_json.h"
#include "audit/session/audit.h"

namespace plumbline::audit {

// Returns strict JSON in valid UTF-8 that ends with a newline. The same result gives the same
// bytes. A non-finite number is the string "nan", "inf" or "-inf". If `bias`, `forecast` or
// `false_alarm` do not apply, they are left out; every other key of the contract is present. If a
// selection was requested, `left_out` ({"baseline", "since"}) has the numbers of findings left out.
std::string RenderJson(const AuditResult& result);

}  // namespace plumbline::audit
