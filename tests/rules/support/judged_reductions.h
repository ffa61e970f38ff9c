// Manually changed reductions of a batch, and the verdicts of the collective rules.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plumbline/v1/batch.pb.h"
#include "tests/rules/support/verdicts.h"

namespace plumbline::rules::testing {

// Returns the verdicts of the collective rules.
inline Verdicts Judge(std::vector<v1::Batch> batches) {
  return VerdictsOn(std::move(batches), {.rules = {"precision/collective-*"}});
}

inline std::string Text(const Verdicts& verdicts) {
  std::string text;
  for (const v1::Verdict& v : verdicts) absl::StrAppend(&text, v.ShortDebugString(), "\n");
  return text;
}

inline v1::ReductionCall& CallOf(v1::Batch& batch, int i) {
  return *batch.mutable_evidence(i)->mutable_reduction()->mutable_call();
}

inline void ForEachCall(v1::Batch& batch, const std::function<void(v1::ReductionCall&)>& change) {
  for (int i = 0; i < batch.evidence_size(); ++i) change(CallOf(batch, i));
}

}  // namespace plumbline::rules::testing
