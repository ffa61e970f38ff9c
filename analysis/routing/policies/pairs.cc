#include "analysis/routing/policies/pairs.h"

#include <algorithm>
#include <cmath>

#include "analysis/routing/call/call.h"
#include "analysis/routing/policies/queue.h"
#include "analysis/routing/policies/ranked.h"
#include "base/parallel.h"

namespace plumbline::analysis {
namespace {

// Iterates over the choices of full cells by (sequence, position). If the first cells have `most`
// choices or more, uses these cells only.
class FullCells {
 public:
  FullCells(const RoutingCase& c, const Saturation& s, int64_t most = INT64_MAX)
      : c_(c), rows_(RowsBySequence(c)), number_(s.full.size(), -1) {
    int64_t choices = 0;
    for (size_t cell = 0; cell < s.full.size() && choices < most; ++cell) {
      if (!s.full[cell]) continue;
      number_[cell] = static_cast<int32_t>(count_++);
      choices += s.cells[cell].candidates();
    }
  }

  // Calls visit(number of the cell, index into c.choices) for the choices of judged rows.
  template <typename Visit>
  void Forward(Visit visit) const {
    for (int32_t token : rows_) VisitRow(token, visit);
  }
  template <typename Visit>
  void Backward(Visit visit) const {
    for (size_t i = rows_.size(); i > 0; --i) VisitRow(rows_[i - 1], visit);
  }

  size_t count() const { return count_; }
  // Returns -1 if the choice's cell is not used.
  int32_t NumberOf(const Choice& choice) const {
    return number_[CellOfToken(c_, choice.token, choice.expert)];
  }
  const Choice& At(int32_t choice) const { return c_.choices[static_cast<size_t>(choice)]; }
  int64_t Sequence(int32_t choice) const {
    return c_.sequence[static_cast<size_t>(At(choice).token)];
  }

 private:
  template <typename Visit>
  void VisitRow(int32_t token, Visit& visit) const {
    if (!c_.judged(token)) return;
    const auto row = static_cast<size_t>(token);
    for (int32_t i = c_.first_choice[row]; i < c_.first_choice[row + 1]; ++i) {
      const int32_t number = NumberOf(At(i));
      if (number >= 0) visit(static_cast<size_t>(number), i);
    }
  }

  const RoutingCase& c_;
  std::vector<int32_t> rows_;
  std::vector<int32_t> number_;  // per cell; -1 if it is not full
  size_t count_ = 0;
};

constexpr int32_t kNone = -1;

// Takes pairs in backward order. Keeps the pair of the lowest cell and sequence; if there are
// several, the last one.
class FirstPair {
 public:
  void Take(size_t cell, int64_t sequence, const Choice& refused, const Choice& admitted) {
    const bool earlier = !pair_.found() || cell < cell_ || (cell == cell_ && sequence != sequence_);
    if (!earlier) return;
    cell_ = cell;
    sequence_ = sequence;
    pair_ = {refused.token, admitted.token, refused.expert, refused.rank};
  }
  const RefusalPair& pair() const { return pair_; }

 private:
  size_t cell_ = 0;
  int64_t sequence_ = 0;
  RefusalPair pair_;
};

// Counts of choices by rank: of cells below capacity (N), and of full ones.
struct RankCounts {
  std::vector<double> below, at_full, refused;
};

// A certificate uses at most this number of choices of full cells, plus the rest of the last cell.
// More choices of the same kind add no information.
constexpr int64_t kEnoughChoices = 1 << 17;

// The choices by (sequence, position), and the number of each one's cell.
struct Walk {
  std::vector<int32_t> choice;
  std::vector<uint32_t> cell;

  explicit Walk(const FullCells& cells) {
    cells.Forward([&](size_t number, int32_t at) {
      choice.push_back(at);
      cell.push_back(static_cast<uint32_t>(number));
    });
  }
  size_t size() const { return choice.size(); }
};

RankCounts CountRanks(const RoutingCase& c, const Saturation& s) {
  const auto ranks = static_cast<size_t>(c.top_k);
  RankCounts tally{std::vector<double>(ranks), std::vector<double>(ranks),
                   std::vector<double>(ranks)};
  for (const Choice& choice : c.choices) {
    const auto rank = static_cast<size_t>(choice.rank);
    if (!c.judged(choice.token) || choice.rank < 0 || rank >= ranks) continue;
    if (!s.full[CellOfToken(c, choice.token, choice.expert)]) {
      tally.below[rank] += choice.kept;
    } else {
      ++tally.at_full[rank];
      tally.refused[rank] += choice.kept ? 0 : 1;
    }
  }
  return tally;
}

double SpareBits(double below, double refused, double all) {
  return refused > 0 ? -below * std::log2(1 - refused / (all + 1)) : 0;
}

// The sequences whose tokens a cell keeps: one kept choice, and whether there are several
// sequences.
struct Keeps {
  int32_t choice = kNone;
  bool several = false;
};

// In the order of c.choices.
std::vector<Keeps> KeepsOf(const FullCells& cells, const RoutingCase& c) {
  std::vector<Keeps> keeps(cells.count());
  for (size_t i = 0; i < c.choices.size(); ++i) {
    const Choice& choice = c.choices[i];
    if (!choice.kept || !c.judged(choice.token)) continue;
    const int32_t number = cells.NumberOf(choice);
    if (number < 0) continue;
    Keeps& of = keeps[static_cast<size_t>(number)];
    if (of.several) continue;
    const auto at = static_cast<int32_t>(i);
    if (of.choice == kNone) of.choice = at;
    of.several = cells.Sequence(at) != cells.Sequence(of.choice);
  }
  return keeps;
}

// Counts refusals with a later admission in their own sequence, and refusals at a cell that kept a
// token of another sequence. Returns the lowest cell of these. If there is none, returns the number
// of cells.
size_t CountInversions(const FullCells& cells, const RoutingCase& c, Inversions& out) {
  const std::vector<Keeps> keeps = KeepsOf(cells, c);
  std::vector<int32_t> later(cells.count(), kNone);  // a later admission
  FirstPair any;
  size_t first = cells.count();
  cells.Backward([&](size_t cell, int32_t choice) {
    if (cells.At(choice).kept) {
      later[cell] = choice;
      return;
    }
    const int64_t sequence = cells.Sequence(choice);
    const Keeps& of = keeps[cell];
    if (of.several || (of.choice != kNone && cells.Sequence(of.choice) != sequence)) {
      ++out.cross_sequence;
      first = std::min(first, cell);
    }
    if (later[cell] == kNone || cells.Sequence(later[cell]) != sequence) return;
    ++out.inversions;
    any.Take(cell, sequence, cells.At(choice), cells.At(later[cell]));
  });
  out.any = any.pair();
  return first;
}

// Returns the first refusal of a cell, by sequence and position, for which the cell kept another
// sequence's token.
RefusalPair CrossSequencePair(const FullCells& cells, size_t of_cell) {
  int32_t kept = kNone, kept_other = kNone;  // the first; the last of another sequence
  cells.Forward([&](size_t cell, int32_t choice) {
    if (cell != of_cell || !cells.At(choice).kept) return;
    if (kept == kNone) {
      kept = choice;
    } else if (cells.Sequence(choice) != cells.Sequence(kept)) {
      kept_other = choice;
    }
  });
  RefusalPair pair;
  cells.Forward([&](size_t cell, int32_t choice) {
    if (pair.found() || cell != of_cell || cells.At(choice).kept) return;
    const bool apart = cells.Sequence(choice) != cells.Sequence(kept);
    const int32_t other = apart ? kept : kept_other;
    if (other == kNone) return;
    const Choice& refused = cells.At(choice);
    pair = {refused.token, cells.At(other).token, refused.expert, refused.rank};
  });
  return pair;
}

std::vector<Key> KeysOf(const RoutingCase& c, const FullCells& cells, const Walk& walk,
                        KeyKind kind) {
  std::vector<Key> keys(walk.size());
  RowKeyReader reader(c, kind);
  const std::vector<Key>* row = nullptr;
  int32_t token = -1;
  for (size_t i = 0; i < walk.size(); ++i) {
    if (cells.At(walk.choice[i]).token != token) {
      token = cells.At(walk.choice[i]).token;
      row = &reader.Keys(token);
    }
    const int32_t first = c.first_choice[static_cast<size_t>(token)];
    keys[i] = (*row)[static_cast<size_t>(walk.choice[i] - first)];
  }
  return keys;
}

// Marks, per step of the walk, the refusals that an own threshold on a score explains: they are
// below every admission of their cell. Equal scores have equal fates, up to rounding. If few
// candidates are as close to the lowest admission as the rounding, they count as below it.
std::vector<uint8_t> BelowAdmissions(const RoutingCase& c, const FullCells& cells, const Walk& walk,
                                     KeyKind kind) {
  struct Edge {
    Key least{HUGE_VAL, 0};  // smallest admitted key
    int64_t members = 0;
    int64_t near = 0;
    bool Near(const Key& key) const {
      return !(std::abs(key.value - least.value) > key.tolerance + least.tolerance);
    }
    bool Above(const Key& key) const {
      const bool few = 4 * near <= members;
      return key.value < least.value ? !few && Near(key) : !few || !Near(key);
    }
  };
  const std::vector<Key> keys = KeysOf(c, cells, walk, kind);
  const auto kept = [&](size_t i) { return cells.At(walk.choice[i]).kept; };
  std::vector<Edge> edges(cells.count());
  for (size_t i = 0; i < walk.size(); ++i) {
    Edge& edge = edges[walk.cell[i]];
    ++edge.members;
    if (kept(i) && keys[i].value < edge.least.value) edge.least = keys[i];
  }
  for (size_t i = 0; i < walk.size(); ++i)
    edges[walk.cell[i]].near += edges[walk.cell[i]].Near(keys[i]) ? 1 : 0;
  std::vector<uint8_t> below(walk.size(), 0);
  for (size_t i = 0; i < walk.size(); ++i) {
    const bool under = std::isnan(keys[i].value) || !edges[walk.cell[i]].Above(keys[i]);
    below[i] = !kept(i) && under;
  }
  return below;
}

// Returns the best rank's certificate, without the refusals that `excused` marks.
PairCertificate Certify(const FullCells& cells, const Walk& walk, const RankCounts& tally,
                        const std::vector<uint8_t>& excused) {
  const size_t ranks = tally.below.size();
  std::vector<double> preceding(ranks), refused(ranks);
  std::vector<FirstPair> pairs(ranks);
  std::vector<int32_t> later(cells.count(), kNone);  // a later admission
  // A later admission of that rank.
  std::vector<int32_t> later_of_rank(cells.count() * ranks, kNone);
  for (size_t i = walk.size(); i-- > 0;) {
    const size_t cell = walk.cell[i];
    const int32_t at = walk.choice[i];
    const Choice& choice = cells.At(at);
    const auto rank = static_cast<size_t>(choice.rank);
    const bool ranked = choice.rank >= 0 && rank < ranks;
    const int64_t sequence = cells.Sequence(at);
    const auto same = [&](int32_t other) {
      return other != kNone && cells.Sequence(other) == sequence;
    };
    int32_t* of_rank = ranked ? &later_of_rank[cell * ranks + rank] : nullptr;
    if (ranked && same(later[cell])) {
      const bool counts = !choice.kept && !excused[i];
      ++preceding[rank];
      refused[rank] += counts;
      if (counts && same(*of_rank)) pairs[rank].Take(cell, sequence, choice, cells.At(*of_rank));
    }
    if (!choice.kept) continue;
    later[cell] = at;
    if (ranked) *of_rank = at;
  }
  PairCertificate best;
  for (size_t r = 0; r < ranks; ++r) {
    const RefusalPair& pair = pairs[r].pair();
    const double bits = SpareBits(tally.below[r], refused[r], preceding[r]);
    if (pair.found() && (!best.pair.found() || bits > best.bits)) best = {pair, bits};
  }
  return best;
}

}  // namespace

Inversions FindInversions(const RoutingCase& c, const Saturation& s) {
  Inversions out;
  const FullCells cells(c, s);
  const size_t first = CountInversions(cells, c, out);
  if (first < cells.count()) out.batch = CrossSequencePair(cells, first);
  const RankCounts tally = CountRanks(c, s);
  for (size_t r = 0; r < tally.below.size(); ++r) {
    out.batch_bits =
        std::max(out.batch_bits, SpareBits(tally.below[r], tally.refused[r], tally.at_full[r]));
  }
  return out;
}

PairCertificate CertifyPairs(const RoutingCase& c, const Saturation& s) {
  const FullCells cells(c, s, kEnoughChoices);
  const Walk walk(cells);
  const RankCounts tally = CountRanks(c, s);
  const std::vector<KeyKind> kinds = UsableKeys(c);
  std::vector<PairCertificate> certificates(kinds.size() + 1);
  ParallelTasks(
      certificates.size(), ThreadsFor(c.routing->sample().scores().data().size()), [&](size_t i) {
        const bool all = i == kinds.size();
        const std::vector<uint8_t> excused =
            all ? std::vector<uint8_t>(walk.size(), 0) : BelowAdmissions(c, cells, walk, kinds[i]);
        certificates[i] = Certify(cells, walk, tally, excused);
      });
  const double raw_bits = certificates.back().bits;
  certificates.pop_back();
  PairCertificate least{{}, HUGE_VAL};
  for (const PairCertificate& certificate : certificates) {
    if (!(certificate.bits >= least.bits)) least = certificate;
  }
  least.raw_bits = raw_bits;
  return least;
}

}  // namespace plumbline::analysis
