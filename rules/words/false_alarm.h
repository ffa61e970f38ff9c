// The false-alarm rate of a finding as text. Thread-safe.
#pragma once

#include <string>

#include "plumbline/v1/finding.pb.h"

namespace plumbline::rules {

// Returns "about 1 false alarm in 830,000 points, measured". If the finding has no false-alarm
// rate, returns an empty string.
std::string FalseAlarmText(const v1::Finding& finding);

// Returns the strength with its meaning in one line: "statistical: at most 1 false alarm in
// 1,000,000 runs".
std::string HowSureText(const v1::Finding& finding);

}  // namespace plumbline::rules
