// Findings and verdicts as the contract's JSON. plumb audit puts them into its report, plumb watch
// and plumb query print them one a line.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "plumbline/v1/finding.pb.h"

namespace plumbline::audit {

// Strict JSON, valid UTF-8, keys in the contract's order; a number that is not finite is the string
// "nan", "inf" or "-inf". `bias`, `forecast` and `false_alarm` are left out where they do not
// apply; every other key of the contract is always there. Thread-safe.
nlohmann::ordered_json FindingValue(const v1::Finding& finding);
nlohmann::ordered_json VerdictValue(const v1::Verdict& verdict);

// The same on one line, without a newline.
std::string FindingJson(const v1::Finding& finding);
std::string VerdictJson(const v1::Verdict& verdict);

}  // namespace plumbline::audit
