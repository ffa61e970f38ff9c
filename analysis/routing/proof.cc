// Why a replay may not be a proof, and what would settle it. docs/decisions/0004.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/routing/analysis.h"
#include "analysis/routing/call/call.h"
#include "analysis/routing/checked.h"
#include "analysis/routing/structure.h"

namespace plumbline::analysis {
namespace {

// With the router itself; with the recording only.
constexpr const char* kRouterItself =
    "Run the router itself with another suffix (plumbline.check_router), which proves or excludes "
    "the fault";
constexpr const char* kOurRouter =
    ", or our own router of this policy (plumb audit --set causality/moe-intervention.replay=on)";

// Draws, prices, and refusals that no policy gives correspond to no router that could be run again.
bool MayBeReplayed(const RoutingAnalysis& a) {
  return a.columns() || a.first_come.best.fits || (a.leak() != nullptr && !a.by_ties());
}

// For pairs that no policy explains: selection sampling from a stored demand leaves the same pairs
// as a draw among all candidates.
constexpr const char* kOwnDraw =
    "If a token is refused by its own draw (at a stored rate or demand), record randomness. ";

// Decision 0053.
constexpr const char* kStoredNumbers =
    "A stored number per expert (a threshold, a place in the queue) gives the same result, because "
    "no other pool needs another number. Record several pools, micro-batches or steps.";

// Checks that the policy is that of the configuration.
std::string PolicyDoubt(const RoutingAnalysis& a) {
  const std::string& stated = a.c.routing->config().policy();
  if (stated.empty() || stated == "unknown")
    return "The policy was not recorded: record the policy of the router's configuration.";
  return PolicyDiffers(a).empty() ? "" : absl::StrCat("The recorded policy is ", stated, ".");
}

std::string CapacityDoubt(const v1::RoutingConfig& config) {
  if (DeclaresCapacity(config)) return "";
  return SetsCapacity(config)
             ? "The capacity was inferred from the load of experts: record the capacity of the "
               "router's configuration."
             : "The capacity was not recorded: record the capacity of the router's configuration.";
}

std::string StoredRuleDoubt(const RoutingAnalysis& a) {
  const RankedReplay* leak = a.columns() ? nullptr : a.leak();
  if (!a.columns() && leak == nullptr) return "";
  const StoredThresholds rule =
      leak == nullptr ? a.column.thresholds : ThresholdsOfChoices(a.c, *leak);
  if (!rule.any()) return "";
  return absl::StrCat("A stored rule also gives every assignment: ", rule.name(), ".");
}

// Returns true if full experts cut where scores leave a gap. The threshold may apply to the
// recorded scores, even if the replay uses another key.
bool ChoicesCutInGaps(const RoutingAnalysis& a, const RankedReplay& leak) {
  const bool lowest = leak.priority == RankedReplay::Priority::kLowestScore;
  return CutsInGaps(a.c, a.saturation, leak.key, ByOf(leak), lowest) ||
         CutsInGaps(a.c, a.saturation, KeyKind::kRecorded, QueueBy::kChoice, lowest);
}

std::string EvenDoubt(const RoutingAnalysis& a) {
  const RankedReplay* leak = a.columns() ? nullptr : a.leak();
  if (!a.columns() && (leak == nullptr || !leak->by_score())) return "";
  if (!CountsFollowStructure(a.c) && (leak == nullptr || !ChoicesCutInGaps(a, *leak))) return "";
  return "The structure of the data may make the counts equal: kinds of tokens that occur equally "
         "often, or full experts that cut at a gap in the scores.";
}

}  // namespace

bool RoutingAnalysis::firm_pools() const { return c.pool_basis == PoolBasis::kRecorded; }

std::vector<std::string> RoutingAnalysis::doubts(bool excluded_before) const {
  std::vector<std::string> out;
  if (std::string capacity = CapacityDoubt(c.routing->config()); !capacity.empty())
    out.push_back(std::move(capacity));
  if (!firm_pools())
    out.emplace_back(
        "Pools are metadata or a guess: record for each row its capacity pool (pool_id).");
  if (columns() || leak() != nullptr || first_come.best.fits) {
    if (std::string doubt = PolicyDoubt(*this); !doubt.empty()) out.push_back(std::move(doubt));
    if (!stored_excluded && !excluded_before) out.emplace_back(kStoredNumbers);
  }
  // The data are only tested if the facts allow a proof.
  if (!out.empty()) return out;
  for (const auto& doubt : {StoredRuleDoubt, EvenDoubt, StructureDoubt}) {
    if (std::string reported = doubt(*this); !reported.empty()) out.push_back(std::move(reported));
    if (!out.empty()) break;
  }
  return out;
}

std::string RoutingAnalysis::HowToSettle(bool excluded_before) const {
  std::vector<std::string> reported = doubts(excluded_before);
  const bool replayed = MayBeReplayed(*this);
  if (!replayed)
    reported.emplace_back(
        "It is not a proof, even with many bits: unrecorded draws, prices and scores cannot be "
        "replayed.");
  return absl::StrCat(certificate.pair.found() ? kOwnDraw : "", absl::StrJoin(reported, " "),
                      reported.empty() ? "" : " ", kRouterItself, replayed ? kOurRouter : "", ".");
}

}  // namespace plumbline::analysis
