#include "rules/lib/routing_trials.h"

namespace plumbline::rules {
namespace {

// a surely comes before b; neither: they tie.
bool Before(const Candidate& a, const Candidate& b) {
  if (a.rank != b.rank) return a.rank < b.rank;
  return a.value - b.value > a.tolerance + b.tolerance;
}

// The order of admission; among equals any.
bool Ahead(const Candidate& a, const Candidate& b) {
  return a.rank != b.rank ? a.rank < b.rank : a.value > b.value;
}

// No refused candidate surely comes before a kept one.
bool Separates(const std::vector<Candidate>& cell) {
  const Candidate* weakest_kept = nullptr;
  const Candidate* strongest_refused = nullptr;
  for (const Candidate& x : cell) {
    const Candidate*& end = x.kept ? weakest_kept : strongest_refused;
    // The furthest a rounding may have moved it towards the other side.
    const double edge = x.kept ? x.value + x.tolerance : -(x.value - x.tolerance);
    const int rank = x.kept ? -x.rank : x.rank;
    const bool further = end == nullptr || rank < (x.kept ? -end->rank : end->rank) ||
                         (x.rank == end->rank && edge < (x.kept ? end->value + end->tolerance
                                                                : -(end->value - end->tolerance)));
    if (further) end = &x;
  }
  return strongest_refused == nullptr || weakest_kept == nullptr ||
         !Before(*strongest_refused, *weakest_kept);
}

bool ManyValues(const std::vector<Candidate>& cell) {
  std::set<double> values;
  for (const Candidate& x : cell) {
    values.insert(x.value);
    if (values.size() > 16) return true;
  }
  return !FewValues(values.size(), cell.size());
}

}  // namespace

RefusingCells CollectCells(const RoutingCase& c, const Saturation& s) {
  std::vector<uint8_t> refuses(s.cells.size());
  for (size_t i = 0; i < refuses.size(); ++i) refuses[i] = s.cells[i].refused > 0;
  RefusingCells out{GroupByCell(c, refuses), {}};
  const std::vector<uint8_t> fresh = FreshCells(c, s);
  for (size_t cell : out.list.cell) out.fresh.push_back(fresh[cell]);
  return out;
}

CellResult JudgeCell(std::vector<Candidate>& cell, bool few_values_allowed, bool ranked) {
  CellResult out;
  const auto kept =
      std::count_if(cell.begin(), cell.end(), [](const Candidate& x) { return x.kept; });
  if (kept == 0) {
    out.agree = static_cast<int64_t>(cell.size());
    return out;
  }
  out.exact = Separates(cell);
  std::nth_element(cell.begin(), cell.begin() + (kept - 1), cell.end(), Ahead);
  const Candidate cut = cell[static_cast<size_t>(kept - 1)];
  double near = 0, near_kept = 0, boundary = 0, boundary_kept = 0;
  for (size_t i = 0; i < cell.size(); ++i) {
    const Candidate& candidate = cell[i];
    const bool tie = !Before(candidate, cut) && !Before(cut, candidate);
    near += tie;
    near_kept += tie && candidate.kept;
    out.agree += tie || (static_cast<int64_t>(i) < kept) == candidate.kept ? 1 : 0;
    boundary += candidate.rank == cut.rank;
    boundary_kept += candidate.rank == cut.rank && candidate.kept;
  }
  out.tie_bits = Log2Choose(near, near_kept);
  if (few_values_allowed || ManyValues(cell)) {
    out.bits = Log2Choose(static_cast<double>(cell.size()), static_cast<double>(kept));
    out.bits -= std::min(out.bits, out.tie_bits);
  }
  out.luck_bits = ExactCountBits(boundary, boundary_kept);
  out.raw_bits = out.bits;
  // First choices alone filled it: whether second ones ever had a chance does not show.
  if (cut.rank == 0 && ranked) out.bits = out.luck_bits = 0;
  return out;
}

}  // namespace plumbline::rules
