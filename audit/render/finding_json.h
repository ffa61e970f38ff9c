// Findings and verdicts as the contract's JSON. plumb audit puts them into its report, plumb watch
// and plumb query print them one a line.
#pragma once

#include <string>

#include "plumbline/v1/finding.pb.h"
#include "rules/words/report_json.h"

namespace plumbline::audit {

using rules::FindingValue;
using rules::VerdictValue;

// On one line, without a newline.
std::string FindingJson(const v1::Finding& finding);
std::string VerdictJson(const v1::Verdict& verdict);

}  // namespace plumbline::audit
