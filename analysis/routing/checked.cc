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
  // A set that looks random may follow a score that was not recorded, or that was rounded.
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

std::string WhyBalance(const Balance& balance) {
  if (balance.sinkhorn) {
    return "Tokens did not choose by their own scores. Optimal transport over these rows gives "
           "every choice; over 32 resamples of the rows it does not.";
  }
  return absl::StrFormat(
      "Tokens did not choose by their own scores. Every expert has the same number of tokens (%.1f "
      "bits), and one price per expert explains every choice (%.1f bits): such prices are computed "
      "over the whole batch. A stored bias could give the same by chance.",
      balance.equal_bits, balance.price_bits);
}

std::string TopOfMask(const RoutingAnalysis& a) {
  return absl::StrFormat(
      "In %d full experts, torch.topk of a 0/1 mask on a CPU keeps exactly these candidates (%.1f "
      "bits), which no queue in time order does. Its order among equals depends on all rows, later "
      "ones included.",
      a.library_ties.cells, a.library_ties.bits);
}

std::string WhyCapacity(const RoutingAnalysis& a, double bits) {
  if (a.drawn_by_count()) {
    return absl::StrFormat(
        "every full expert has exactly its capacity, and a draw among all its candidates is "
        "2^%.1f times likelier than refusals by the tokens themselves before a queue",
        bits);
  }
  return absl::StrFormat(
      "experts below capacity kept every choice, which a cause other than capacity gives with "
      "probability 2^-%.1f",
      bits);
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
