#include "rules/lib/routing_replay.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <numeric>
#include <set>
#include <unordered_map>

namespace plumbline::rules {
namespace {

// Choices of judged rows by cell, of the cells that refuse. Padding that was kept holds its place,
// and what is left is divided among these in every order alike.
std::map<size_t, std::vector<const Choice*>> RefusingCells(const RoutingCase& c,
                                                           const Saturation& s) {
  std::map<size_t, std::vector<const Choice*>> cells;
  for (const Choice& choice : c.choices) {
    const size_t index = static_cast<size_t>(c.pool[static_cast<size_t>(choice.token)]) *
                             static_cast<size_t>(c.experts) +
                         static_cast<size_t>(choice.expert);
    if (c.judged(choice.token) && s.cells[index].refused > 0) cells[index].push_back(&choice);
  }
  return cells;
}

int64_t KeptOf(const std::vector<const Choice*>& cell) {
  return std::count_if(cell.begin(), cell.end(), [](const Choice* choice) { return choice->kept; });
}

// ---- first come, first served ----------------------------------------------------------------

// Each row's place in the queue.
std::vector<int64_t> PlacesByTime(const RoutingCase& c, bool sequence_major) {
  std::vector<int32_t> order(static_cast<size_t>(c.tokens));
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](int32_t t) {
    const auto row = static_cast<size_t>(t);
    // seq-major trainers flatten [S, B]: position first.
    return sequence_major ? std::make_pair(c.position[row], c.sequence[row])
                          : std::make_pair(c.sequence[row], c.position[row]);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return key(a) < key(b); });
  std::vector<int64_t> place(order.size());
  for (size_t i = 0; i < order.size(); ++i)
    place[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return place;
}

// The stored rows are a queue in time order when each sequence's positions rise.
bool RowsInTimeOrder(const RoutingCase& c) {
  std::unordered_map<int64_t, int64_t> last;
  for (int32_t t = 0; t < c.tokens; ++t) {
    if (!c.judged(t)) continue;
    const auto row = static_cast<size_t>(t);
    const auto [entry, fresh] = last.try_emplace(c.sequence[row], c.position[row]);
    if (!fresh && c.position[row] <= entry->second) return false;
    entry->second = c.position[row];
  }
  return true;
}

Replay ReplayQueue(const RoutingCase& c, const std::map<size_t, std::vector<const Choice*>>& cells,
                   const std::vector<int64_t>& place, const char* name) {
  Replay replay;
  replay.variant = name;
  int64_t agree = 0, total = 0;
  for (const auto& [index, cell] : cells) {
    std::vector<const Choice*> queue = cell;
    std::sort(queue.begin(), queue.end(), [&](const Choice* a, const Choice* b) {
      return place[static_cast<size_t>(a->token)] < place[static_cast<size_t>(b->token)];
    });
    const int64_t kept = KeptOf(queue);
    for (size_t i = 0; i < queue.size(); ++i)
      agree += (static_cast<int64_t>(i) < kept) == queue[i]->kept ? 1 : 0;
    total += static_cast<int64_t>(queue.size());
    replay.bits += Log2Choose(static_cast<double>(queue.size()), static_cast<double>(kept));
  }
  replay.exact = agree == total;
  const auto settled = static_cast<int64_t>(c.choices.size()) - total;
  replay.share = static_cast<double>(agree + settled) /
                 static_cast<double>(std::max<int64_t>(total + settled, 1));
  return replay;
}

// Would a queue by (choice rank, place) refuse the same? Choices of unknown rank do not say.
bool RankMajorFits(const std::map<size_t, std::vector<const Choice*>>& cells,
                   const std::vector<int64_t>& place) {
  const auto key = [&](const Choice* choice) {
    return std::make_pair(static_cast<int64_t>(choice->rank),
                          place[static_cast<size_t>(choice->token)]);
  };
  for (const auto& [index, cell] : cells) {
    const Choice* first_refused = nullptr;
    const Choice* last_kept = nullptr;
    for (const Choice* choice : cell) {
      if (choice->rank < 0) continue;
      if (choice->kept && (last_kept == nullptr || key(last_kept) < key(choice)))
        last_kept = choice;
      if (!choice->kept && (first_refused == nullptr || key(choice) < key(first_refused)))
        first_refused = choice;
    }
    const bool both = first_refused != nullptr && last_kept != nullptr;
    if (both && key(first_refused) < key(last_kept)) return false;
  }
  return true;
}

// ---- by score --------------------------------------------------------------------------------

// Scores of a few values are a table, not a competition.
bool FewValues(size_t values, size_t rows) {
  return values <= 2 || values <= std::min<size_t>(16, rows / 4);
}

// Does a key separate the kept from the refused, but for what its rounding may have swapped?
class Boundary {
 public:
  void Add(const Key& key, bool kept) {
    if (kept) least_kept_ = std::min(least_kept_, key.value + key.tolerance);
    if (!kept) most_refused_ = std::max(most_refused_, key.value - key.tolerance);
  }
  bool Separates() const { return !(most_refused_ > least_kept_); }

 private:
  double least_kept_ = HUGE_VAL;
  double most_refused_ = -HUGE_VAL;
};

// One cell's tokens ranked by a key: how many come out as recorded, and how many kept sets the
// ties leave open.
struct RankedCell {
  int64_t agree = 0;
  bool exact = false;
  double tie_bits = 0;
};

RankedCell RankCell(const std::vector<std::pair<Key, bool>>& tokens, int64_t kept) {
  RankedCell out;
  Boundary boundary;
  for (const auto& [key, is_kept] : tokens) boundary.Add(key, is_kept);
  out.exact = boundary.Separates();
  std::vector<double> values;
  for (const auto& [key, is_kept] : tokens) values.push_back(key.value);
  std::sort(values.begin(), values.end(), std::greater<>());
  const double cut = kept > 0 ? values[static_cast<size_t>(kept - 1)] : HUGE_VAL;
  int64_t near = 0, near_kept = 0;
  for (const auto& [key, is_kept] : tokens) {
    const bool tie = !(std::abs(key.value - cut) > 2 * key.tolerance);
    near += tie;
    near_kept += tie && is_kept;
    out.agree += tie || (key.value > cut) == is_kept ? 1 : 0;
  }
  out.tie_bits = Log2Choose(static_cast<double>(near), static_cast<double>(near_kept));
  return out;
}

bool ManyValued(const std::vector<std::pair<Key, bool>>& tokens) {
  std::set<double> values;
  for (const auto& [key, is_kept] : tokens) values.insert(key.value);
  return !FewValues(values.size(), tokens.size());
}

Replay ReplayKey(const RoutingCase& c, const std::map<size_t, std::vector<const Choice*>>& cells,
                 KeyKind kind) {
  const KeyReader reader(c, kind);
  Replay replay;
  replay.variant = KeyName(kind);
  replay.key = kind;
  replay.exact = true;
  int64_t agree = 0, total = 0;
  DistinctCells distinct;
  std::vector<std::pair<Key, bool>> tokens;
  for (const auto& [index, cell] : cells) {
    tokens.clear();
    int64_t kept = 0;
    for (const Choice* choice : cell) {
      // A score that is not finite says nothing for or against; the others are ranked without it.
      const Key key = reader.At(choice->token, choice->expert, choice->rank);
      if (!std::isfinite(key.value)) continue;
      tokens.push_back({key, choice->kept});
      kept += choice->kept;
    }
    const RankedCell ranked = RankCell(tokens, kept);
    replay.exact &= ranked.exact;
    for (const auto& [key, is_kept] : tokens) distinct.Add(key.value);
    if (distinct.Fresh(cell[0]->expert) && ManyValued(tokens)) {
      replay.bits += Log2Choose(static_cast<double>(tokens.size()), static_cast<double>(kept)) -
                     ranked.tie_bits;
    }
    agree += ranked.agree;
    total += static_cast<int64_t>(tokens.size());
  }
  const auto settled = static_cast<int64_t>(c.choices.size()) - total;
  replay.share = static_cast<double>(agree + settled) /
                 static_cast<double>(std::max<int64_t>(total + settled, 1));
  return replay;
}

bool Better(const Replay& a, const Replay& b) {
  return std::make_tuple(a.exact, a.exact ? a.bits : a.share) >
         std::make_tuple(b.exact, b.exact ? b.bits : b.share);
}

// ---- experts that choose ---------------------------------------------------------------------

// -log2 of the binomial chance of exactly C of n at probability C/n: what own thresholds would have
// to hit by luck.
double ExactCountBits(double n, double count) {
  if (count <= 0 || count >= n) return 0;
  const double p = count / n;
  return -(Log2Choose(n, count) + count * std::log2(p) + (n - count) * std::log2(1 - p));
}

// Columns whose scores do not repeat another pool's of the same expert.
std::vector<uint8_t> FreshColumns(const RoutingCase& c) {
  std::vector<std::vector<int32_t>> rows(static_cast<size_t>(c.pools));
  for (int32_t t = 0; t < c.tokens; ++t)
    rows[static_cast<size_t>(c.pool[static_cast<size_t>(t)])].push_back(t);
  DistinctCells distinct;
  std::vector<uint8_t> fresh;
  for (const auto& members : rows) {
    for (int32_t e = 0; e < c.experts; ++e) {
      for (int32_t t : members) distinct.Add(c.scores.At(t, e));
      fresh.push_back(distinct.Fresh(e));
    }
  }
  return fresh;
}

// The same tokens taken at the same positions of every sequence, or scores of few values: a table.
bool Positional(const RoutingCase& c, const std::vector<uint8_t>& taken) {
  const auto experts = static_cast<size_t>(c.experts);
  std::map<int64_t, size_t> first;  // position -> row
  bool repeated = false, same = true;
  std::set<double> values;
  for (int32_t t = 0; t < c.tokens; ++t) {
    if (!c.judged(t)) continue;
    const auto row = static_cast<size_t>(t);
    if (const double x = c.scores.At(t, 0); std::isfinite(x)) values.insert(x);
    const auto [entry, fresh] = first.try_emplace(c.position[row], row);
    if (fresh) continue;
    repeated = true;
    same &= std::equal(taken.begin() + static_cast<std::ptrdiff_t>(row * experts),
                       taken.begin() + static_cast<std::ptrdiff_t>((row + 1) * experts),
                       taken.begin() + static_cast<std::ptrdiff_t>(entry->second * experts));
  }
  return (repeated && same) || FewValues(values.size(), static_cast<size_t>(c.judged_rows));
}

// Holdings per cell; equal over cells of pools of one size?
void CheckEqualHoldings(const RoutingCase& c, const std::vector<int64_t>& held, ColumnChoice& out) {
  std::map<int64_t, int64_t> holding;  // pool size -> C
  const std::vector<uint8_t> fresh_cell = FreshColumns(c);
  double best = 0;
  for (size_t i = 0; i < held.size(); ++i) {
    const int64_t rows = c.pool_rows[i / static_cast<size_t>(c.experts)];
    const auto [entry, fresh] = holding.try_emplace(rows, held[i]);
    if (entry->second != held[i]) return;
    const double bits =
        fresh_cell[i] ? ExactCountBits(static_cast<double>(rows), static_cast<double>(held[i])) : 0;
    out.bits += bits;
    best = std::max(best, bits);
    out.capacity = std::max(out.capacity, held[i]);
  }
  const v1::RoutingConfig& config = c.routing->config();
  const bool declared = config.capacity_kind() == v1::RoutingConfig::CAPACITY_DECLARED;
  if (!declared) out.bits -= best * static_cast<double>(holding.size());
  out.exceeds_declared = declared && out.capacity != static_cast<int64_t>(config.capacity());
  int32_t least = c.experts, most = 0;
  for (int32_t t = 0; t < c.tokens; ++t) {
    if (!c.judged(t)) continue;
    least = std::min(least, c.kept_per_row[static_cast<size_t>(t)]);
    most = std::max(most, c.kept_per_row[static_cast<size_t>(t)]);
  }
  out.equal = out.capacity > 0 && least != most;
}

// In every cell the least taken key is no lower than the greatest left out.
// (`one_pool`: one cut an expert for all pools.)
bool Separates(const RoutingCase& c, const std::vector<uint8_t>& taken, const KeyReader& reader,
               bool one_pool) {
  const size_t cells = static_cast<size_t>(one_pool ? 1 : c.pools) * static_cast<size_t>(c.experts);
  std::vector<Boundary> boundaries(cells);
  for (int32_t t = 0; t < c.tokens; ++t) {
    const RowState state = c.rows[static_cast<size_t>(t)];
    if (state == RowState::kPadding || state == RowState::kNonFinite) continue;
    const auto pool = one_pool ? 0 : static_cast<size_t>(c.pool[static_cast<size_t>(t)]);
    const size_t base = pool * static_cast<size_t>(c.experts);
    for (int32_t e = 0; e < c.experts; ++e) {
      const bool is_taken =
          taken[static_cast<size_t>(t) * static_cast<size_t>(c.experts) + static_cast<size_t>(e)] !=
          0;
      boundaries[base + static_cast<size_t>(e)].Add(reader.At(t, e, 0), is_taken);
    }
  }
  return std::all_of(boundaries.begin(), boundaries.end(),
                     [](const Boundary& b) { return b.Separates(); });
}

// A pool's judged rows by (sequence, position).
std::map<int32_t, std::vector<int32_t>> RowsOfPools(const RoutingCase& c) {
  std::map<int32_t, std::vector<int32_t>> pools;
  for (int32_t t = 0; t < c.tokens; ++t) {
    const auto row = static_cast<size_t>(t);
    if (c.judged(t) && c.rows[row] != RowState::kNonFinite) pools[c.pool[row]].push_back(t);
  }
  const auto key = [&](int32_t t) {
    return std::make_pair(c.sequence[static_cast<size_t>(t)], c.position[static_cast<size_t>(t)]);
  };
  for (auto& [pool, rows] : pools) {
    std::sort(rows.begin(), rows.end(), [&](int32_t a, int32_t b) { return key(a) < key(b); });
  }
  return pools;
}

// Two taken tokens of one expert and pool, of two sequences where there are such.
struct TakenTwo {
  int32_t first = -1;
  int32_t other = -1;
};

// Who was left out by an expert that took a later token of its sequence, or one of another
// sequence.
class ColumnPairs {
 public:
  ColumnPairs(const RoutingCase& c, const std::vector<uint8_t>& taken, ColumnChoice* out)
      : c_(c), taken_(taken), out_(*out), later_(static_cast<size_t>(c.experts)) {}

  void Pool(const std::vector<int32_t>& rows) {
    two_.assign(later_.size(), {});
    for (int32_t t : rows) {
      for (size_t e = 0; e < later_.size(); ++e) {
        if (!Taken(t, e)) continue;
        if (two_[e].first < 0) two_[e].first = t;
        if (two_[e].other < 0 && Sequence(t) != Sequence(two_[e].first)) two_[e].other = t;
      }
    }
    for (size_t i = rows.size(); i-- > 0;) {
      if (i + 1 == rows.size() || Sequence(rows[i]) != Sequence(rows[i + 1])) {
        std::fill(later_.begin(), later_.end(), -1);
      }
      Token(rows[i]);
    }
  }

 private:
  bool Taken(int32_t t, size_t e) const {
    return taken_[static_cast<size_t>(t) * later_.size() + e] != 0;
  }
  int64_t Sequence(int32_t t) const { return c_.sequence[static_cast<size_t>(t)]; }

  // Tokens are visited from the end of their sequence, so later_ is what follows.
  void Token(int32_t t) {
    bool future = false, cross = false;
    for (size_t e = 0; e < later_.size(); ++e) {
      if (Taken(t, e)) {
        later_[e] = t;
        continue;
      }
      const auto expert = static_cast<int32_t>(e);
      if (later_[e] >= 0) {
        future = true;
        if (!out_.witness.found()) out_.witness = {t, later_[e], expert, -1};
      }
      const TakenTwo& two = two_[e];
      const int32_t other =
          two.first >= 0 && Sequence(two.first) != Sequence(t) ? two.first : two.other;
      if (other >= 0) {
        cross = true;
        if (!out_.batch.found()) out_.batch = {t, other, expert, -1};
      }
    }
    out_.future_tokens += future;
    out_.cross_tokens += cross;
  }

  const RoutingCase& c_;
  const std::vector<uint8_t>& taken_;
  ColumnChoice& out_;
  std::vector<int32_t> later_;
  std::vector<TakenTwo> two_;
};

}  // namespace

QueueReplay ReplayFirstCome(const RoutingCase& c, const Saturation& s) {
  QueueReplay out;
  const auto cells = RefusingCells(c, s);
  const auto consider = [&](const std::vector<int64_t>& place, const char* name) {
    Replay replay = ReplayQueue(c, cells, place, name);
    if (replay.exact) out.exact_orders.push_back(name);
    out.rank_major_fits |= c.top_k > 1 && RankMajorFits(cells, place);
    if (out.best.variant.empty() || Better(replay, out.best)) out.best = std::move(replay);
  };
  if (RowsInTimeOrder(c)) {
    std::vector<int64_t> rows(static_cast<size_t>(c.tokens));
    std::iota(rows.begin(), rows.end(), 0);
    consider(rows, "rows");
  }
  consider(PlacesByTime(c, false), "batch-major");
  consider(PlacesByTime(c, true), "seq-major");
  return out;
}

Replay ReplayByScore(const RoutingCase& c, const Saturation& s) {
  const auto cells = RefusingCells(c, s);
  Replay best;
  for (KeyKind kind : KeyKinds(c)) {
    Replay replay = ReplayKey(c, cells, kind);
    if (best.variant.empty() || Better(replay, best)) best = std::move(replay);
  }
  return best;
}

ColumnChoice FindColumnChoice(const RoutingCase& c) {
  ColumnChoice out;
  const auto experts = static_cast<size_t>(c.experts);
  std::vector<uint8_t> taken(static_cast<size_t>(c.tokens) * experts, 0);
  std::vector<int64_t> held(static_cast<size_t>(c.pools) * experts, 0);
  for (const Choice& choice : c.choices) {
    if (!choice.kept) continue;
    const auto t = static_cast<size_t>(choice.token);
    taken[t * experts + static_cast<size_t>(choice.expert)] = 1;
    ++held[static_cast<size_t>(c.pool[t]) * experts + static_cast<size_t>(choice.expert)];
  }
  CheckEqualHoldings(c, held, out);
  if (!out.equal) return out;
  for (KeyKind kind : {KeyKind::kSoftmax, KeyKind::kRecorded, KeyKind::kProbs}) {
    const bool whole_rows =
        kind != KeyKind::kProbs || (c.probs.present() && c.probs.columns() == c.experts);
    if (!whole_rows || (kind == KeyKind::kSoftmax && !c.routing->sample().scores_are_logits()))
      continue;
    const KeyReader reader(c, kind);
    if (!Separates(c, taken, reader, false)) continue;
    out.separable = true;
    out.one_threshold = c.pools > 1 && Separates(c, taken, reader, true);
    out.variant = KeyName(kind);
    out.key = kind;
    break;
  }
  if (!out.separable || !c.ordered()) return out;
  out.positional = Positional(c, taken);
  ColumnPairs pairs(c, taken, &out);
  for (const auto& [pool, rows] : RowsOfPools(c)) pairs.Pool(rows);
  return out;
}

}  // namespace plumbline::rules
