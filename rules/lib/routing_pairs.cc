#include "rules/lib/routing_pairs.h"

#include <algorithm>
#include <cmath>

#include "rules/lib/routing_cell_keys.h"
#include "rules/lib/routing_ranked.h"

namespace plumbline::rules {
namespace {

// Full cells, each by (sequence, position).
CellChoices CollectFull(const RoutingCase& c, const Saturation& s) {
  CellChoices out = GroupByCell(c, s.full);
  const auto before = [&](int32_t a, int32_t b) {
    const auto row_a = static_cast<size_t>(c.choices[static_cast<size_t>(a)].token);
    const auto row_b = static_cast<size_t>(c.choices[static_cast<size_t>(b)].token);
    return std::make_pair(c.sequence[row_a], c.position[row_a]) <
           std::make_pair(c.sequence[row_b], c.position[row_b]);
  };
  for (size_t i = 0; i < out.size(); ++i) {
    const auto first = out.choices.begin() + static_cast<std::ptrdiff_t>(out.begin[i]);
    const auto last = out.choices.begin() + static_cast<std::ptrdiff_t>(out.begin[i + 1]);
    if (!std::is_sorted(first, last, before)) std::sort(first, last, before);
  }
  return out;
}

class Cells {
 public:
  Cells(const RoutingCase& c, const Saturation& s) : c_(c), s_(s), full_(CollectFull(c, s)) {}

  // visit(cell index, first, last) for each cell and sequence; pointers to choice indices.
  template <typename Visit>
  void EachSequence(Visit visit) const {
    for (size_t i = 0; i < full_.cell.size(); ++i) {
      const int32_t* at = full_.choices.data() + full_.begin[i];
      const int32_t* end = full_.choices.data() + full_.begin[i + 1];
      while (at != end) {
        const int32_t* next = at + 1;
        while (next != end && Sequence(*next) == Sequence(*at)) ++next;
        visit(i, at, next);
        at = next;
      }
    }
  }
  template <typename Visit>
  void EachCell(Visit visit) const {
    for (size_t i = 0; i < full_.cell.size(); ++i) {
      visit(i, full_.choices.data() + full_.begin[i], full_.choices.data() + full_.begin[i + 1]);
    }
  }
  const Choice& At(int32_t choice) const { return c_.choices[static_cast<size_t>(choice)]; }
  int64_t Sequence(int32_t choice) const {
    return c_.sequence[static_cast<size_t>(At(choice).token)];
  }
  bool Refuses(size_t cell) const { return s_.cells[full_.cell[cell]].refused > 0; }
  size_t count() const { return full_.cell.size(); }

 private:
  const RoutingCase& c_;
  const Saturation& s_;
  CellChoices full_;
};

// Choices by rank: of cells below capacity (N), and of full ones.
struct RankTally {
  std::vector<double> below, at_full, refused;
};

RankTally TallyRanks(const RoutingCase& c, const Saturation& s) {
  const auto ranks = static_cast<size_t>(c.top_k);
  RankTally tally{std::vector<double>(ranks), std::vector<double>(ranks),
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

// Refusals at a cell that kept a token of another sequence.
void CountCrossSequence(const Cells& cells, const int32_t* begin, const int32_t* end,
                        Inversions& out) {
  const int32_t* kept = nullptr;
  const int32_t* kept_other = nullptr;
  for (const int32_t* at = begin; at != end; ++at) {
    if (!cells.At(*at).kept) continue;
    if (kept == nullptr) {
      kept = at;
    } else if (cells.Sequence(*at) != cells.Sequence(*kept)) {
      kept_other = at;
    }
  }
  if (kept == nullptr) return;
  for (const int32_t* at = begin; at != end; ++at) {
    const Choice& choice = cells.At(*at);
    if (choice.kept) continue;
    const int32_t* other = cells.Sequence(*at) != cells.Sequence(*kept) ? kept : kept_other;
    if (other == nullptr) continue;
    ++out.cross_sequence;
    if (!out.batch.found()) {
      out.batch = {choice.token, cells.At(*other).token, choice.expert, choice.rank};
    }
  }
}

// Per choice: refusals that an own threshold on a score explains, being below every admission of
// their cell. Equal scores share a fate, but for what rounding hides: candidates as near to the
// lowest admission as rounding is wide count as below it where they are few.
std::vector<uint8_t> BelowAdmissions(const RoutingCase& c, const Saturation& s, const Cells& cells,
                                     KeyKind kind) {
  const std::vector<Key> key_of = KeysOfChoices(c, s.full, kind);
  std::vector<uint8_t> below(c.choices.size(), 0);
  std::vector<Key> keys;
  cells.EachCell([&](size_t cell, const int32_t* begin, const int32_t* end) {
    if (!cells.Refuses(cell)) return;
    keys.clear();
    Key least{HUGE_VAL, 0};
    for (const int32_t* at = begin; at != end; ++at) {
      keys.push_back(key_of[static_cast<size_t>(*at)]);
      if (cells.At(*at).kept && keys.back().value < least.value) least = keys.back();
    }
    const auto near = [&](const Key& key) {
      return !(std::abs(key.value - least.value) > key.tolerance + least.tolerance);
    };
    const bool few = 4 * std::count_if(keys.begin(), keys.end(), near) <= end - begin;
    for (const int32_t* at = begin; at != end; ++at) {
      const Key& key = keys[static_cast<size_t>(at - begin)];
      const bool under = key.value < least.value ? few || !near(key) : few && near(key);
      below[static_cast<size_t>(*at)] = !cells.At(*at).kept && (under || std::isnan(key.value));
    }
  });
  return below;
}

// The best rank's certificate, refusals that `excused` marks left out.
PairCertificate Certify(const Cells& cells, const RankTally& tally,
                        const std::vector<uint8_t>& excused) {
  const size_t ranks = tally.below.size();
  std::vector<double> preceding(ranks), refused(ranks);
  std::vector<RefusalPair> pairs(ranks);
  std::vector<const Choice*> later_of_rank(ranks);
  cells.EachSequence([&](size_t, const int32_t* begin, const int32_t* end) {
    std::fill(later_of_rank.begin(), later_of_rank.end(), nullptr);
    bool later = false;
    for (const int32_t* at = end; at != begin;) {
      const Choice& choice = cells.At(*--at);
      const auto rank = static_cast<size_t>(choice.rank);
      const bool ranked = choice.rank >= 0 && rank < ranks;
      const bool counts = !choice.kept && !excused[static_cast<size_t>(*at)];
      if (ranked && later) {
        ++preceding[rank];
        refused[rank] += counts;
        if (counts && later_of_rank[rank] != nullptr && !pairs[rank].found()) {
          pairs[rank] = {choice.token, later_of_rank[rank]->token, choice.expert, choice.rank};
        }
      }
      later |= choice.kept;
      if (ranked && choice.kept) later_of_rank[rank] = &choice;
    }
  });
  PairCertificate best;
  for (size_t r = 0; r < ranks; ++r) {
    const double bits = SpareBits(tally.below[r], refused[r], preceding[r]);
    if (pairs[r].found() && (!best.pair.found() || bits > best.bits)) best = {pairs[r], bits};
  }
  return best;
}

}  // namespace

Inversions FindInversions(const RoutingCase& c, const Saturation& s) {
  Inversions out;
  const Cells cells(c, s);
  cells.EachSequence([&](size_t, const int32_t* begin, const int32_t* end) {
    const Choice* later = nullptr;  // an admission further on
    for (const int32_t* at = end; at != begin;) {
      const Choice& choice = cells.At(*--at);
      if (choice.kept) later = &choice;
      if (choice.kept || later == nullptr) continue;
      ++out.inversions;
      if (!out.any.found()) out.any = {choice.token, later->token, choice.expert, choice.rank};
    }
  });
  cells.EachCell([&](size_t cell, const int32_t* begin, const int32_t* end) {
    if (cells.Refuses(cell)) CountCrossSequence(cells, begin, end, out);
  });
  const RankTally tally = TallyRanks(c, s);
  for (size_t r = 0; r < tally.below.size(); ++r) {
    out.batch_bits =
        std::max(out.batch_bits, SpareBits(tally.below[r], tally.refused[r], tally.at_full[r]));
  }
  return out;
}

PairCertificate CertifyPairs(const RoutingCase& c, const Saturation& s) {
  const Cells cells(c, s);
  const RankTally tally = TallyRanks(c, s);
  PairCertificate least{{}, HUGE_VAL};
  for (KeyKind kind : UsableKeys(c)) {
    PairCertificate certificate = Certify(cells, tally, BelowAdmissions(c, s, cells, kind));
    if (!(certificate.bits >= least.bits)) least = certificate;
  }
  least.raw_bits = Certify(cells, tally, std::vector<uint8_t>(c.choices.size(), 0)).bits;
  return least;
}

}  // namespace plumbline::rules
