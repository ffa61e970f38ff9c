#include "analysis/routing/checked.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/routing/policies/policies.h"

namespace plumbline::analysis {
namespace {

// Policies that are visible even without refusals.
bool ShowsInChoices(const std::string& policy) {
  return policy == "expert-choice" || policy == "sequence-top-k" || policy == "balanced-assignment";
}

bool Among(const std::string& policy, const char* one, const char* other) {
  return policy == one || policy == other;
}

// Returns true if one recording can be consistent with both names.
bool MayBoth(const RoutingAnalysis& a, const std::string& stated) {
  if (stated == a.policy) return true;
  if (a.policy == "token-choice") return !ShowsInChoices(stated);
  // With one choice per token there is no second rank that could queue after the first.
  if (a.c.top_k == 1 && Among(a.policy, "fifo-capacity", "rank-major-capacity") &&
      Among(stated, "fifo-capacity", "rank-major-capacity"))
    return true;
  if (ShowsInChoices(a.policy) || ShowsInChoices(stated))
    return Among(a.policy, "expert-choice", "sequence-top-k") &&
           Among(stated, "expert-choice", "sequence-top-k");
  // What looks like a draw may follow a score that was not recorded, or that was rounded.
  if (Among(a.policy, "random-capacity", "tie-order-capacity"))
    return Among(stated, "random-capacity", "tie-order-capacity") || stated == "score-capacity";
  return false;
}

}  // namespace

std::string PolicyDiffers(const RoutingAnalysis& a) {
  if (!a.blocked.empty()) return "";
  const std::string& stated = a.c.routing->config().policy();
  if (stated.empty() || stated == "unknown" || a.policy == "unknown" || MayBoth(a, stated))
    return "";
  return absl::StrCat("the configuration is recorded as policy ", stated,
                      ", and the assignments are those of ", a.policy);
}

std::string CapacityBits(const RoutingAnalysis& a) {
  if (std::isinf(a.capacity_bits)) return "";
  return absl::StrFormat(" and %.1f that one capacity refuses", a.capacity_bits);
}

std::string AgainstOwnRefusals(const RoutingAnalysis& a) {
  if (a.own_refusal_bits < 0)
    return "refusals by the tokens themselves explain them better than a draw among candidates";
  return absl::StrFormat("%.1f against refusals by the tokens themselves", a.own_refusal_bits);
}

v1::Verdict Checked(const RoutingAnalysis& a, v1::Verdict verdict) {
  const std::string differs = PolicyDiffers(a);
  if (verdict.kind() == v1::Verdict::KIND_PASS && !differs.empty()) {
    verdict = Inconclusive(
        absl::StrCat("policy-differs: ", differs, "; one of the two records is wrong"));
  } else if (verdict.kind() == v1::Verdict::KIND_FINDING && !differs.empty()) {
    absl::StrAppend(verdict.mutable_finding()->mutable_explanation(), " But ", differs, ".");
  }
  return NoPassNextTo(a.nothing_kept, std::move(verdict));
}

}  // namespace plumbline::analysis
