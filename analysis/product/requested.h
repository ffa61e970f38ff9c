// Products of which only the call was seen (plumb run on a compiled trainer): its arguments state
// what the library may do, not what it did.
#pragma once

#include <optional>
#include <string>

#include "analysis/frame/frame.h"
#include "base/dtype.h"

namespace plumbline::analysis {

struct RequestedProduct {
  DType accumulator = DType::kUnspecified;  // that the call requests
  std::string input_format;   // to which f32 factors may be rounded: "tf32", "bf16", "f16" or ""
  bool narrow_parts = false;  // split along K, with parts in D's 16-bit dtype
  uint64_t calls = 0;
};

// Returns true if the step has products, and of all of them only the call was seen.
bool OnlyRequested(const SiteStep& step);

using RequestJudge = std::optional<v1::Verdict> (*)(const RequestedProduct&);

// Calls the judge for each product of such a step. Without a verdict of the judge a product is
// inconclusive: `no-sample`.
void JudgeRequested(const SiteStep& step, RequestJudge judge, VerdictSink& out);

// Returns a finding of strength heuristic that the rule completes with title, cause and fix.
FindingBuilder RequestFinding(v1::Level level, const RequestedProduct& product,
                              const std::string& permission);

}  // namespace plumbline::analysis
