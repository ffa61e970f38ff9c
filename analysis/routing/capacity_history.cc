#include "analysis/routing/capacity_history.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/frame/frame.h"
#include "analysis/routing/capacity_follows.h"
#include "analysis/routing/causes.h"

namespace plumbline::analysis {
namespace {

constexpr size_t kMostCalls = 64;
constexpr double kReplayBits = 20;  // the same, of a queue that gives every assignment
// Every recorded call of every layer is a chance for a coincidence.
constexpr double kFollowBits = 24;

}  // namespace

// Only a capacity that the refusals themselves show is of interest.
std::optional<CapacityHistory::Shown> CapacityHistory::ShownBy(const RoutingAnalysis& a) {
  const RoutingCase& c = a.c;
  if (!a.blocked.empty() || c.dropped == 0 || !a.saturation.contradiction.empty()) return {};
  const bool exhibited = a.saturation.basis == Saturation::Basis::kExhibited;
  if (a.saturation.capacity <= 0 || c.pool_rows.empty()) return {};
  if (!exhibited && a.saturation.refusing_cells == 0) return {};
  const bool replayed_only = exhibited && !(a.saturation.bits >= kCapacityShownBits);
  if (replayed_only && !(a.first_come.best.bits >= kReplayBits)) return {};
  const auto rows = std::minmax_element(c.pool_rows.begin(), c.pool_rows.end());
  if (*rows.first != *rows.second) return {};
  Shown shown{*rows.first, c.tokens - c.judged_rows,
              replayed_only ? -a.saturation.capacity : a.saturation.capacity,
              std::vector<int64_t>(static_cast<size_t>(c.experts))};
  for (const Cell& cell : a.saturation.cells) {
    int64_t& most = shown.offered[static_cast<size_t>(cell.expert)];
    most = std::max(most, cell.candidates());
  }
  std::sort(shown.offered.begin(), shown.offered.end());
  return shown;
}

void CapacityHistory::Take(const RoutingAnalysis& a) {
  std::optional<Shown> shown = ShownBy(a);
  if (!shown.has_value()) return;
  calls_.push_back(std::move(*shown));
  if (calls_.size() > kMostCalls) calls_.pop_front();
}

std::optional<v1::Verdict> CapacityHistory::Judge(const RoutingAnalysis& a,
                                                  double hint_bits) const {
  const std::optional<Shown> own = ShownBy(a);
  if (!own.has_value()) return std::nullopt;
  std::vector<CapacityCall> calls;
  std::set<int64_t> distinct;
  for (const Shown& call : calls_) {
    if (call.rows != own->rows || call.padding != own->padding ||
        call.offered.size() != own->offered.size())
      continue;
    distinct.insert(std::abs(call.capacity));
    if (call.capacity < 0) continue;
    calls.push_back({call.capacity, call.offered});
  }
  if (distinct.size() < 2) return std::nullopt;
  const std::string fact =
      absl::StrCat("calls of ", own->rows, " rows refused at ", absl::StrJoin(distinct, ", "));
  const CapacityFollows follows = FindCapacityFollows(calls);
  if (own->capacity < 0 || !(follows.bits >= std::max(kFollowBits, hint_bits))) {
    return Inconclusive(absl::StrCat(
        "capacity-differs: ", fact,
        "; a schedule, or a capacity that is computed from the batch. Record capacity"));
  }
  const RoutingCause& cause = CauseOf("capacity-follows-tokens");
  FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_HEURISTIC);
  found.Title(absl::StrCat("routing depends on later tokens: ", cause.title))
      .Explain(
          absl::StrFormat("Among %d recorded %s. The capacity rises with %s (%.1f bits): it is "
                          "computed from the tokens of the call, which includes later ones.",
                          calls.size(), fact, follows.how, follows.bits))
      .Cause(cause.id, 0.9)
      .Measured("different capacities", static_cast<double>(distinct.size()), "capacities")
      .Threshold(1, "calls of one size have one capacity")
      .Samples(calls.size())
      .Fix(std::string(cause.fix));
  found.Witness("bits", follows.bits);
  return found.Take();
}

}  // namespace plumbline::analysis
