#include "audit/session/emptied_columns.h"

#include "absl/strings/str_cat.h"
#include "analysis/frame/frame.h"

namespace plumbline::audit {
namespace {

// Returns true for a term of a policy's loss. Terms of other losses may end on purpose.
bool IsTermOfPolicy(SeriesRole role, const std::string& name) {
  if (role != SeriesRole::kAuxiliaryLoss) return false;
  for (const char* const term : {"pg_loss", "kl_loss", "policy_loss"}) {
    if (name.find(term) != name.npos) return true;
  }
  return false;
}

bool IsJudged(SeriesRole role, const std::string& name) {
  return role == SeriesRole::kLoss || role == SeriesRole::kGradientNorm ||
         role == SeriesRole::kPerplexity || role == SeriesRole::kLikelihood ||
         IsPolicyMetric(role) || IsTermOfPolicy(role, name);
}

v1::Verdict VerdictOf(const EmptiedColumn& column) {
  const auto step = static_cast<double>(column.last_step);
  analysis::FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_HEURISTIC);
  found.Title("the column is empty from one row on")
      .Explain(absl::StrCat(column.name, " has a value in ", column.values, " rows up to step ",
                            column.last_step, ", and none in the ", column.empty_rows,
                            " rows after it, though the table continues. pandas writes NaN as an "
                            "empty cell, orjson as null."))
      .Cause("emptied", 0.7)
      .Measured("empty rows", static_cast<double>(column.empty_rows), "rows")
      .Threshold(5, "rows, after a value in nine rows of ten")
      .Samples(column.values)
      .Witness("step", step)
      .Fix(
          "Check the computation of the value: is it NaN from that step on? Write it as text: "
          "to_csv(na_rep='nan'), json.dumps.")
      .At("", column.name, column.last_step, column.last_step, std::vector<uint32_t>{});
  google::protobuf::Struct& details = *found.verdict().mutable_details();
  analysis::Put(details, "series", column.name);
  analysis::Put(details, "step", step);
  analysis::Put(details, "kind", "emptied");
  return found.Take();
}

}  // namespace

std::vector<std::pair<std::string, v1::Verdict>> EmptiedVerdicts(
    const std::deque<InputReport>& inputs, const SeriesRoles& roles) {
  std::vector<std::pair<std::string, v1::Verdict>> verdicts;
  for (const InputReport& input : inputs) {
    for (const EmptiedColumn& column : input.emptied) {
      if (!IsJudged(roles.Of(column.name), column.name)) continue;
      for (const std::string& run : input.runs) verdicts.emplace_back(run, VerdictOf(column));
    }
  }
  return verdicts;
}

}  // namespace plumbline::audit
