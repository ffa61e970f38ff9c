#include "analysis/collective/broken.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/collective/case/case.h"
#include "analysis/frame/frame.h"

namespace plumbline::analysis {
namespace {

std::string BrokenRanksTitle(const SumBound& bound) {
  const bool one = bound.ranks.size() == 1;
  return one ? absl::StrCat("rank ", bound.ranks.front().rank,
                            " did not get the sum from a reduction")
             : absl::StrCat(bound.ranks.size(), " ranks did not get the sum from a reduction");
}

std::string BrokenText(const ReductionAnalysis& a, const BrokenSum& worst, uint32_t rank,
                       bool by_rank) {
  const int32_t beyond = by_rank ? a.bound.ranks.front().beyond : a.bound.beyond;
  return absl::StrFormat(
      "Element %d is %.9g on rank %d; its %d inputs sum to %.9g. No order of additions with %d "
      "significand bits has an error above %.3g. %d of %d sampled elements exceed this error.%s",
      a.c.offsets[static_cast<size_t>(worst.sample)], worst.y, rank, a.c.ranks, worst.exact,
      a.bound.precision, worst.bound, beyond, a.bound.compared,
      by_rank ? " Most ranks got the correct sums." : "");
}

void AddBoundAssumptions(const ReductionAnalysis& a, bool by_rank, v1::Verdict& verdict) {
  verdict.add_assumptions("the collective is a plain sum of these inputs, uncompressed");
  verdict.add_assumptions(
      absl::StrCat("partial sums keep at least ", a.bound.precision, " significand bits",
                   a.bound.nearest ? ", rounded to nearest as most samples show" : ""));
  if (by_rank) verdict.add_assumptions("every rank gets the result, because most of them do");
  for (const std::string& assumption : verdict.assumptions())
    verdict.mutable_finding()->add_assumptions(assumption);
}

v1::Verdict BrokenFinding(const ReductionAnalysis& a) {
  const SumBound& bound = a.bound;
  const bool by_rank = bound.broken == 0;
  const BrokenSum& worst = by_rank ? bound.ranks.front().worst : bound.worst;
  const uint32_t rank = by_rank ? bound.ranks.front().rank : a.c.output_rank;
  // Plain sums are not declared, and many results are none, so this may be a compression.
  const bool doubtful = !by_rank && 4 * bound.beyond > bound.compared && !IsPlainSum(a.c.algorithm);
  FindingBuilder found(doubtful ? v1::LEVEL_WARNING : v1::LEVEL_ERROR, v1::STRENGTH_BOUNDED);
  found
      .Title(by_rank ? BrokenRanksTitle(bound)
                     : "results of a collective are not the sums of its inputs")
      .Explain(BrokenText(a, worst, rank, by_rank))
      .Cause(by_rank ? "reduction-result" : "not-the-sum", doubtful ? 0.5 : 0.9)
      .Measured("error", std::fabs(worst.y - worst.exact), "absolute")
      .Threshold(
          worst.bound,
          absl::StrFormat(
              "(N + 4) 2^%d sum|x| plus one ulp: the largest error of additions in any order",
              (bound.nearest ? 0 : 1) - bound.precision))
      .Fix(doubtful ? "If the values are sent compressed, declare it (algorithm powersgd, one-bit, "
                      "top-k, int8-scaled, fp8-scaled). Otherwise find what writes to the buffer "
                      "during the collective (a missing stream synchronisation)."
                    : "Test that rank's memory and links (dcgmi diag -r 3, ECC and NVLink "
                      "counters), and find what else writes to the buffer: a kernel that runs at "
                      "the same time, a missing stream synchronisation.")
      .Samples(static_cast<uint64_t>(bound.compared));
  google::protobuf::Struct& w = *found.finding().mutable_witness();
  Put(w, "element", static_cast<double>(a.c.offsets[static_cast<size_t>(worst.sample)]));
  Put(w, "rank", rank);
  Put(w, "result", worst.y);
  Put(w, "exact", worst.exact);
  Put(w, "bound", worst.bound);
  for (const BoundedRank& r : bound.ranks) found.verdict().mutable_site()->add_ranks(r.rank);
  AddBoundAssumptions(a, by_rank, found.verdict());
  return found.Take();
}

uint32_t RankOfRow(const ReductionAnalysis& a, int row) {
  const auto& items = a.joined->items;
  const auto i = static_cast<size_t>(row);
  return items.size() > 1 && i < items.size() ? items[i].source->rank()
                                              : static_cast<uint32_t>(row);
}

constexpr char kHandedOver[] =
    "the recorded inputs are the values that each rank hands to the collective";

// Completes a finding about the values of one rank. `compared`: number of results that a replay
// gives bit for bit.
v1::Verdict TakeOfRank(uint32_t rank, int32_t compared, FindingBuilder* found) {
  found->Samples(static_cast<uint64_t>(compared));
  found->verdict().mutable_site()->add_ranks(rank);
  google::protobuf::Struct& w = *found->finding().mutable_witness();
  Put(w, "rank", rank);
  Put(w, "compared", compared);
  return found->Take();
}

v1::Verdict FlippedFinding(const ReductionAnalysis& a) {
  const ReplacedRank& flipped = a.bound.flipped;
  const uint32_t rank = RankOfRow(a, flipped.row);
  FindingBuilder found(v1::LEVEL_ERROR, v1::STRENGTH_PROVED);
  found.Title(absl::StrCat("rank ", rank, " enters the sum with the wrong sign"))
      .Explain(absl::StrFormat(
          "No candidate gives the results from the inputs of the %d ranks. If the values of rank "
          "%d are subtracted instead of added, a replay gives all %d bit for bit.",
          a.c.ranks, rank, flipped.compared))
      .Cause("flipped-sign", 1)
      .Measured("weight of the rank's values in the sum", -1, "share")
      .Threshold(1, "a sum adds every rank's values once")
      .Fix(absl::StrCat(
          "Find what negates the gradients of rank ", rank,
          " after they are recorded: a reversed loss or gradient-reversal layer on that rank, a "
          "hook that subtracts, a different build. Its updates go uphill in every step."))
      .Assume(kHandedOver);
  return TakeOfRank(rank, flipped.compared, &found);
}

v1::Verdict CutFinding(const ReductionAnalysis& a) {
  const CutInputs& cut = a.bound.cut;
  const char* const type = DTypeName(cut.to);
  FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_PROVED);
  found.Title(absl::StrCat("inputs of a sum are cut to ", type, " toward zero"))
      .Explain(absl::StrFormat(
          "No candidate gives the results from the recorded %s inputs. If these are cut to %s "
          "(toward zero) first, a replay gives all %d bit for bit; the cut changes %d of these "
          "sums. They are off by %+.3f %% in the mean, the same way at every step.",
          DTypeName(a.c.input_dtype), type, cut.compared, cut.differ, 100 * cut.bias))
      .Cause("inputs-cut", 1)
      .Measured("relative error of the sums", cut.bias, "share")
      .Threshold(0, "rounding to nearest has no bias")
      .Fix(absl::StrCat(
          "Find what converts the gradients to ", type,
          " after they are recorded (a communication hook, a shift or mask of the bits), and "
          "convert with rounding to nearest, as tensor.to(dtype) does, or reduce in f32."))
      .Samples(static_cast<uint64_t>(cut.compared))
      .Assume(kHandedOver);
  google::protobuf::Struct& w = *found.finding().mutable_witness();
  Put(w, "compared", cut.compared);
  Put(w, "differ", cut.differ);
  return found.Take();
}

}  // namespace

v1::Verdict StaleFinding(const ReductionAnalysis& a, const StaleRank& stale) {
  const uint32_t rank = RankOfRow(a, stale.row);
  FindingBuilder found(v1::LEVEL_ERROR, v1::STRENGTH_PROVED);
  found.Title(absl::StrCat("rank ", rank, " enters the sum with its values of step ", stale.step))
      .Explain(absl::StrFormat(
          "No candidate gives the results from the inputs of the %d ranks. With the values that "
          "rank %d recorded in step %d in place of those of this step, a replay gives all %d bit "
          "for bit.",
          a.c.ranks, rank, stale.step, stale.compared))
      .Cause("stale-rank", 1)
      .Measured("elements with values of the earlier step", 1, "share")
      .Threshold(0, "a sum adds every rank's values of its own step")
      .Fix(absl::StrCat(
          "Find why rank ", rank,
          " sends a buffer that is not filled yet: a communication stream that does not wait for "
          "the backward pass, a copy into the bucket that is skipped or comes late, a hook that "
          "runs once too few."))
      .Assume(kHandedOver)
      .Witness("step", static_cast<double>(stale.step));
  return TakeOfRank(rank, stale.compared, &found);
}

std::optional<v1::Verdict> BrokenCollective(
    const std::vector<std::shared_ptr<const ReductionAnalysis>>& all) {
  for (const auto& a : all) {
    if (!a->blocked.empty() || !a->bound.found()) continue;
    if (a->bound.flipped.found()) return FlippedFinding(*a);
    if (a->bound.cut.found()) return CutFinding(*a);
    // If results are almost equal, precision/replica-divergence reports them.
    const auto split = a->bound.broken > 0 ? std::nullopt : SplitOutputs(*a->joined);
    if (!split || split->odd.empty()) return BrokenFinding(*a);
  }
  return std::nullopt;
}

}  // namespace plumbline::analysis
