#include "rules/lib/routing_capacity.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <unordered_map>

#include "absl/strings/str_cat.h"

namespace plumbline::rules {
namespace {

size_t CellIndex(const RoutingCase& c, const Choice& choice) {
  return static_cast<size_t>(c.pool[static_cast<size_t>(choice.token)]) *
             static_cast<size_t>(c.experts) +
         static_cast<size_t>(choice.expert);
}

// 1/2 log2(2 pi C (1 - C/n)): minus log2 of the chance that a binomial count of mean C hits C
// exactly (Stirling; the exact value is a little larger). Below one bit nothing is claimed.
double HoldsExactlyBits(double capacity, double candidates) {
  const double spread = 2 * std::numbers::pi * capacity * (1 - capacity / candidates);
  return spread > 1 ? 0.5 * std::log2(spread) : 0;
}

double HoldingBits(const Cell& cell) {
  return HoldsExactlyBits(static_cast<double>(cell.kept), static_cast<double>(cell.candidates()));
}

// Which refusing cells are evidence of their own, not repeats of another's scores.
std::vector<uint8_t> FreshCells(const RoutingCase& c, const Saturation& s) {
  std::vector<std::vector<double>> scores(s.cells.size());
  for (const Choice& choice : c.choices) {
    const size_t index = CellIndex(c, choice);
    if (s.cells[index].refused > 0) {
      scores[index].push_back(c.scores.At(choice.token, choice.expert));
    }
  }
  DistinctCells distinct;
  std::vector<uint8_t> fresh(s.cells.size(), 0);
  for (size_t i = 0; i < s.cells.size(); ++i) {
    if (s.cells[i].refused == 0) continue;
    for (double score : scores[i]) distinct.Add(score);
    fresh[i] = distinct.Fresh(s.cells[i].expert);
  }
  return fresh;
}

void CountCells(const RoutingCase& c, Saturation& s) {
  s.cells.resize(static_cast<size_t>(c.pools) * static_cast<size_t>(c.experts));
  for (size_t i = 0; i < s.cells.size(); ++i) {
    s.cells[i].pool = static_cast<int32_t>(i / static_cast<size_t>(c.experts));
    s.cells[i].expert = static_cast<int32_t>(i % static_cast<size_t>(c.experts));
  }
  for (const Choice& choice : c.choices) {
    Cell& cell = s.cells[CellIndex(c, choice)];
    ++(choice.kept ? cell.kept : cell.refused);
  }
}

std::string Where(const Cell& cell) {
  return absl::StrCat("expert ", cell.expert, " of pool ", cell.pool);
}

void CheckDeclared(int64_t capacity, Saturation& s) {
  s.basis = Saturation::Basis::kDeclared;
  s.capacity = capacity;
  for (const Cell& cell : s.cells) {
    if (cell.kept > capacity) {
      s.contradiction = absl::StrCat("capacity-exceeded: ", Where(cell), " holds ", cell.kept,
                                     " tokens, more than the declared capacity of ", capacity,
                                     "; the pool or the capacity is not as recorded");
      return;
    }
    if (cell.refused > 0 && cell.kept != capacity) {
      s.contradiction =
          absl::StrCat("refused-below-capacity: ", Where(cell), " refused ", cell.refused,
                       " choices while it held ", cell.kept, " of ", capacity,
                       "; something other than the declared capacity refuses");
      return;
    }
  }
  for (size_t i = 0; i < s.cells.size(); ++i) s.full[i] = s.cells[i].kept == capacity;
}

// Refusing cells of pools of one size must hold one number, and no cell of such a pool more.
void CheckExhibited(const RoutingCase& c, Saturation& s) {
  struct SizeClass {
    int64_t capacity = -1;
    double bits = 0;
    double best = 0;
    const Cell* first = nullptr;
  };
  std::map<int64_t, SizeClass> classes;
  const std::vector<uint8_t> fresh = FreshCells(c, s);
  for (size_t i = 0; i < s.cells.size(); ++i) {
    const Cell& cell = s.cells[i];
    if (cell.refused == 0) continue;
    SizeClass& k = classes[c.pool_rows[static_cast<size_t>(cell.pool)]];
    if (k.first == nullptr) {
      k.first = &cell;
      k.capacity = cell.kept;
    } else if (cell.kept != k.capacity) {
      s.contradiction = absl::StrCat("capacity-differs: ", Where(*k.first), " refused at ",
                                     k.capacity, " tokens, ", Where(cell), " at ", cell.kept,
                                     "; no one capacity explains the refusals");
      return;
    }
    const double bits = fresh[i] ? HoldingBits(cell) : 0;
    k.bits += bits;
    k.best = std::max(k.best, bits);
  }
  for (size_t i = 0; i < s.cells.size(); ++i) {
    const Cell& cell = s.cells[i];
    const auto k = classes.find(c.pool_rows[static_cast<size_t>(cell.pool)]);
    if (k == classes.end()) continue;
    if (cell.kept > k->second.capacity) {
      s.contradiction =
          absl::StrCat("capacity-exceeded: ", Where(*k->second.first), " refused at ",
                       k->second.capacity, " tokens while ", Where(cell), " holds ", cell.kept);
      return;
    }
    s.full[i] = cell.kept == k->second.capacity;
  }
  s.basis = Saturation::Basis::kExhibited;
  // One cell of each size gave the capacity its value: it is no evidence for it.
  for (const auto& [rows, k] : classes) {
    s.bits += k.bits - k.best;
    s.capacity = k.capacity;
  }
}

// What is needed to find later admissions: a sequence's tokens at one cell.
struct Visit {
  int64_t sequence;
  int64_t position;
  const Choice* choice;
};

// Counts by choice rank, over cells that refuse.
struct RankTally {
  std::vector<double> below;      // choices of cells below capacity, all kept: N
  std::vector<double> preceding;  // of full cells, before a later admission in their own sequence
  std::vector<double> preceding_refused;
  std::vector<double> at_full;
  std::vector<double> refused;
  explicit RankTally(size_t ranks)
      : below(ranks), preceding(ranks), preceding_refused(ranks), at_full(ranks), refused(ranks) {}
};

// Another cause of refusal (an own threshold, a sampled expert) would have hit the N choices of
// experts below capacity at the same rate f: chance (1-f)^N.
double SpareBits(double below, double refused, double all) {
  if (refused <= 0) return 0;
  const double f = refused / (all + 1);
  return -below * std::log2(1 - f);
}

void VisitSequence(std::vector<Visit>::const_iterator begin, std::vector<Visit>::const_iterator end,
                   size_t ranks, Inversions& out, RankTally& tally,
                   std::vector<RefusalPair>& pairs) {
  const Choice* later = nullptr;  // the latest admission so far, walking backwards
  std::vector<const Choice*> later_of_rank(ranks);  // the same by choice rank
  for (auto v = end; v != begin;) {
    const Choice& choice = *(--v)->choice;
    const auto rank = static_cast<size_t>(choice.rank);
    const bool ranked = choice.rank >= 0 && rank < ranks;
    if (later != nullptr && !choice.kept) {
      ++out.inversions;
      if (!out.any.found()) out.any = {choice.token, later->token, choice.expert, choice.rank};
    }
    if (ranked && later != nullptr) {
      ++tally.preceding[rank];
      tally.preceding_refused[rank] += choice.kept ? 0 : 1;
      if (!choice.kept && later_of_rank[rank] != nullptr && !pairs[rank].found()) {
        pairs[rank] = {choice.token, later_of_rank[rank]->token, choice.expert, choice.rank};
      }
    }
    if (!choice.kept) continue;
    later = &choice;
    if (ranked) later_of_rank[rank] = &choice;
  }
}

// Refusals at a cell that kept a token of another sequence.
void CountCrossSequence(const std::vector<Visit>& visits, Inversions& out) {
  const Choice* kept = nullptr;
  const Choice* kept_other = nullptr;
  int64_t kept_sequence = 0;
  for (const Visit& v : visits) {
    if (!v.choice->kept) continue;
    if (kept == nullptr) {
      kept = v.choice;
      kept_sequence = v.sequence;
    } else if (v.sequence != kept_sequence) {
      kept_other = v.choice;
    }
  }
  if (kept == nullptr) return;
  for (const Visit& v : visits) {
    if (v.choice->kept) continue;
    const Choice* other = v.sequence != kept_sequence ? kept : kept_other;
    if (other == nullptr) continue;
    ++out.cross_sequence;
    if (!out.batch.found())
      out.batch = {v.choice->token, other->token, v.choice->expert, v.choice->rank};
  }
}

void CountSingleSequencePools(const RoutingCase& c, Inversions& out) {
  std::vector<int64_t> first(static_cast<size_t>(c.pools));
  std::vector<int> state(static_cast<size_t>(c.pools), 0);  // 0 none, 1 one sequence, 2 several
  for (int32_t t = 0; t < c.tokens; ++t) {
    if (!c.judged(t)) continue;
    const auto pool = static_cast<size_t>(c.pool[static_cast<size_t>(t)]);
    const int64_t sequence = c.sequence[static_cast<size_t>(t)];
    if (state[pool] == 0) {
      first[pool] = sequence;
      state[pool] = 1;
    } else if (first[pool] != sequence) {
      state[pool] = 2;
    }
  }
  out.single_sequence_pools = std::count(state.begin(), state.end(), 1);
}

}  // namespace

double Log2Choose(double n, double k) {
  if (k <= 0 || k >= n) return 0;
  return (std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1)) / std::numbers::ln2;
}

Saturation FindSaturation(const RoutingCase& c) {
  Saturation s;
  CountCells(c, s);
  s.full.assign(s.cells.size(), 0);
  s.refusing_cells = std::count_if(s.cells.begin(), s.cells.end(),
                                   [](const Cell& cell) { return cell.refused > 0; });
  const v1::RoutingConfig& config = c.routing->config();
  if (config.capacity_kind() == v1::RoutingConfig::CAPACITY_DECLARED) {
    CheckDeclared(static_cast<int64_t>(config.capacity()), s);
  } else if (s.refusing_cells > 0) {
    CheckExhibited(c, s);
  }
  const std::vector<uint8_t> fresh = FreshCells(c, s);
  for (size_t i = 0; i < s.cells.size(); ++i) {
    if (!fresh[i]) continue;
    s.holding_bits += HoldingBits(s.cells[i]);
    ++s.distinct_refusing;
  }
  std::vector<uint8_t> expert_full(static_cast<size_t>(c.experts), 0);
  for (size_t i = 0; i < s.cells.size(); ++i) {
    if (s.full[i]) expert_full[static_cast<size_t>(s.cells[i].expert)] = 1;
  }
  s.full_experts = std::count(expert_full.begin(), expert_full.end(), 1);
  return s;
}

Inversions FindInversions(const RoutingCase& c, const Saturation& s) {
  Inversions out;
  CountSingleSequencePools(c, out);
  const auto ranks = static_cast<size_t>(c.top_k);
  RankTally tally(ranks);
  std::unordered_map<size_t, std::vector<Visit>> cells;  // those that refuse
  for (const Choice& choice : c.choices) {
    if (!c.judged(choice.token)) continue;
    const size_t index = CellIndex(c, choice);
    const auto rank = static_cast<size_t>(choice.rank);
    if (choice.rank >= 0 && rank < ranks) {
      if (!s.full[index]) {
        ++tally.below[rank];
      } else {
        ++tally.at_full[rank];
        tally.refused[rank] += choice.kept ? 0 : 1;
      }
    }
    if (!s.full[index]) continue;
    const auto token = static_cast<size_t>(choice.token);
    cells[index].push_back({c.sequence[token], c.position[token], &choice});
  }
  std::vector<RefusalPair> pairs(ranks);
  std::vector<size_t> order;
  for (const auto& [index, visits] : cells) order.push_back(index);
  std::sort(order.begin(), order.end());  // the witness must not depend on hashing
  for (size_t index : order) {
    std::vector<Visit>& visits = cells[index];
    std::sort(visits.begin(), visits.end(), [](const Visit& a, const Visit& b) {
      return std::make_pair(a.sequence, a.position) < std::make_pair(b.sequence, b.position);
    });
    for (auto begin = visits.cbegin(); begin != visits.cend();) {
      const auto end = std::find_if(begin, visits.cend(),
                                    [&](const Visit& v) { return v.sequence != begin->sequence; });
      VisitSequence(begin, end, ranks, out, tally, pairs);
      begin = end;
    }
    if (s.cells[index].refused > 0) CountCrossSequence(visits, out);
  }
  for (size_t r = 0; r < ranks; ++r) {
    const double future = SpareBits(tally.below[r], tally.preceding_refused[r], tally.preceding[r]);
    if (pairs[r].found() && (!out.future.found() || future > out.future_bits)) {
      out.future = pairs[r];
      out.future_bits = future;
    }
    out.batch_bits =
        std::max(out.batch_bits, SpareBits(tally.below[r], tally.refused[r], tally.at_full[r]));
  }
  return out;
}

}  // namespace plumbline::rules
