#include "rules/lib/routing_ranked.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"

namespace plumbline::rules {
namespace {

using Priority = RankedReplay::Priority;

// Choices of judged rows, cell by cell, of the cells that refuse.
struct RefusingCells {
  std::vector<int32_t> choices;  // indices into RoutingCase::choices, by (cell, token)
  std::vector<size_t> begin;     // cells + 1
  std::vector<uint8_t> fresh;    // per cell: scores that no other cell of its expert repeats
  size_t cells() const { return begin.size() - 1; }
};

RefusingCells CollectCells(const RoutingCase& c, const Saturation& s) {
  RefusingCells out;
  std::vector<int32_t> dense(s.cells.size(), -1);
  const std::vector<uint8_t> fresh = FreshCells(c, s);
  out.begin.push_back(0);
  for (size_t i = 0; i < s.cells.size(); ++i) {
    if (s.cells[i].refused == 0) continue;
    dense[i] = static_cast<int32_t>(out.fresh.size());
    out.fresh.push_back(fresh[i]);
  }
  out.begin.assign(out.fresh.size() + 1, 0);
  const auto cell_of = [&](const Choice& choice) {
    return c.judged(choice.token) ? dense[CellOfToken(c, choice.token, choice.expert)] : -1;
  };
  for (const Choice& choice : c.choices) {
    if (const int32_t cell = cell_of(choice); cell >= 0) ++out.begin[static_cast<size_t>(cell) + 1];
  }
  std::partial_sum(out.begin.begin(), out.begin.end(), out.begin.begin());
  out.choices.resize(out.begin.back());
  std::vector<size_t> next(out.begin.begin(), out.begin.end() - 1);
  for (size_t i = 0; i < c.choices.size(); ++i) {
    const int32_t cell = cell_of(c.choices[i]);
    if (cell >= 0) out.choices[next[static_cast<size_t>(cell)]++] = static_cast<int32_t>(i);
  }
  return out;
}

// One candidate of a cell under a policy: lower rank first, then higher value.
struct Candidate {
  int16_t rank;
  bool kept;
  double value;
  double tolerance;
};

// a surely comes before b; neither: they tie.
bool Before(const Candidate& a, const Candidate& b) {
  if (a.rank != b.rank) return a.rank < b.rank;
  return a.value - b.value > a.tolerance + b.tolerance;
}

struct CellResult {
  bool exact = true;
  int64_t agree = 0;
  double bits = 0;
  double raw_bits = 0;
  double tie_bits = 0;
  double luck_bits = 0;
};

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

// Splits the candidates at the cut. Own thresholds would have had to hit the count of those of the
// rank at which admission ended; the others were settled by rank.
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

// Priorities of whole rows: their best key, or the sum over their choices.
class RowKeys {
 public:
  RowKeys(const RoutingCase& c, const std::vector<size_t>& begin, const KeyReader& reader)
      : c_(c), begin_(begin), reader_(reader) {}

  Key At(int32_t token, Priority priority) const {
    Key row{-HUGE_VAL, 0};
    for (size_t i = begin_[static_cast<size_t>(token)]; i < begin_[static_cast<size_t>(token) + 1];
         ++i) {
      const Key key = reader_.At(token, c_.choices[i].expert, c_.choices[i].rank);
      if (priority == Priority::kSumOfRow) {
        row.value = row.value == -HUGE_VAL ? key.value : row.value + key.value;
        row.tolerance += key.tolerance;
      } else if (key.value > row.value) {
        row = key;
      }
    }
    return row;
  }

 private:
  const RoutingCase& c_;
  const std::vector<size_t>& begin_;
  const KeyReader& reader_;
};

std::vector<size_t> ChoicesByToken(const RoutingCase& c) {
  std::vector<size_t> begin(static_cast<size_t>(c.tokens) + 1, 0);
  for (const Choice& choice : c.choices) ++begin[static_cast<size_t>(choice.token) + 1];
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  return begin;
}

// What one expert's cells are worth together. Where one threshold, the same in all its pools, would
// do what each of them does, they are one piece of evidence: the best of them.
class ExpertEvidence {
 public:
  void Add(const std::vector<Candidate>& cell, const CellResult& result, bool fresh) {
    for (const Candidate& x : cell) {
      if (x.kept) least_kept_ = std::min(least_kept_, x.value + x.tolerance);
      if (!x.kept) most_refused_ = std::max(most_refused_, x.value - x.tolerance);
    }
    if (!fresh) return;
    sum_.bits += result.bits;
    sum_.raw_bits += result.raw_bits;
    sum_.tie_bits += result.tie_bits;
    sum_.luck_bits += result.luck_bits;
    if (result.raw_bits >= best_.raw_bits) best_ = result;
  }
  const CellResult& Worth(bool threshold_possible) const {
    return threshold_possible && !(most_refused_ > least_kept_) ? best_ : sum_;
  }

 private:
  double least_kept_ = HUGE_VAL;
  double most_refused_ = -HUGE_VAL;
  CellResult sum_;
  CellResult best_;
};

class Judge {
 public:
  Judge(const RoutingCase& c, const RefusingCells& cells) : c_(c), cells_(cells) {}

  // key(choice) -> Key. A policy that fails early is not followed to the end.
  template <typename KeyOfChoice>
  void Run(KeyOfChoice key, RankedReplay* out) const {
    out->exact = cells_.cells() > 0;
    int64_t agree = 0, seen = 0;
    std::vector<Candidate> cell;
    std::map<int32_t, ExpertEvidence> experts;
    for (size_t i = 0; i < cells_.cells() && (out->exact || seen <= kEnough); ++i) {
      cell.clear();
      int32_t expert = 0;
      for (size_t at = cells_.begin[i]; at < cells_.begin[i + 1]; ++at) {
        const Choice& choice = c_.choices[static_cast<size_t>(cells_.choices[at])];
        expert = choice.expert;
        const Key k = key(choice);
        // A score that is not finite, or a rank that is not known, says nothing for or against.
        if (!std::isfinite(k.value) || (out->rank_first && choice.rank < 0)) continue;
        cell.push_back(
            {out->rank_first ? choice.rank : int16_t{0}, choice.kept, k.value, k.tolerance});
      }
      const CellResult result = JudgeCell(cell, out->priority == Priority::kPlace, out->rank_first);
      agree += result.agree;
      seen += static_cast<int64_t>(cell.size());
      out->exact &= result.exact;
      experts[expert].Add(cell, result, cells_.fresh[i] != 0);
    }
    for (const auto& [expert, evidence] : experts) {
      const CellResult& worth = evidence.Worth(out->by_score() && !out->rank_first);
      out->bits += worth.bits;
      out->raw_bits += worth.raw_bits;
      out->tie_bits += worth.tie_bits;
      out->luck_bits += worth.luck_bits;
    }
    out->share = static_cast<double>(agree) / static_cast<double>(std::max<int64_t>(seen, 1));
  }

 private:
  static constexpr int64_t kEnough = 4096;  // choices after which a refuted policy is given up
  const RoutingCase& c_;
  const RefusingCells& cells_;
};

bool MostRanksKnown(const RoutingCase& c, const RefusingCells& cells) {
  const auto known = std::count_if(cells.choices.begin(), cells.choices.end(), [&](int32_t i) {
    return c.choices[static_cast<size_t>(i)].rank >= 0;
  });
  return 2 * known > static_cast<std::ptrdiff_t>(cells.choices.size());
}

void ByScores(const RoutingCase& c, const RefusingCells& cells, bool ranks,
              std::vector<RankedReplay>& out) {
  const Judge judge(c, cells);
  const std::vector<size_t> begin = ChoicesByToken(c);
  for (KeyKind kind : UsableKeys(c)) {
    const KeyReader reader(c, kind);
    const auto own = [&](const Choice& choice) {
      return reader.At(choice.token, choice.expert, choice.rank);
    };
    for (bool rank_first : {false, true}) {
      if (rank_first && !ranks) continue;
      judge.Run(own, &out.emplace_back(RankedReplay{
                         .priority = Priority::kOwnScore, .key = kind, .rank_first = rank_first}));
    }
    // Over the chosen, shares sum to one in every row.
    const bool shares = kind == KeyKind::kSoftmaxChosen || kind == KeyKind::kShareOfChosen;
    for (Priority priority : {Priority::kBestOfRow, Priority::kSumOfRow}) {
      if (c.top_k == 1 || (shares && priority == Priority::kSumOfRow)) continue;
      const RowKeys rows(c, begin, reader);
      for (bool rank_first : {false, true}) {
        if (rank_first && !ranks) continue;
        judge.Run([&](const Choice& choice) { return rows.At(choice.token, priority); },
                  &out.emplace_back(
                      RankedReplay{.priority = priority, .key = kind, .rank_first = rank_first}));
      }
    }
  }
}

// All second choices queue behind all first ones.
void ByRank(const RoutingCase& c, const RefusingCells& cells, const std::vector<TimeQueue>& queues,
            std::vector<RankedReplay>& out) {
  const Judge judge(c, cells);
  std::vector<double> place(static_cast<size_t>(c.tokens));
  for (const TimeQueue& queue : queues) {
    for (size_t i = 0; i < queue.order.size(); ++i) {
      place[static_cast<size_t>(queue.order[i])] = static_cast<double>(i);
    }
    judge.Run(
        [&](const Choice& choice) {
          return Key{-place[static_cast<size_t>(choice.token)], 0};
        },
        &out.emplace_back(
            RankedReplay{.priority = Priority::kPlace, .rank_first = true, .order = queue.name}));
  }
}

// Sequences numbered in the order of their ids, and their lengths.
struct Sequences {
  std::vector<int32_t> number;  // [T]
  std::vector<int64_t> length;  // by number
  int64_t longest = 0;
};

Sequences NumberSequences(const RoutingCase& c) {
  std::map<int64_t, int32_t> numbers;
  for (size_t row = 0; row < c.sequence.size(); ++row) {
    // Runs of one sequence are the common case.
    if (row == 0 || c.sequence[row] != c.sequence[row - 1]) numbers.try_emplace(c.sequence[row], 0);
  }
  int32_t next = 0;
  for (auto& [id, number] : numbers) number = next++;
  Sequences out;
  out.number.resize(c.sequence.size());
  out.length.resize(numbers.size(), 0);
  for (size_t row = 0; row < c.sequence.size(); ++row) {
    const bool same = row > 0 && c.sequence[row] == c.sequence[row - 1];
    out.number[row] = same ? out.number[row - 1] : numbers[c.sequence[row]];
    int64_t& length = out.length[static_cast<size_t>(out.number[row])];
    length = std::max(length, c.position[row] + 1);
    out.longest = std::max(out.longest, length);
  }
  return out;
}

// A row's place in the gathered order of a context-parallel layout that balances causal attention:
// of 2n chunks of a sequence, rank r holds the r-th from either end. Flattened rank by rank.
double ZigzagPlace(const RoutingCase& c, const Sequences& s, int32_t ranks, bool by_position,
                   size_t row) {
  const auto sequence = static_cast<double>(s.number[row]);
  const auto position = static_cast<double>(c.position[row]);
  const int64_t length = s.length[static_cast<size_t>(s.number[row])];
  const int64_t chunk = std::max<int64_t>((length + 2 * ranks - 1) / (2 * ranks), 1);
  const int64_t index = c.position[row] / chunk;
  const auto rank = static_cast<double>(std::min(index, 2 * ranks - 1 - index));
  const auto sequences = static_cast<double>(s.length.size());
  const auto longest = static_cast<double>(s.longest);
  return by_position ? (rank * longest + position) * sequences + sequence
                     : (rank * sequences + sequence) * longest + position;
}

// First come first served in an order that is not time's.
void ByWrongOrder(const RoutingCase& c, const RefusingCells& cells,
                  const std::vector<TimeQueue>& queues, std::vector<RankedReplay>& out) {
  const Judge judge(c, cells);
  std::vector<double> place(static_cast<size_t>(c.tokens));
  for (const TimeQueue& queue : queues) {
    for (size_t i = 0; i < queue.order.size(); ++i) {
      place[static_cast<size_t>(queue.order[i])] = static_cast<double>(i);
    }
    judge.Run(
        [&](const Choice& choice) {
          return Key{place[static_cast<size_t>(choice.token)], 0};
        },
        &out.emplace_back(RankedReplay{.priority = Priority::kPlace,
                                       .order = queue.name + ", the last row first"}));
  }
  const Sequences sequences = NumberSequences(c);
  for (int32_t ranks : {2, 4, 8, 16}) {
    for (bool by_position : {true, false}) {
      const std::string name = absl::StrCat("zigzag over ", ranks, " ranks, ",
                                            by_position ? "seq-major" : "batch-major");
      judge.Run(
          [&](const Choice& choice) {
            return Key{
                -ZigzagPlace(c, sequences, ranks, by_position, static_cast<size_t>(choice.token)),
                0};
          },
          &out.emplace_back(RankedReplay{.priority = Priority::kPlace, .order = name}));
    }
  }
}

}  // namespace

std::vector<KeyKind> UsableKeys(const RoutingCase& c) {
  std::vector<KeyKind> kinds = KeyKinds(c);
  if (!c.probs.present()) return kinds;
  const auto of = [&](const Choice& choice) {
    return KeyValue(c, KeyKind::kProbs, choice.token, choice.expert, choice.rank);
  };
  std::map<double, int64_t> refused;
  int64_t all = 0;
  for (const Choice& choice : c.choices) {
    if (choice.kept || !c.judged(choice.token)) continue;
    ++all;
    ++refused[of(choice)];
  }
  for (const auto& [value, count] : refused) {
    if (2 * count <= all) continue;
    const auto kept = std::count_if(c.choices.begin(), c.choices.end(), [&](const Choice& choice) {
      return choice.kept && of(choice) == value;
    });
    if (value == 0 || 2 * kept < count) std::erase(kinds, KeyKind::kProbs);
  }
  return kinds;
}

std::string RankedReplay::Describe() const {
  const char* rank = rank_first ? ", first choices before second ones" : "";
  switch (priority) {
    case Priority::kOwnScore:
      return absl::StrCat("drop by score (", KeyName(key), rank, ")");
    case Priority::kBestOfRow:
      return absl::StrCat("batch-prioritised routing (by a token's best of ", KeyName(key), rank,
                          ")");
    case Priority::kSumOfRow:
      return absl::StrCat("batch-prioritised routing (by a token's sum of ", KeyName(key), rank,
                          ")");
    case Priority::kPlace:
      break;
  }
  if (!rank_first) return absl::StrCat("first come first served out of time order (", order, ")");
  return absl::StrCat("a queue of all first choices before all second ones (", order, " order)");
}

double ExactCountBits(double n, double count) {
  if (count <= 0 || count >= n) return 0;
  const double p = count / n;
  return -(Log2Choose(n, count) + count * std::log2(p) + (n - count) * std::log2(1 - p));
}

std::vector<RankedReplay> ReplayRanked(const RoutingCase& c, const Saturation& s,
                                       const std::vector<TimeQueue>& queues) {
  std::vector<RankedReplay> out;
  const RefusingCells cells = CollectCells(c, s);
  if (cells.cells() == 0) return out;
  const bool ranks = c.top_k > 1 && MostRanksKnown(c, cells);
  ByScores(c, cells, ranks, out);
  if (ranks) ByRank(c, cells, queues, out);
  ByWrongOrder(c, cells, queues, out);
  std::stable_sort(out.begin(), out.end(), [](const RankedReplay& a, const RankedReplay& b) {
    if (a.exact != b.exact) return a.exact;
    if (!a.exact) return a.share > b.share;
    return a.bits != b.bits ? a.bits > b.bits : a.raw_bits > b.raw_bits;
  });
  return out;
}

}  // namespace plumbline::rules
