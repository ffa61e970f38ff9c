#include "analysis/collective/shared_result.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/collective/sum_columns.h"
#include "analysis/frame/frame.h"
#include "base/real.h"

namespace plumbline::analysis {
namespace {

constexpr size_t kMostReplayed = 4;  // different results of one call
// In bits. The first allows for 2^16 orders and arithmetics per replayed result; it is assumed, not
// counted. The second is the evidence of one result that differs from another on 32 elements.
constexpr int kBitsOfChoice = 16;
constexpr int kBitsLeft = 16;
constexpr size_t kFewestAgreeing = 32;
// With more ranks, only groups whose size divides their number are compared.
constexpr int kMostRanksOfAnyGroup = 64;
constexpr size_t kMostColumnsOfGroups = 256;

// Calls visit(start, stride, count) for groups of at most half of the ranks.
template <typename Visit>
void ForEachGroup(int ranks, Visit visit) {
  const bool any = ranks <= kMostRanksOfAnyGroup;
  for (int count = 1; 2 * count <= ranks; ++count) {
    if (!any && ranks % count != 0) continue;
    for (int start = 0; start < ranks; start += any ? 1 : count) visit(start, 1, count);
    for (int stride = 2; count > 1 && stride * (count - 1) < ranks; ++stride) {
      if (!any && stride * count != ranks) continue;
      for (int start = 0; start + stride * (count - 1) < ranks; ++start)
        visit(start, stride, count);
    }
  }
}

// The elements on which all ranks agree, in units of the sum of magnitudes.
class AgreeingElements {
 public:
  AgreeingElements(const ReductionCase& c, const ElementValues& y) : c_(c) {
    std::vector<SumColumn> agreeing;
    for (const SumColumn& column : SumColumnsOf(c)) {
      const auto i = static_cast<size_t>(column.sample);
      const bool same = SameResult(c.output[i], y[i]) &&
                        std::all_of(c.others.begin(), c.others.end(), [&](const auto& other) {
                          return SameResult(other.values[i], y[i]);
                        });
      if (same && column.mass > 0 && std::isfinite(y[i])) agreeing.push_back(column);
    }
    for (const SumColumn& column : agreeing) {
      if (columns_.size() == kMostColumnsOfGroups && c.ranks > 8) break;
      columns_.push_back(column);
      results_.push_back(y[static_cast<size_t>(column.sample)] / column.mass);
      sums_.push_back(column.exact / column.mass);
    }
  }

  // Returns true if the results are those of all ranks and of no group.
  bool AreOfAllRanks(const ElementValues& y) const {
    if (columns_.size() < kFewestAgreeing) return false;
    const double factor = DotProduct(results_, sums_) / DotProduct(sums_, sums_);
    if (!(factor > 0) || !Fits(columns_, y, factor, SumTolerance(c_, BoundPrecision(c_), false)))
      return false;
    const double off = Residue(sums_);
    bool alone = true;
    ElementValues group(columns_.size());
    ForEachGroup(c_.ranks, [&](int start, int stride, int count) {
      if (!alone) return;
      std::fill(group.begin(), group.end(), 0);
      for (int k = 0; k < count; ++k) {
        const int rank = (start + stride * k) % c_.ranks;
        for (size_t i = 0; i < columns_.size(); ++i)
          group[i] += c_.input(rank, columns_[i].sample) / columns_[i].mass;
      }
      alone = Residue(group) >= 4 * off;
    });
    return alone;
  }

 private:
  // Returns the sum of squares of the results minus the closest multiple of `sums`.
  double Residue(const ElementValues& sums) const {
    const double norm = DotProduct(sums, sums);
    const double factor = norm > 0 ? DotProduct(results_, sums) / norm : 0;
    double off = 0;
    for (size_t i = 0; i < sums.size(); ++i) {
      const double error = results_[i] - factor * sums[i];
      off += error * error;
    }
    return off;
  }

  const ReductionCase& c_;
  std::vector<SumColumn> columns_;
  ElementValues results_, sums_;
};

// Returns true if a replay gives the result. That of the call is the result `output`.
bool IsReplayed(const ReductionAnalysis& a, const ElementValues& y) {
  if (!a.replayed) return false;
  if (&y == &a.c.output) return a.replay.explained;
  ReductionCase other = a.c;
  other.output = y;
  return ReplayReduction(other).explained;
}

// Orders of the rows in which a rank may add the values that it has gathered: from its own on, up
// or down, by the distance to its own number, or its own node first.
std::vector<std::vector<int>> OrdersOf(int ranks, int own) {
  std::vector<std::vector<int>> all(2);
  for (int i = 0; i < ranks; ++i) {
    all[0].push_back((own + i) % ranks);
    all[1].push_back((own - i + ranks) % ranks);
  }
  if (std::has_single_bit(static_cast<unsigned>(ranks))) {
    all.emplace_back();
    for (int i = 0; i < ranks; ++i) all.back().push_back(i ^ own);
  }
  for (const int node : {2, 4, 8}) {
    if (ranks % node != 0 || ranks == node) continue;
    for (const int within : {0, own % node}) {
      all.emplace_back();
      for (int i = 0; i < ranks; ++i) {
        const int first = (own / node * node + i / node * node) % ranks;
        all.back().push_back(first + (i + within) % node);
      }
    }
  }
  return all;
}

// The same for a result of one rank, which may have added the values in an order of its own.
bool IsReplayedByRank(const ReductionAnalysis& a, const ElementValues& y, uint32_t rank) {
  if (IsReplayed(a, y)) return true;
  const std::vector<uint32_t> ranks = a.ranks();
  const auto at = std::find(ranks.begin(), ranks.end(), rank);
  const auto own = ranks.empty() ? rank : static_cast<uint32_t>(at - ranks.begin());
  if (!a.replayed || own >= static_cast<uint32_t>(a.c.ranks)) return false;
  const auto m = static_cast<size_t>(a.c.samples);
  for (const std::vector<int>& order : OrdersOf(a.c.ranks, static_cast<int>(own))) {
    ReductionCase ordered = a.c;
    ordered.output = y;
    for (size_t row = 0; row < order.size(); ++row)
      for (size_t i = 0; i < m; ++i)
        ordered.inputs[row * m + i] = a.c.inputs[static_cast<size_t>(order[row]) * m + i];
    if (ReplayReduction(ordered).explained) return true;
  }
  return false;
}

size_t CountOfDifferent(const ElementValues& a, const ElementValues& b) {
  size_t differ = 0;
  for (size_t i = 0; i < a.size(); ++i) differ += SameResult(a[i], b[i]) ? 0 : 1;
  return differ;
}

struct RankResult {
  const ElementValues* y;
  uint32_t rank;
};

// Returns the first different results.
std::vector<RankResult> FirstResults(const ReductionCase& c) {
  std::vector<RankResult> results = {{&c.output, c.output_rank}};
  for (const ReductionCase::Other& other : c.others) {
    const bool known = std::any_of(results.begin(), results.end(), [&](const RankResult& result) {
      return CountOfDifferent(*result.y, other.values) == 0;
    });
    if (!known) results.push_back({&other.values, other.rank});
    if (results.size() == kMostReplayed) break;
  }
  return results;
}

// Returns true if the results differ on enough elements that chance does not replay all of them.
// Each result after the first adds the number of elements on which it differs from the earlier
// result closest to it, less the bits of choice: an element that differs fits a given order by
// chance with at most one half.
bool FarApart(const std::vector<RankResult>& results) {
  int bits = 0;
  for (size_t i = 1; i < results.size(); ++i) {
    size_t fewest = results[i].y->size();
    for (size_t j = 0; j < i; ++j)
      fewest = std::min(fewest, CountOfDifferent(*results[i].y, *results[j].y));
    bits += static_cast<int>(fewest) - kBitsOfChoice;
  }
  return bits >= kBitsLeft;
}

// Each result is replayed, so the cause is known.
void ChangeToReplayed(v1::Verdict& verdict) {
  v1::Finding& f = *verdict.mutable_finding();
  f.set_explanation(
      absl::StrCat(f.explanation(),
                   " Replays give the results of different ranks bit for bit, each from the inputs "
                   "of all ranks, so the ranks added them in different ways."));
  f.mutable_cause()->set_id("summed-by-rank");
  f.set_fix(
      "Use a collective that gives every rank the same bits (a ring or tree all-reduce). Do not "
      "gather the values and add them in an order of each rank's own. Or broadcast one result.");
}

}  // namespace

std::optional<OutputSplit> SplitReplayed(const ReductionAnalysis& a) {
  const ReductionCase& c = a.c;
  if (!a.replayed || !a.replay.explained || c.others.empty()) return std::nullopt;
  const std::vector<SumColumn> columns = SumColumnsOf(c);
  const SumTolerance tolerance(c, BoundPrecision(c), false);
  for (const ReductionCase::Other& other : c.others) {
    if (!Fits(columns, other.values, 1, tolerance)) return std::nullopt;
  }
  const std::vector<RankResult> results = FirstResults(c);
  if (!FarApart(results)) return std::nullopt;
  for (const RankResult& result : results) {
    if (!IsReplayedByRank(a, *result.y, result.rank)) return std::nullopt;
  }
  OutputSplit split;
  split.ranks = a.ranks();
  if (split.ranks.empty()) {
    for (int r = 0; r < c.ranks; ++r) split.ranks.push_back(static_cast<uint32_t>(r));
  }
  split.odd = split.ranks;
  split.rank_a = c.output_rank;
  split.rank_b = c.others[0].rank;
  split.compared = c.output.size();
  const ElementValues& other = c.others[0].values;
  for (size_t i = 0; i < other.size(); ++i) {
    if (SameResult(c.output[i], other[i]) || split.differ++ > 0) continue;
    split.element = c.offsets[i];
    split.value_a = c.output[i];
    split.value_b = other[i];
  }
  return split;
}

SharedResult FindShared(const ReductionAnalysis& a, const OutputSplit& split) {
  const ReductionCase& c = a.c;
  if (c.samples == 0 || c.others.empty()) return SharedResult::kNoInputs;
  if (!split.clear) return SharedResult::kByRounding;
  const ElementValues* shared = c.output_majority ? &c.output : nullptr;
  if (!shared && c.majority >= 0) shared = &c.others[static_cast<size_t>(c.majority)].values;
  bool found = false;
  if (shared) {
    found = IsReplayed(a, *shared) || AgreeingElements(c, *shared).AreOfAllRanks(*shared);
  } else {
    found = IsReplayed(a, c.output) || (c.others.size() == 1 && IsReplayed(a, c.others[0].values));
  }
  return found ? SharedResult::kYes : SharedResult::kByGroup;
}

v1::Verdict ResultsDiffer(const JoinedReduction& joined, const OutputSplit& split, bool replayed) {
  const std::vector<uint32_t>& odd = split.odd;
  const std::string names = RankWords(odd);
  FindingBuilder found(v1::LEVEL_ERROR, v1::STRENGTH_PROVED);
  found
      .Title(split.majority
                 ? absl::StrCat(names, " got a different result of a reduction than the others")
                 : absl::StrCat(names, " got different results of one reduction"))
      .Explain(absl::StrFormat(
          "Call %d of %s: %s %d of %d sampled elements differ, first %d: %.9g on rank %d, %.9g "
          "on rank %d. Tensors updated with it differ from then on.",
          joined.sequence, GroupWords(joined.group),
          split.majority
              ? absl::StrFormat("%d of %d ranks got the same result.",
                                split.ranks.size() - odd.size(), split.ranks.size())
              : "no majority of the ranks has the same result, so the correct one is not known.",
          split.differ, split.compared, split.element, split.value_a, split.rank_a, split.value_b,
          split.rank_b))
      .Cause("reduction-result", 1)
      .Measured("ranks that differ", static_cast<double>(odd.size()), "ranks")
      .Threshold(0, "every rank gets the same bits")
      .Fix(
          "Test these ranks' memory and links (dcgmi diag -r 3, ECC and NVLink counters, NCCL "
          "tests with checking on); reload their weights from another replica.");
  for (const uint32_t rank : odd) found.verdict().mutable_site()->add_ranks(rank);
  found.Samples(split.compared);
  google::protobuf::Struct& witness = *found.finding().mutable_witness();
  Put(witness, "element", static_cast<double>(split.element));
  Put(witness, absl::StrCat("rank ", split.rank_a), split.value_a);
  Put(witness, absl::StrCat("rank ", split.rank_b), split.value_b);
  Put(*found.verdict().mutable_details(), "ranks", static_cast<double>(split.ranks.size()));
  Put(*found.verdict().mutable_details(), "group", joined.group);
  if (!replayed)
    found.verdict().add_assumptions(
        "every rank gets the result (an all-reduce), as most values show");
  v1::Verdict verdict = found.Take();
  if (replayed) ChangeToReplayed(verdict);
  return verdict;
}

}  // namespace plumbline::analysis
