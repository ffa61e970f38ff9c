#include "analysis/collective/differing_sums.h"

#include <algorithm>
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

constexpr size_t kFewestOfDiffering = 64;
constexpr double kMostBiasOfSums = 0.1;  // of the sums

// The errors of one rank's results, per element, in units of the sum of magnitudes.
struct RankErrors {
  ElementValues errors;
  double factor = 0;     // common to the errors, relative to the sums
  double deviation = 0;  // of `factor`
};

class SumsOfRanks {
 public:
  SumsOfRanks(const ReductionCase& c, double scale)
      : c_(c), scale_(scale), tolerance_(c, BoundPrecision(c), false) {
    for (const SumColumn& column : SumColumnsOf(c)) {
      if (!(column.mass > 0)) continue;
      columns_.push_back(column);
      sums_.push_back(column.exact / column.mass);
    }
    const double divisor = c.average() ? c.ranks : 1;
    for (int r = 0; r < c.ranks; ++r) {
      ElementValues d;
      for (const SumColumn& column : columns_) {
        const double mean = column.exact * divisor / c.ranks;
        d.push_back((c.input(r, column.sample) - mean) / (column.mass * divisor));
      }
      squares_.push_back(DotProduct(d, d));
      deviations_.push_back(std::move(d));
    }
  }

  size_t size() const { return columns_.size(); }

  // Returns the errors of one rank's results. If they are not the sums, returns nullopt. Clears
  // `exact` if single ranks' values could be missing in them.
  std::optional<RankErrors> Take(const ElementValues& y, bool* exact) const {
    if (!Fits(columns_, y, scale_, tolerance_)) return std::nullopt;
    RankErrors out;
    for (const SumColumn& column : columns_) {
      const double value = y[static_cast<size_t>(column.sample)] / scale_;
      out.errors.push_back((value - column.exact) / column.mass);
    }
    // A factor may be the bias of a rounding. What is left of the errors must not depend on ranks.
    const double norm = DotProduct(sums_, sums_);
    if (!(norm > 0)) return std::nullopt;
    out.factor = DotProduct(out.errors, sums_) / norm;
    if (!(std::fabs(out.factor) < kMostBiasOfSums)) return std::nullopt;
    for (size_t i = 0; i < size(); ++i) out.errors[i] -= out.factor * sums_[i];
    const double rest = DotProduct(out.errors, out.errors);
    out.deviation = std::sqrt(rest / static_cast<double>(size()) / norm);
    if (!(16 * rest <= *std::min_element(squares_.begin(), squares_.end()))) {
      *exact = false;
      if (DependsOnRanks(out.errors, rest)) return std::nullopt;
    }
    return out;
  }

 private:
  bool DependsOnRanks(const ElementValues& errors, double all) const {
    const auto n = static_cast<double>(c_.ranks), m = static_cast<double>(size());
    const double chance = n / m + 5 * std::sqrt(2 * n) / m;
    double sum = 0;
    for (size_t j = 0; j < deviations_.size(); ++j) {
      const double product = DotProduct(errors, deviations_[j]);
      if (squares_[j] > 0 && all > 0) sum += product / squares_[j] * product / all;
    }
    return !(chance < 0.5 && sum <= chance);
  }

  const ReductionCase& c_;
  const double scale_;
  SumTolerance tolerance_;
  std::vector<SumColumn> columns_;
  ElementValues sums_;
  std::vector<ElementValues> deviations_;  // by rank
  ElementValues squares_;                  // sums of their squares
};

// Returns true if every rank's results are the sums, times `scale`, and no rank has a factor of
// its own.
bool AreSumsOfAll(const ReductionCase& c, double scale, bool* exact) {
  const SumsOfRanks sums(c, scale);
  if (sums.size() < kFewestOfDiffering) return false;
  const auto first = sums.Take(c.output, exact);
  if (!first) return false;
  return std::all_of(c.others.begin(), c.others.end(), [&](const ReductionCase::Other& other) {
    const auto errors = sums.Take(other.values, exact);
    return errors &&
           std::fabs(errors->factor - first->factor) <= 5 * (errors->deviation + first->deviation);
  });
}

// Few bits of the results agree, but all of them are the sums of the inputs.
void ChangeToSums(const DifferingSums& sums, v1::Verdict& verdict) {
  v1::Finding& f = *verdict.mutable_finding();
  f.set_explanation(absl::StrCat(
      f.explanation(),
      " Every rank's results are the sums of all inputs within their rounding, so each rank "
      "rounded them in its own way."));
  if (!sums.exact) f.set_strength(v1::STRENGTH_BOUNDED);
  f.mutable_cause()->set_id("rounded-by-rank");
  f.set_fix(
      "Use a collective that gives every rank the same bits (a ring or tree all-reduce). Do not "
      "gather the values and add them in an order or with a rounding of each rank's own. Or "
      "broadcast one rank's result.");
  const char kAssumed[] =
      "every rank gets the result (an all-reduce), as all results are sums of all inputs";
  verdict.clear_assumptions();
  verdict.add_assumptions(kAssumed);
  f.clear_assumptions();
  f.add_assumptions(kAssumed);
}

}  // namespace

std::optional<DifferingSums> SplitSums(const JoinedReduction& joined) {
  const auto c = DecodeReduction(joined);
  if (!c.ok() || c->others.empty() || c->ranks < 3) return std::nullopt;
  const double postscale = joined.call_of(0).postscale();
  DifferingSums out;
  bool sums = false;
  for (const double scale : {1.0, postscale, 1.0 / c->ranks}) {
    if (sums || scale == 0 || (scale != 1 && scale != postscale && c->average())) continue;
    out.exact = true;
    sums = AreSumsOfAll(*c, scale, &out.exact);
  }
  if (!sums) return std::nullopt;
  OutputSplit& split = out.split;
  const ElementValues &a = c->output, &b = c->others.front().values;
  split.rank_a = c->output_rank;
  split.rank_b = c->others.front().rank;
  split.compared = a.size();
  for (size_t i = 0; i < a.size(); ++i) {
    if (SameResult(a[i], b[i]) || split.differ++ > 0) continue;
    split.element = c->offsets[i];
    split.value_a = a[i];
    split.value_b = b[i];
  }
  if (split.differ == 0) return std::nullopt;
  split.majority = c->output_majority;
  split.odd = c->differing_ranks;
  split.ranks.push_back(c->output_rank);
  if (HoldsAllRanks(joined.items[0].evidence->reduction())) {
    for (int r = 1; r < c->ranks; ++r) split.ranks.push_back(static_cast<uint32_t>(r));
  } else {
    split.ranks.clear();
    for (const Item& item : joined.items) {
      if (item.evidence->reduction().sample().has_output())
        split.ranks.push_back(item.source->rank());
    }
  }
  if (!split.majority) split.odd = split.ranks;
  return out;
}

v1::Verdict ResultsDiffer(const JoinedReduction& joined, const OutputSplit& split,
                          const DifferingSums* sums) {
  const std::vector<uint32_t>& odd = split.odd;
  const std::string names = RankWords(split.odd);
  FindingBuilder found(v1::LEVEL_ERROR, v1::STRENGTH_PROVED);
  const bool many = odd.size() > 4;
  found
      .Title(many ? absl::StrFormat("%d of %d ranks got different results of one reduction",
                                    odd.size(), split.ranks.size())
             : split.majority
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
  found.verdict().add_assumptions(
      "every rank gets the result (an all-reduce), as most values show");
  v1::Verdict verdict = found.Take();
  if (sums != nullptr) ChangeToSums(*sums, verdict);
  return verdict;
}

}  // namespace plumbline::analysis
