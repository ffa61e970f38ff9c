#include "audit/session/counted_rows.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "analysis/frame/frame.h"

namespace plumbline::audit {
namespace {

// Returns the row at which the finding begins.
int64_t RowOf(const v1::Finding& finding) {
  const auto& fields = finding.details().fields();
  const auto step = fields.find("step");
  const bool number =
      step != fields.end() && step->second.has_number_value() && step->second.number_value() >= 0;
  return number ? std::llround(step->second.number_value()) : finding.site().step_first();
}

}  // namespace

void StateCountedRows(const std::deque<InputReport>& inputs, rules::Report* report) {
  std::set<std::string> runs;
  for (const InputReport& input : inputs) {
    if (input.steps_are_rows) runs.insert(input.runs.begin(), input.runs.end());
  }
  if (runs.empty()) return;
  report->Amend([&](v1::Finding* finding) {
    if (!runs.contains(finding->site().run())) return;
    const bool before = !finding->explanation().empty();
    absl::StrAppend(finding->mutable_explanation(), before ? " " : "",
                    "The log states no steps, its rows were counted: logged row ", RowOf(*finding),
                    ", step unknown.");
    rules::Put(*finding->mutable_details(), "step_unit", "logged row");
  });
}

}  // namespace plumbline::audit
