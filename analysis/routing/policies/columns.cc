#include "analysis/routing/policies/columns.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <unordered_map>
#include <vector>

#include "analysis/routing/call/call.h"
#include "analysis/routing/policies/ranked.h"

namespace plumbline::analysis {
namespace {

// Tests whether a key separates the kept from the refused, up to its rounding.
class Boundary {
 public:
  void Add(const Key& key, bool kept) {
    if (kept) least_kept_ = std::min(least_kept_, key.value + key.tolerance);
    if (!kept) most_refused_ = std::max(most_refused_, key.value - key.tolerance);
  }
  bool Separates() const { return !(most_refused_ > least_kept_); }
  // Adds the limits between which a bar must lie to give the same choices.
  void Request(size_t entry, StoredNumbers& bars) const {
    bars.AtLeast(entry, most_refused_);
    bars.AtMost(entry, least_kept_);
  }

 private:
  double least_kept_ = HUGE_VAL;
  double most_refused_ = -HUGE_VAL;
};

// Returns the columns whose scores do not repeat those of another pool for the same expert.
std::vector<uint8_t> FreshColumns(const RoutingCase& c) {
  std::vector<std::vector<int32_t>> rows(static_cast<size_t>(c.pools));
  for (int32_t t = 0; t < c.tokens; ++t)
    rows[static_cast<size_t>(c.pool[static_cast<size_t>(t)])].push_back(t);
  std::set<std::pair<int32_t, uint64_t>> seen;
  std::vector<uint8_t> fresh;
  for (const auto& members : rows) {
    for (int32_t e = 0; e < c.experts; ++e) {
      uint64_t hash = 0;
      for (int32_t t : members) hash = MixScore(hash, c.scores.At(t, e));
      fresh.push_back(seen.insert({e, hash}).second);
    }
  }
  return fresh;
}

// Returns true if the same tokens are taken at the same positions of every sequence, or if scores
// have few values: a table.
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

// Returns true if each expert holds the same number of tokens at every position: then the experts
// choose among the sequences.
bool EqualByPosition(const RoutingCase& c, const std::vector<uint8_t>& taken) {
  const auto experts = static_cast<size_t>(c.experts);
  struct Position {
    int64_t rows = 0;
    std::vector<int64_t> held;
  };
  std::map<int64_t, Position> positions;
  for (int32_t t = 0; t < c.tokens; ++t) {
    if (!c.judged(t)) continue;
    const auto row = static_cast<size_t>(t);
    Position& at = positions[c.position[row]];
    at.held.resize(experts);
    ++at.rows;
    for (size_t e = 0; e < experts; ++e) at.held[e] += taken[row * experts + e];
  }
  std::map<int64_t, int64_t> holding;  // sequences at a position -> tokens that each expert takes
  for (const auto& [position, at] : positions) {
    for (int64_t held : at.held) {
      if (holding.try_emplace(at.rows, held).first->second != held) return false;
    }
  }
  return true;
}

// Fills the holdings per cell, and tests whether they are equal over cells of pools of one size.
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
  const bool declared = DeclaresCapacity(config);
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

using Boundaries = std::vector<Boundary>;  // by pool and expert

// Returns the smallest taken key of every cell and the largest left out.
Boundaries BoundariesOf(const RoutingCase& c, const std::vector<uint8_t>& taken,
                        const KeyReader& reader) {
  const auto experts = static_cast<size_t>(c.experts);
  Boundaries boundaries(static_cast<size_t>(c.pools) * experts);
  for (int32_t t = 0; t < c.tokens; ++t) {
    const auto row = static_cast<size_t>(t);
    const RowState state = c.rows[row];
    if (state == RowState::kPadding || state == RowState::kNonFinite) continue;
    const size_t base = static_cast<size_t>(c.pool[row]) * experts;
    for (size_t e = 0; e < experts; ++e)
      boundaries[base + e].Add(reader.At(t, static_cast<int32_t>(e), 0),
                               taken[row * experts + e] != 0);
  }
  return boundaries;
}

// Returns one bar per expert, common to all pools.
StoredNumbers BarsOf(const RoutingCase& c, const Boundaries& boundaries, KeyKind kind) {
  const auto experts = static_cast<size_t>(c.experts);
  StoredNumbers bars(KeyName(kind), experts);
  for (size_t i = 0; i < boundaries.size(); ++i) boundaries[i].Request(i % experts, bars);
  return bars;
}

// Returns each pool's judged rows by (sequence, position).
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

// Returns true if probabilities can be scores. If they have one value where tokens were left out,
// they are weights.
bool ProbsAreScores(const RoutingCase& c, const std::vector<uint8_t>& taken) {
  if (!c.probs.present() || c.probs.columns() != c.experts) return false;
  std::unordered_map<double, int64_t> values;
  int64_t left_out = 0, most = 0;
  for (int32_t t = 0; t < c.tokens; ++t) {
    if (!c.judged(t)) continue;
    for (int32_t e = 0; e < c.experts; ++e) {
      if (taken[static_cast<size_t>(t) * static_cast<size_t>(c.experts) + static_cast<size_t>(e)]) {
        continue;
      }
      ++left_out;
      most = std::max(most, ++values[c.probs.At(t, e)]);
    }
  }
  return 2 * most <= left_out;
}

// Returns true if the gaps at the cut are wide. Experts that take their best tokens cut a column
// anywhere, so the gap at the cut is like its neighbours. A table that scores have learned leaves
// gaps far wider than their neighbours.
bool GapsOfATable(const RoutingCase& c, const std::vector<uint8_t>& taken,
                  const KeyReader& reader) {
  constexpr size_t kAdjacent = 8;
  std::vector<std::vector<int32_t>> pools(static_cast<size_t>(c.pools));
  for (int32_t t = 0; t < c.tokens; ++t) {
    const auto row = static_cast<size_t>(t);
    const bool known = c.judged(t) && c.rows[row] != RowState::kNonFinite;
    if (known) pools[static_cast<size_t>(c.pool[row])].push_back(t);
  }
  int64_t columns = 0, wide = 0;
  const auto experts = static_cast<size_t>(c.experts);
  std::vector<double> in, out;
  for (const auto& rows : pools) {
    for (size_t e = 0; e < experts && rows.size() > 2 * kAdjacent; ++e) {
      in.clear();
      out.clear();
      for (int32_t t : rows) {
        const double x = reader.At(t, static_cast<int32_t>(e), 0).value;
        (taken[static_cast<size_t>(t) * experts + e] ? in : out).push_back(x);
      }
      // At the end of a column the gaps are wider anyway.
      if (in.size() <= kAdjacent || out.size() <= kAdjacent) continue;
      std::partial_sort(in.begin(), in.begin() + kAdjacent + 1, in.end());
      std::partial_sort(out.begin(), out.begin() + kAdjacent + 1, out.end(), std::greater<>());
      const double spacing = (in[kAdjacent] - in[0] + out[0] - out[kAdjacent]) / (2 * kAdjacent);
      ++columns;
      wide += in[0] - out[0] > 8 * spacing;
    }
  }
  return columns > 0 && 8 * wide > columns;
}

// Two taken tokens of one expert and pool, if possible of two sequences.
struct TakenTwo {
  int32_t first = -1;
  int32_t other = -1;
};

// Finds tokens that were left out by an expert that took a later token of their sequence, or a
// token of another sequence.
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

  // Tokens are visited from the end of their sequence, so later_ holds what follows.
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
  // Tested only if the result might be a proof, because each test reads every score again.
  const bool may_prove = DeclaresCapacity(c.routing->config()) && out.bits >= kProofBits;
  for (KeyKind kind : {KeyKind::kSoftmax, KeyKind::kRecorded, KeyKind::kProbs}) {
    const bool whole_rows = kind != KeyKind::kProbs || ProbsAreScores(c, taken);
    if (!whole_rows || (kind == KeyKind::kSoftmax && !c.routing->sample().scores_are_logits()))
      continue;
    const KeyReader reader(c, kind);
    const Boundaries boundaries = BoundariesOf(c, taken, reader);
    if (!std::all_of(boundaries.begin(), boundaries.end(),
                     [](const Boundary& b) { return b.Separates(); }))
      continue;
    StoredNumbers bars = BarsOf(c, boundaries, kind);
    if (!out.separable) {
      out.separable = true;
      out.learned_table = GapsOfATable(c, taken, reader);
      out.one_threshold = c.pools > 1 && !bars.excluded();
      if (may_prove) out.thresholds = ThresholdsOfMap(c, taken, reader);
      out.variant = KeyName(kind);
      out.key = kind;
    }
    out.stored.push_back(std::move(bars));
    if (!may_prove) break;
  }
  if (!out.separable || !c.ordered()) return out;
  out.positional = Positional(c, taken);
  out.by_position = c.pool_basis != PoolBasis::kRecorded && EqualByPosition(c, taken);
  ColumnPairs pairs(c, taken, &out);
  for (const auto& [pool, rows] : RowsOfPools(c)) pairs.Pool(rows);
  return out;
}

}  // namespace plumbline::analysis
