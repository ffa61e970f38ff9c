#include "analysis/routing/structure.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "analysis/routing/call/call.h"
#include "analysis/sample/sample.h"
#include "base/half.h"

namespace plumbline::analysis {
namespace {

constexpr const char* kOneSequence =
    "Only one sequence competes: a rule stored for its tokens gives the same result. Record "
    "several sequences, or several pools.";
constexpr const char* kCopies =
    "The pools have the same scores, shifted or scaled: a stored rule gives the same result in "
    "each.";
constexpr const char* kSameNumbers =
    "Every pool keeps the same number of each choice rank at each expert: stored numbers can give "
    "this.";
constexpr const char* kAlike =
    "All sequences make the same number of choices of each full expert: they have the same tokens, "
    "for which a rule can be stored.";
constexpr const char* kGaps =
    "Experts cut at a gap in the scores that is far wider than its neighbours, as experts that "
    "learned a table do.";
constexpr const char* kOneCut =
    "One position per expert separates kept and refused tokens: a stored position can give this.";

// The places of the judged rows.
struct Layout {
  DenseIds sequences;
  // Per pool: 1 if it has judged rows; 1 if they are from several sequences.
  std::vector<uint8_t> used, several;
  int64_t pools_used = 0;
  bool any_several = false;

  explicit Layout(const RoutingCase& c)
      : sequences(NumberIds(c.sequence)),
        used(static_cast<size_t>(c.pools)),
        several(static_cast<size_t>(c.pools)) {
    std::vector<int32_t> first(static_cast<size_t>(c.pools), -1);
    for (int32_t t = 0; t < c.tokens; ++t) {
      if (!c.judged(t)) continue;
      const auto row = static_cast<size_t>(t);
      const auto pool = static_cast<size_t>(c.pool[row]);
      const int32_t sequence = sequences.of_row[row];
      if (first[pool] < 0) first[pool] = sequence;
      pools_used += used[pool] == 0;
      used[pool] = 1;
      several[pool] |= first[pool] != sequence;
      any_several |= several[pool] != 0;
    }
  }
};

// Only experts with refusals distinguish policies. For columns every expert is full.
bool FullExpert(const RoutingAnalysis& a, const Choice& choice) {
  return a.columns() || a.saturation.full[CellOfToken(a.c, choice.token, choice.expert)] != 0;
}

// Returns true if, in pools of several sequences, each sequence chooses (or keeps) the same number
// at each full expert.
bool SequencesAlike(const RoutingAnalysis& a, const Layout& layout, bool kept_alone) {
  const RoutingCase& c = a.c;
  const auto experts = static_cast<size_t>(c.experts);
  std::map<std::pair<int32_t, int32_t>, std::vector<int64_t>> requested;  // by (pool, sequence)
  std::vector<uint8_t> full(static_cast<size_t>(c.pools) * experts, 0);
  // Rows of one sequence are mostly consecutive, so its counts are looked up once per stretch.
  std::vector<int64_t>* at = nullptr;
  std::pair<int32_t, int32_t> open{-1, -1};
  for (const Choice& choice : c.choices) {
    const auto row = static_cast<size_t>(choice.token);
    if (!c.judged(choice.token) || !layout.several[static_cast<size_t>(c.pool[row])]) continue;
    const std::pair<int32_t, int32_t> part{c.pool[row], layout.sequences.of_row[row]};
    if (at == nullptr || part != open) {
      at = &requested[part];
      at->resize(experts, 0);
      open = part;
    }
    (*at)[static_cast<size_t>(choice.expert)] += !kept_alone || choice.kept;
    if (FullExpert(a, choice)) full[CellOfToken(c, choice.token, choice.expert)] = 1;
  }
  // The map is sorted by pool: each pool's sequences are compared with its first one.
  const std::vector<int64_t>* first = nullptr;
  int32_t pool = -1;
  for (const auto& [part, counts] : requested) {
    if (part.first != pool) {
      pool = part.first;
      first = &counts;
      continue;
    }
    for (size_t e = 0; e < experts; ++e) {
      if (full[static_cast<size_t>(pool) * experts + e] && counts[e] != (*first)[e]) return false;
    }
  }
  return !requested.empty();
}

// Returns the values of an expert at nine ranks among a pool's rows.
std::vector<double> Quantiles(const RoutingCase& c, const std::vector<int32_t>& rows, int32_t e) {
  std::vector<double> values;
  for (const int32_t t : rows) values.push_back(c.scores.At(t, e));
  std::sort(values.begin(), values.end());
  std::vector<double> out;
  for (size_t q = 0; q <= 8; ++q) out.push_back(values[q * (values.size() - 1) / 8]);
  return out;
}

// Returns true if b = a + constant, or b = a * constant, within the rounding of the recording, at
// nine quantiles each.
bool ShiftedOrScaled(const std::vector<double>& a, const std::vector<double>& b, DType dtype) {
  double least = HUGE_VAL, most = -HUGE_VAL, size = 0;
  double low = HUGE_VAL, high = -HUGE_VAL;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return false;
    least = std::min(least, a[i] - b[i]);
    most = std::max(most, a[i] - b[i]);
    size = std::max({size, std::fabs(a[i]), std::fabs(b[i])});
    low = std::min(low, a[i] / b[i]);
    high = std::max(high, a[i] / b[i]);
  }
  const double open = 1e-5 * (a.back() - a.front()) + 4 * UlpOf(size, dtype);
  return most - least <= open || (low > 0 && high - low <= 1e-4 * high);
}

// Returns true if two pools with equally many rows have columns that are copies.
bool PoolsAreCopies(const RoutingCase& c) {
  constexpr size_t kFewest = 8, kMost = 65536;
  std::map<size_t, std::vector<int32_t>> by_size;  // rows of the first pool of that size
  std::vector<std::vector<int32_t>> rows(static_cast<size_t>(c.pools));
  for (int32_t t = 0; t < c.tokens; ++t) {
    if (c.judged(t)) rows[static_cast<size_t>(c.pool[static_cast<size_t>(t)])].push_back(t);
  }
  for (const std::vector<int32_t>& mine : rows) {
    if (mine.size() < kFewest || mine.size() > kMost) continue;
    const auto [first, fresh] = by_size.try_emplace(mine.size(), mine);
    if (fresh) continue;
    const int32_t looked = std::min(c.experts, 16);
    int32_t copies = 0;
    for (int32_t e = 0; e < looked; ++e)
      copies +=
          ShiftedOrScaled(Quantiles(c, first->second, e), Quantiles(c, mine, e), c.scores.dtype());
    return 4 * copies >= 3 * looked;
  }
  return false;
}

// Returns true if each refusing (expert, choice rank) keeps one number in all pools.
bool SameNumbers(const RoutingCase& c) {
  struct Count {
    int64_t kept = 0, refused = 0;
  };
  std::map<std::pair<int32_t, int16_t>, std::map<int32_t, Count>> counts;  // by pool
  for (const Choice& choice : c.choices) {
    if (!c.judged(choice.token)) continue;
    Count& count = counts[{choice.expert, choice.rank}][c.pool[static_cast<size_t>(choice.token)]];
    ++(choice.kept ? count.kept : count.refused);
  }
  for (const auto& [key, pools] : counts) {
    int64_t number = -1;
    for (const auto& [pool, count] : pools) {
      if (count.refused == 0) continue;
      if (number >= 0 && count.kept != number) return false;
      number = count.kept;
    }
  }
  return true;
}

// Returns true if each expert keeps all from some position on, or until some position.
bool OnePositionParts(const RoutingCase& c) {
  struct Ends {
    int64_t first_kept = INT64_MAX, last_kept = INT64_MIN;
    int64_t first_refused = INT64_MAX, last_refused = INT64_MIN;
  };
  std::vector<Ends> ends(static_cast<size_t>(c.experts));
  for (const Choice& choice : c.choices) {
    if (!c.judged(choice.token)) continue;
    const int64_t position = c.position[static_cast<size_t>(choice.token)];
    Ends& e = ends[static_cast<size_t>(choice.expert)];
    int64_t& first = choice.kept ? e.first_kept : e.first_refused;
    int64_t& last = choice.kept ? e.last_kept : e.last_refused;
    first = std::min(first, position);
    last = std::max(last, position);
  }
  return std::all_of(ends.begin(), ends.end(), [](const Ends& e) {
    return e.last_refused < e.first_kept || e.last_kept < e.first_refused;
  });
}

// Returns true if scores leave gaps at the cut that are far wider than their neighbours, as scores
// that have learned a table do. Also for fewer kept tokens than other tests of gaps need, and for
// another key than the replay's. Tests at most 64 columns.
bool CutsInGaps(const RoutingAnalysis& a, KeyKind kind) {
  constexpr size_t kAdjacent = 8, kMostRows = 4096;
  constexpr int64_t kMostCells = 64;
  const RoutingCase& c = a.c;
  std::vector<std::vector<int32_t>> rows(static_cast<size_t>(c.pools));
  for (int32_t t = 0; t < c.tokens; ++t) {
    const bool known = c.judged(t) && c.rows[static_cast<size_t>(t)] != RowState::kNonFinite;
    if (known) rows[static_cast<size_t>(c.pool[static_cast<size_t>(t)])].push_back(t);
  }
  const KeyReader reader(c, kind);
  int64_t reported = 0, wide = 0;
  std::vector<double> in, out;
  for (const std::vector<int32_t>& pool : rows) {
    if (pool.size() < 2 * kAdjacent || pool.size() > kMostRows) continue;
    for (int32_t e = 0; e < c.experts && reported < kMostCells; ++e) {
      in.clear();
      out.clear();
      for (const int32_t t : pool) {
        const std::span<const Choice> row = c.ChoicesOf(t);
        const bool taken = std::any_of(row.begin(), row.end(), [&](const Choice& choice) {
          return choice.expert == e && choice.kept;
        });
        (taken ? in : out).push_back(reader.At(t, e, 0).value);
      }
      // The gap at the cut is compared with the mean gap of the neighbours on both sides.
      if (in.size() < 2 || out.size() <= kAdjacent) continue;
      const size_t adjacent = std::min(kAdjacent, in.size() - 1);
      std::sort(in.begin(), in.end());
      std::partial_sort(out.begin(), out.begin() + kAdjacent + 1, out.end(), std::greater<>());
      const double spacing = (in[adjacent] - in[0] + out[0] - out[kAdjacent]) /
                             static_cast<double>(adjacent + kAdjacent);
      ++reported;
      wide += in[0] - out[0] > 8 * spacing;
    }
  }
  return reported > 0 && 8 * wide > reported;
}

}  // namespace

// Tests a queue by position, and columns by the gaps in their scores. Then compares pools with each
// other, and the sequences of a pool.
std::string StructureDoubt(const RoutingAnalysis& a) {
  const RankedReplay* leak = a.leak();
  if ((!a.columns() && leak == nullptr) || !a.c.ordered()) return "";
  const Layout layout(a.c);
  const bool queue = !a.columns() && !leak->by_score();
  if (queue && OnePositionParts(a.c)) return kOneCut;
  if (a.columns() && (CutsInGaps(a, a.column.key) || CutsInGaps(a, KeyKind::kRecorded)))
    return kGaps;
  if (layout.pools_used > 1 && PoolsAreCopies(a.c)) return kCopies;
  if (layout.any_several) {
    const bool alike = SequencesAlike(a, layout, false) || SequencesAlike(a, layout, true);
    return alike ? kAlike : "";
  }
  if (layout.pools_used < 2) return kOneSequence;
  const bool by_rank = !a.columns() && (queue || leak->rank_first);
  return by_rank && SameNumbers(a.c) ? kSameNumbers : "";
}

}  // namespace plumbline::analysis
