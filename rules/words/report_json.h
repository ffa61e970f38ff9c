// Findings and verdicts as the contract's JSON (plumbline.report/1).
#pragma once

#include "plumbline/v1/finding.pb.h"
#include "rules/words/page_json.h"

namespace plumbline::rules {

// Strict JSON, valid UTF-8, keys in the contract's order; a number that is not finite is the string
// "nan", "inf" or "-inf". `bias`, `forecast` and `false_alarm` are left out where they do not
// apply; every other key of the contract is always there. Thread-safe.
Json FindingValue(const v1::Finding& finding);
Json VerdictValue(const v1::Verdict& verdict);

}  // namespace plumbline::rules
