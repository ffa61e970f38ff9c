#include "audit/session/counted_rows.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

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

bool Jumps(std::string_view rule) {
  return rule == "health/loss-spike" || rule == "health/loss-divergence" ||
         rule == "health/gradient-spike";
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
                    "The log has no steps, so rows were counted: logged row ", RowOf(*finding),
                    ", step unknown.");
    analysis::Put(*finding->mutable_details(), "step_unit", "logged row");
  });
}

void StateFallBacks(const std::deque<InputReport>& inputs, rules::Report* report) {
  std::map<std::string, std::set<std::pair<int64_t, int64_t>>> of_runs;
  for (const InputReport& input : inputs) {
    for (const std::string& run : input.runs)
      of_runs[run].insert(input.fall_backs.begin(), input.fall_backs.end());
  }
  report->Amend([&](v1::Finding* finding) {
    const auto of_run = of_runs.find(finding->site().run());
    if (of_run == of_runs.end() || !Jumps(finding->rule())) return;
    const int64_t row = RowOf(*finding);
    for (const auto& [from, to] : of_run->second) {
      if (row < to || row > from + 1) continue;
      absl::StrAppend(
          finding->mutable_explanation(), " It begins at a resume: the steps go back from ", from,
          " to ", to, " there, and repeat. Compare the state that the resume loaded with ",
          "the saved one: the optimizer's state, the scheduler, the order of the data.");
      return;
    }
  });
}

}  // namespace plumbline::audit
