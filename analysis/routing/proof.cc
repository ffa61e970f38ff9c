// What keeps a replay from being a proof, and what would settle it. Spec: routing causality, "What
// proves".
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/routing/analysis.h"
#include "analysis/routing/call/call.h"
#include "analysis/routing/structure.h"

namespace plumbline::rules {
namespace {

// With the router in hand; with the recording alone.
constexpr const char* kRouterItself =
    "Run the router itself with another suffix (plumbline.check_router), which proves or acquits";
constexpr const char* kOurRouter =
    ", or our own router of this policy (plumb audit --set causality/moe-intervention.replay=on)";

// Draws, prices and what no policy gives stand for no router that could be run again.
bool MayBeReplayed(const RoutingAnalysis& a) {
  return a.columns() || a.first_come.best.fits || (a.leak() != nullptr && !a.by_ties());
}

// Pairs that no policy explains: selection sampling from a stored demand leaves those of a draw
// among all that came.
constexpr const char* kOwnDraw =
    "Where a token is refused by a draw of its own (at a stored rate or demand), record "
    "randomness. ";

std::string CapacityDoubt(const v1::RoutingConfig& config) {
  if (DeclaresCapacity(config)) return "";
  return SetsCapacity(config)
             ? "The capacity was inferred from what experts hold: record the number "
               "of the router's configuration (capacity)."
             : "The capacity was not recorded: record the number of the router's "
               "configuration (capacity).";
}

}  // namespace

bool RoutingAnalysis::firm_pools() const { return c.pool_basis == PoolBasis::kRecorded; }

std::vector<std::string> RoutingAnalysis::doubts() const {
  std::vector<std::string> out;
  if (std::string capacity = CapacityDoubt(c.routing->config()); !capacity.empty())
    out.push_back(std::move(capacity));
  if (!firm_pools())
    out.emplace_back(
        "Pools are metadata or a guess: record row by row who shares a capacity (pool_id).");
  const StoredThresholds& stored = columns() ? column.thresholds : thresholds;
  if (stored.any())
    out.push_back(absl::StrCat("A stored rule gives every assignment too: ", stored.name(), "."));
  if (structured)
    out.emplace_back(
        "The data's structure may make the counts equal: tokens come in kinds that occur equally "
        "often, "
        "or full experts cut where scores leave a gap.");
  if (out.empty()) {
    if (std::string structure = StructureDoubt(*this); !structure.empty())
      out.push_back(std::move(structure));
  }
  return out;
}

std::string RoutingAnalysis::HowToSettle() const {
  std::vector<std::string> said = doubts();
  const bool replayed = MayBeReplayed(*this);
  if (!replayed)
    said.emplace_back(
        "It is no proof, however many bits it has: draws, prices and keys that were not recorded "
        "cannot be run again.");
  return absl::StrCat(certificate.pair.found() ? kOwnDraw : "", absl::StrJoin(said, " "),
                      said.empty() ? "" : " ", kRouterItself, replayed ? kOurRouter : "", ".");
}

}  // namespace plumbline::rules
