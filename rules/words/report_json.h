// Findings and verdicts as the contract's JSON (plumbline.report/1).
#pragma once

#include "plumbline/v1/finding.pb.h"
#include "rules/words/page_json.h"

namespace plumbline::rules {

// Return strict JSON, valid UTF-8, with keys in the contract's order. If a number is not finite, it
// is the string "nan", "inf" or "-inf". If `bias`, `forecast` and `false_alarm` do not apply, they
// are left out. Every other key of the contract is always present. Thread-safe.
Json FindingValue(const v1::Finding& finding);
Json VerdictValue(const v1::Verdict& verdict);

}  // namespace plumbline::rules
