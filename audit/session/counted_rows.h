// Marks findings of runs whose files state no step, so that logged rows were counted.
#pragma once

#include <deque>

#include "audit/readers/input/reader.h"
#include "rules/engine/report.h"

namespace plumbline::audit {

// Sets `details.step_unit` = "logged row" in each finding of such a run: its step is the number of
// a logged row.
void StateCountedRows(const std::deque<InputReport>& inputs, rules::Report* report);

}  // namespace plumbline::audit
