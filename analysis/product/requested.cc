#include "analysis/product/requested.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace plumbline::analysis {
namespace {

// Written by audit/calls/record.cc.
constexpr char kOnlyTheCall[] = "only the call was seen";
constexpr char kPartsInD[] = "16-bit parts";

bool IsRequested(const Item& item) {
  const v1::Evidence& evidence = *item.evidence;
  return evidence.has_matmul() && !evidence.matmul().has_sample() &&
         absl::StartsWith(evidence.matmul().no_sample_reason(), kOnlyTheCall);
}

RequestedProduct RequestedOf(const Item& item) {
  const v1::MatmulConfig& config = item.evidence->matmul().config();
  return {static_cast<DType>(config.declared_accumulator()), config.input_format(),
          absl::StrContains(config.library(), kPartsInD), item.evidence->sample_size()};
}

}  // namespace

bool OnlyRequested(const SiteStep& step) {
  return !step.items.empty() && std::all_of(step.items.begin(), step.items.end(), IsRequested);
}

void JudgeRequested(const SiteStep& step, RequestJudge judge, VerdictSink& out) {
  JudgeItems(
      step,
      [judge](const Item& item) -> std::optional<v1::Verdict> {
        if (auto verdict = judge(RequestedOf(item))) return verdict;
        return Inconclusive(absl::StrCat("no-sample: ", kOnlyTheCall,
                                         ", which requests nothing narrower than its dtypes"));
      },
      out);
}

FindingBuilder RequestFinding(v1::Level level, const RequestedProduct& product,
                              const std::string& permission) {
  FindingBuilder found(level, v1::STRENGTH_HEURISTIC);
  found
      .Explain(absl::StrFormat("%s (calls: %d). Predicted from the arguments, not measured.",
                               permission, product.calls))
      .Assume("the library does what the arguments of the call permit")
      .Samples(product.calls);
  return found;
}

}  // namespace plumbline::analysis
