#include "analysis/drift/part_cause.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/drift/marks.h"

namespace plumbline::analysis {
namespace {

using OfPart = std::optional<DriftCause>;

DriftCause ByMark(const DriftMark& mark, std::string words, std::string fix) {
  return {mark.cause, mark.confidence, std::move(words), std::move(fix)};
}

constexpr char kKeepFp32[] =
    "Compute log-softmax and keep log-probabilities in fp32 (cast the logits to fp32 first).";

std::string GriddedSides(const DriftStatistics& s) {
  const bool both = s.gridded_train > 0 && s.gridded_rollout > 0;
  return both ? "both sides'" : s.gridded_train > 0 ? "the trainer's" : "the rollout's";
}

constexpr char kEmptyPrefixes[] =
    "Empty the engine's prefix cache with every weight update (vLLM: reset_prefix_cache; SGLang: "
    "flush_cache).";

// Names what makes first tokens differ if no cache holds older weights.
DriftCause NotCached(const FirstTokensExcess& first, const std::string& words) {
  const std::string where = words + ", also where no cache holds older weights: ";
  const char* masks =
      "Mask attention between the documents of a pack (position ids that start at 0, and a "
      "variable-length attention kernel), or do not pack.";
  const char* prompts =
      "Compare the token ids of one whole prompt on both sides: chat template, BOS token, system "
      "prompt.";
  if (first.share >= kInAllSequences)
    return ByMark(kByTemplate, where + "the two sides have different prompts", prompts);
  // If first tokens are not far above later ones, many sequences seem equal by chance.
  if (first.found && first.share <= kInPartOfSequences)
    return ByMark(kByPacking,
                  where +
                      "documents attend to the one before in their pack, or a part of the "
                      "prompts differs",
                  masks);
  return {"unknown", 0,
          where + "different prompts, or documents that attend to the one before in their pack",
          absl::StrCat(prompts, " ", masks)};
}

// Returns the variance that remains after the better shift, as a share. If no shift helps, returns
// 1.
double LeftByShift(const DriftStatistics::Shifts& shifts) {
  const double here = shifts.here.variance();
  if (shifts.here.count < kFewestShifted || !(here > kShiftVariance)) return 1;
  const double left = std::min(shifts.back.variance(), shifts.forward.variance()) / here;
  return left < kShiftLeaves ? left : 1;
}

}  // namespace

OfPart ShiftedCause(const DriftStatistics& s) {
  const DriftStatistics::Shifts* shifts = &s.shifts;
  double left = LeftByShift(s.shifts);
  std::string whose;
  for (auto at = s.shifts_of.begin(); whose.empty() && left == 1 && at != s.shifts_of.end(); ++at) {
    left = LeftByShift(at->second);
    if (left == 1) continue;
    shifts = &at->second;
    whose = absl::StrCat("of worker ", at->first, " ");
  }
  if (left == 1) return {};
  const bool back = shifts->back.variance() < shifts->forward.variance();
  return ByMark(
      kByShift,
      absl::StrFormat(
          "log pi %smatches log mu of the token %s: with this shift %.2g of the variance remains",
          whose, back ? "before" : "after", left),
      "Shift one side by one token: logits at position t predict token t + 1. Check labels, prompt "
      "length and padding in the trainer's log-probability pass.");
}

OfPart RoundedCause(const DriftStatistics& s) {
  if (s.rounding_share() >= kGridExplains) {
    return ByMark(
        kByGrid,
        GriddedSides(s) + " values are on a 16-bit grid, and this rounding explains the drift",
        kKeepFp32);
  }
  const Lattice lattice = s.lattice.Find();
  if (!lattice.found) return {};
  return ByMark(kByLattice,
                absl::StrFormat("d is a multiple of 2^%d (%.0f %% of %d tokens within a tenth): "
                                "the logits of both sides are rounded to 16 bits",
                                std::ilogb(lattice.unit), 100 * lattice.share, lattice.tokens),
                kKeepFp32);
}

// An error that is uniform between 0 and a unit has four times the mean square of an error within
// half a unit. The square of its mean is three quarters of that, or less if the units differ.
OfPart CutCause(const DriftStatistics& s) {
  constexpr double kOneSign = 0.25;
  const double mean = s.fresh.mean(), square = 2 * s.fresh.k2();
  if (!(s.rounding_share() >= kGridExplainsCut) || !(mean * mean > kOneSign * square)) return {};
  return ByMark(kByGrid,
                absl::StrFormat("%s values are on a 16-bit grid, and d is %+.2g on average: they "
                                "are cut to 16 bits, not rounded",
                                GriddedSides(s), mean),
                kKeepFp32);
}

OfPart FirstTokensCause(const DriftStatistics& s) {
  using Where = FirstTokensExcess::Where;
  const FirstTokensExcess first = s.first_tokens.Excess();
  const bool decays = first.decays && first.where == Where::kNotCache;
  if (!first.found && !decays) return {};
  const std::string words = absl::StrFormat(
      "the first %d tokens of the responses have a mean d^2 of %.2g, later tokens of equal "
      "probability %.2g, in %.0f %% of the sequences",
      FirstTokens::kFirst, first.square, first.expected, 100 * first.share);
  // If versions are not recorded, first tokens may be of older weights.
  const bool updated = s.with_lag == 0 && !first.sharp && first.where != Where::kNotCache;
  if (first.where == Where::kNotCache) return NotCached(first, words);
  if (first.where == Where::kCache && !updated)
    return ByMark(kByFirstTokens,
                  words +
                      ", and not where no cache holds older weights: the prefix "
                      "cache holds keys and values of older weights",
                  kEmptyPrefixes);
  return DriftCause{
      "unknown", 0,
      absl::StrCat(words, ": a prefix cache with values of older weights, ",
                   first.share < kInAllSequences
                       ? "documents that attend to the one before in their pack"
                       : "another chat template or BOS token",
                   updated ? ", or weights that were updated inside sequences (weight_versions "
                             "would show this)"
                           : " (cached_tokens, or the run's first step, would show which)"),
      kEmptyPrefixes};
}

OfPart OneWorkerCause(const DriftStatistics& s) {
  const DriftStrata::Dominant dominant = s.strata.DominantWorker();
  if (dominant.worker.empty()) return {};
  return ByMark(kByWorker,
                absl::StrFormat("worker %s has %.0f %% of d^2: its settings or weights differ from "
                                "those of the other workers",
                                dominant.worker, 100 * dominant.share),
                absl::StrCat("Compare the temperature, the weights' checksums, the dtype and the "
                             "engine's version of worker ",
                             dominant.worker, " with those of another worker."));
}

OfPart LikeliestCause(const DriftStatistics& s) {
  if (!LogsLikeliest(s)) return {};
  return DriftCause{"unknown", 0,
                    "log mu is never below log pi, and pi + mu hardly ever exceeds 1 where they "
                    "differ: the likeliest token's log-probability was logged instead of the "
                    "sampled one's, or a grammar allows few tokens",
                    "Log the log-probability of the sampled token id. Compare one response's "
                    "logged ids with the ids that the log-probabilities belong to."};
}

}  // namespace plumbline::analysis
