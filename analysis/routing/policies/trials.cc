#include "analysis/routing/policies/trials.h"

#include <set>

namespace plumbline::analysis {
namespace {

// Returns true if a surely comes before b. If neither does, they tie.
bool Before(const Candidate& a, const Candidate& b) {
  if (a.rank != b.rank) return a.rank < b.rank;
  return a.value - b.value > a.tolerance + b.tolerance;
}

// The order of admission; equal candidates in any order.
bool Ahead(const Candidate& a, const Candidate& b) {
  return a.rank != b.rank ? a.rank < b.rank : a.value > b.value;
}

// Returns true if no refused candidate surely comes before a kept one.
bool Separates(const std::vector<Candidate>& cell) {
  const Candidate* weakest_kept = nullptr;
  const Candidate* strongest_refused = nullptr;
  for (const Candidate& x : cell) {
    const Candidate*& end = x.kept ? weakest_kept : strongest_refused;
    // The true value, if rounding moved it as far as possible towards the other side.
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

using Priority = RankedReplay::Priority;

constexpr size_t kEnough = 4096;  // choices after which a refuted policy is abandoned

// Returns true if a refused choice's key equals that of the lowest admission.
bool RefusesAnEqual(std::span<const Choice> choices, std::span<const Key> keys) {
  double least = HUGE_VAL;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (choices[i].kept) least = std::min(least, keys[i].value);
  }
  bool kept = false, refused = false;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].value == least) (choices[i].kept ? kept : refused) = true;
  }
  return kept && refused;
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
  for (size_t i = 0; i < out.cells() && out.list.begin[i] <= kEnough; ++i) {
    if (out.list.begin[i + 1] > 4 * kEnough) break;
    for (int32_t choice : out.list.ChoicesOf(i)) {
      out.head.push_back(c.choices[static_cast<size_t>(choice)]);
    }
  }
  return out;
}

std::span<const Choice> RefusingCells::Candidates(const RoutingCase& c, size_t i,
                                                  std::vector<Choice>& scratch) const {
  const std::span<const int32_t> choices = list.ChoicesOf(i);
  if (list.begin[i + 1] <= head.size())
    return std::span(head).subspan(list.begin[i], choices.size());
  scratch.clear();
  for (int32_t choice : choices) scratch.push_back(c.choices[static_cast<size_t>(choice)]);
  return scratch;
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
  // First choices alone filled the cell, so it does not show whether second choices were
  // considered.
  if (cut.rank == 0 && ranked) out.bits = out.luck_bits = 0;
  return out;
}

namespace {

// Returns false if the score is not finite or the rank is not known: such a choice is no evidence.
bool Reports(const RankedReplay& replay, const Choice& choice, const Key& key) {
  return std::isfinite(key.value) && !(replay.rank_first && choice.rank < 0);
}
Candidate CandidateOf(const RankedReplay& replay, const Choice& choice, const Key& key) {
  return {replay.rank_first ? choice.rank : int16_t{0}, choice.kept, key.value, key.tolerance};
}

// The table of numbers that would give the same choices as a policy; filled cell by cell.
class StoredTable {
 public:
  StoredTable(const RankedReplay& replay, const RoutingCase& c)
      : by_score_(replay.by_score()),
        rank_first_(replay.rank_first),
        ranks_(static_cast<size_t>(rank_first_ ? c.top_k : 1)),
        numbers_(replay.Describe(), static_cast<size_t>(c.experts) * ranks_) {}

  void Add(int32_t expert, const std::vector<Candidate>& cell) {
    const size_t first = static_cast<size_t>(expert) * ranks_;
    by_score_ ? AddBars(first, cell) : AddCounts(first, cell);
  }
  StoredNumbers Take() { return std::move(numbers_); }

 private:
  size_t RankOf(const Candidate& x) const {
    return rank_first_ ? std::min(static_cast<size_t>(std::max<int16_t>(x.rank, 0)), ranks_ - 1)
                       : 0;
  }
  void AddBars(size_t first, const std::vector<Candidate>& cell) {
    for (const Candidate& x : cell) {
      const size_t entry = first + RankOf(x);
      x.kept ? numbers_.AtMost(entry, x.value + x.tolerance)
             : numbers_.AtLeast(entry, x.value - x.tolerance);
    }
  }
  // Adds how many choices of each rank are kept, or, for a queue out of order, refused.
  void AddCounts(size_t first, const std::vector<Candidate>& cell) {
    std::vector<double> kept(ranks_, 0), refused(ranks_, 0);
    for (const Candidate& x : cell) ++(x.kept ? kept : refused)[RankOf(x)];
    for (size_t rank = 0; rank < ranks_; ++rank) {
      const double number = rank_first_ ? kept[rank] : refused[rank];
      numbers_.AtLeast(first + rank, number);
      if (refused[rank] > 0) numbers_.AtMost(first + rank, number);
    }
  }

  bool by_score_, rank_first_;
  size_t ranks_;
  StoredNumbers numbers_;
};

// If the first cell is large, tests some of its candidates, which refute most policies. Returns
// true if they refute this policy; then `share` is that of the tested candidates.
bool RefutedBySample(const RoutingCase& c, const RefusingCells& cells, KeySource& keys,
                     RankedReplay& replay) {
  const std::span<const int32_t> choices = cells.list.ChoicesOf(0);
  const size_t stride = choices.size() / kEnough;
  if (stride < 2) return false;
  const std::span<const Key> key = keys.Sample(stride);
  std::vector<Candidate> sample;
  for (size_t n = 0; n < key.size(); ++n) {
    const Choice& choice = c.choices[static_cast<size_t>(choices[n * stride])];
    if (Reports(replay, choice, key[n])) sample.push_back(CandidateOf(replay, choice, key[n]));
  }
  const bool by_place = replay.priority == Priority::kPlace;
  const CellResult result = JudgeCell(sample, by_place, replay.rank_first);
  if (result.exact) return false;
  replay.share = static_cast<double>(result.agree) / static_cast<double>(sample.size());
  return true;
}

}  // namespace

Trial TryPolicy(const RoutingCase& c, const RefusingCells& cells, KeySource& keys,
                RankedReplay replay) {
  Trial trial{std::move(replay), {}};
  RankedReplay& out = trial.replay;
  const bool own = out.priority == Priority::kOwnScore && !out.rank_first;
  if (RefutedBySample(c, cells, keys, out)) return trial;
  out.exact = cells.cells() > 0;
  int64_t agree = 0;
  size_t seen = 0;
  std::vector<Candidate> cell;
  std::vector<Choice> scratch;
  StoredTable stored(out, c);
  for (size_t i = 0; i < cells.cells() && (out.exact || seen <= kEnough); ++i) {
    const std::span<const Choice> choices = cells.Candidates(c, i, scratch);
    const std::span key = keys.Cell(i, out.exact);
    cell.clear();
    for (size_t n = 0; n < choices.size(); ++n) {
      if (Reports(out, choices[n], key[n])) cell.push_back(CandidateOf(out, choices[n], key[n]));
    }
    const CellResult result = JudgeCell(cell, out.priority == Priority::kPlace, out.rank_first);
    agree += result.agree;
    seen += cell.size();
    out.exact &= result.exact;
    if (own && out.exact && RefusesAnEqual(choices, key)) {
      out.tied_cells.push_back(cells.list.cell[i]);
    }
    trial.evidence[choices.front().expert].Add(cell, result, cells.fresh[i] != 0);
    if (out.exact) stored.Add(choices.front().expert, cell);
  }
  out.share = static_cast<double>(agree) / static_cast<double>(std::max<size_t>(seen, 1));
  if (out.exact) out.stored = stored.Take();
  return trial;
}

// Moves the replays out of `trials`.
std::vector<RankedReplay> Weigh(
    std::vector<Trial> trials) {  // NOLINT(performance-unnecessary-value-param)
  std::set<int32_t> thresholds;
  for (const auto& [replay, evidence] : trials) {
    const bool own = replay.by_own_score() && !replay.rank_first;
    for (const auto& [expert, of] : evidence) {
      const bool reports = of.best().raw_bits > of.best().tie_bits;
      if (own && replay.exact && reports && of.one_threshold()) thresholds.insert(expert);
    }
  }
  std::vector<RankedReplay> weighed;
  for (auto& [replay, evidence] : trials) {
    for (const auto& [expert, of] : evidence) {
      const bool once = replay.by_score() && thresholds.contains(expert);
      const CellResult& worth = once ? of.best() : of.sum();
      replay.bits += worth.bits;
      replay.raw_bits += worth.raw_bits;
      replay.tie_bits += worth.tie_bits;
      replay.luck_bits += worth.luck_bits;
    }
    weighed.push_back(std::move(replay));
  }
  return weighed;
}

}  // namespace plumbline::analysis
