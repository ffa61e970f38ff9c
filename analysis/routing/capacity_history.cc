#include "analysis/routing/capacity_history.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/frame/frame.h"
#include "analysis/routing/causes.h"

namespace plumbline::analysis {
namespace {

constexpr size_t kMostCalls = 64;
constexpr double kShownBits = 4;    // bits of evidence that a call refuses at one number
constexpr double kReplayBits = 20;  // the same, of a queue that gives every assignment

// Returns true if the numbers only rise, or only fall: a schedule.
bool Monotone(const std::vector<int64_t>& numbers) {
  return std::is_sorted(numbers.begin(), numbers.end()) ||
         std::is_sorted(numbers.rbegin(), numbers.rend());
}

// Returns log2 of the number of distinct orders of these numbers.
double OrderBits(const std::vector<int64_t>& numbers) {
  std::map<int64_t, int64_t> counts;
  double bits = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    bits += std::log2(static_cast<double>(i + 1));
    bits -= std::log2(static_cast<double>(++counts[numbers[i]]));
  }
  return bits;
}

// Returns true if one number is a rising function of the other.
bool Follows(const std::vector<int64_t>& number, const std::vector<double>& of) {
  std::vector<std::pair<double, int64_t>> pairs;
  for (size_t i = 0; i < of.size(); ++i) pairs.emplace_back(of[i], number[i]);
  std::sort(pairs.begin(), pairs.end());
  for (size_t i = 1; i < pairs.size(); ++i) {
    const bool same = pairs[i].first == pairs[i - 1].first;
    if (pairs[i].second < pairs[i - 1].second || (same && pairs[i].second != pairs[i - 1].second))
      return false;
  }
  return true;
}

}  // namespace

// Only a capacity that the refusals themselves show is of interest.
std::optional<CapacityHistory::Shown> CapacityHistory::ShownBy(const RoutingAnalysis& a) {
  const RoutingCase& c = a.c;
  if (!a.blocked.empty() || c.dropped == 0 || !a.saturation.contradiction.empty()) return {};
  const bool exhibited = a.saturation.basis == Saturation::Basis::kExhibited;
  if (a.saturation.capacity <= 0 || c.pool_rows.empty()) return {};
  if (!exhibited && a.saturation.refusing_cells == 0) return {};
  const bool replayed_only = exhibited && !(a.saturation.bits >= kShownBits);
  if (replayed_only && !(a.first_come.best.bits >= kReplayBits)) return {};
  const auto rows = std::minmax_element(c.pool_rows.begin(), c.pool_rows.end());
  if (*rows.first != *rows.second) return {};
  Shown shown{*rows.first, c.tokens - c.judged_rows,
              replayed_only ? -a.saturation.capacity : a.saturation.capacity,
              std::vector<int64_t>(static_cast<size_t>(c.experts))};
  for (const Cell& cell : a.saturation.cells)
    shown.offered[static_cast<size_t>(cell.expert)] += cell.candidates();
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
  std::vector<const Shown*> calls;
  std::vector<int64_t> capacities;
  std::set<int64_t> distinct;
  for (const Shown& call : calls_) {
    if (call.rows != own->rows || call.padding != own->padding ||
        call.offered.size() != own->offered.size())
      continue;
    distinct.insert(std::abs(call.capacity));
    if (call.capacity < 0) continue;
    calls.push_back(&call);
    capacities.push_back(call.capacity);
  }
  if (distinct.size() < 2) return std::nullopt;
  const std::string fact =
      absl::StrCat("calls of ", own->rows, " rows refused at ", absl::StrJoin(distinct, ", "));
  double best = 0;
  std::string how;
  const size_t experts = own->offered.size();
  for (size_t rank = 0; rank <= experts && !Monotone(capacities); ++rank) {
    std::vector<double> of;
    for (const Shown* call : calls) {
      double squares = 0;
      for (const int64_t n : call->offered) squares += static_cast<double>(n * n);
      of.push_back(rank < experts ? static_cast<double>(call->offered[experts - 1 - rank])
                                  : squares);
    }
    const double bits = OrderBits(capacities) - std::log2(static_cast<double>(experts + 1));
    if (!Follows(capacities, of) || !(bits > best)) continue;
    best = bits;
    how = rank < experts
              ? absl::StrFormat("the number of tokens that the expert of rank %d was offered",
                                rank + 1)
              : "the spread of the experts' loads";
  }
  if (own->capacity < 0 || !(best >= hint_bits)) {
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
                          calls.size(), fact, how, best))
      .Cause(cause.id, 0.9)
      .Measured("different capacities", static_cast<double>(distinct.size()), "capacities")
      .Threshold(1, "calls of one size have one capacity")
      .Samples(calls.size())
      .Fix(std::string(cause.fix));
  found.Witness("bits", best);
  return found.Take();
}

}  // namespace plumbline::analysis
