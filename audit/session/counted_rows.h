// Adds facts about steps to findings: that logged rows were counted, that steps fall back.
#pragma once

#include <deque>

#include "audit/readers/input/reader.h"
#include "rules/engine/report.h"

namespace plumbline::audit {

// Sets `details.step_unit` = "logged row" in each finding of such a run: its step is the number of
// a logged row.
void StateCountedRows(const std::deque<InputReport>& inputs, rules::Report* report);

// If a finding on a loss or a norm begins where the steps of its run fall back by a few rows, adds
// that it begins at a resume.
void StateFallBacks(const std::deque<InputReport>& inputs, rules::Report* report);

}  // namespace plumbline::audit
