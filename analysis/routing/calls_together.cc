#include "analysis/routing/calls_together.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"

namespace plumbline::analysis {

// A call without refusals is ignored. If a queue in time order gives the call too, it is no
// evidence. If only a queue gives it, or if it shows another capacity, it is a contradiction.
void CallsTogether::Take(const RoutingAnalysis& a) {
  const RoutingCase& c = a.c;
  if (contradicted_ || !a.blocked.empty() || c.dropped == 0 || !c.ordered()) return;
  if (a.saturation.basis != Saturation::Basis::kExhibited) return;
  const RankedReplay* leak = a.by_ties() ? nullptr : a.leak();
  const bool queued = a.first_come.best.fits;
  if (leak != nullptr && (queued || a.structured)) return;
  const auto rows = std::minmax_element(c.pool_rows.begin(), c.pool_rows.end());
  const bool first = calls_ == 0;
  contradicted_ =
      leak == nullptr || !a.saturation.contradiction.empty() || *rows.first != *rows.second ||
      (!first &&
       (leak->Describe() != policy_ || a.saturation.capacity != capacity_ || *rows.first != rows_));
  if (contradicted_) return;
  policy_ = leak->Describe();
  capacity_ = a.saturation.capacity;
  rows_ = *rows.first;
  policy_bits_ += leak->raw_bits;
  inversions_ += static_cast<uint64_t>(a.inversions.inversions);
  ++calls_;
  TakeCells(a);
}

void CallsTogether::TakeCells(const RoutingAnalysis& a) {
  for (const Cell& cell : a.saturation.cells) {
    if (cell.refused == 0 || seen_.size() >= kMostSeen) continue;
    if (!seen_.emplace(cell.expert, cell.candidates()).second) continue;
    const double bits = HoldingBits(cell);
    capacity_bits_ += bits;
    best_bits_ = std::max(best_bits_, bits);
  }
}

std::string CallsTogether::Describe() const {
  return absl::StrFormat(
      "In %d calls of this layer so far, for %d refused choices the same full expert later "
      "admitted a token of the same sequence. %s replays every assignment (%.1f bits in all), and "
      "full experts have the same number of tokens in each call (%.1f bits); first come first "
      "served replays none of the calls.",
      calls_, inversions_, Capitalised(policy_), policy_bits(), capacity_bits());
}

}  // namespace plumbline::analysis
