// Formats findings and verdicts as the contract's JSON, for plumb audit, plumb watch and plumb
// query.
#pragma once

#include <string>

#include "plumbline/v1/finding.pb.h"
#include "rules/words/report_json.h"

namespace plumbline::audit {

using rules::FindingValue;
using rules::VerdictValue;

// Both return one line without a newline.
std::string FindingJson(const v1::Finding& finding);
std::string VerdictJson(const v1::Verdict& verdict);

}  // namespace plumbline::audit
