#include "analysis/drift/weights_cause.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/drift/details.h"
#include "analysis/drift/marks.h"

namespace plumbline::analysis {
namespace {

constexpr char kCompareWeights[] =
    "Check that each weight update reaches the engine, and that a LoRA adapter is merged or loaded "
    "there: compare checksums of its weights with the trainer's after an update.";

// Means over the steps of a part of a series.
struct PartOfSeries {
  double square = 0;    // d^2
  double expected = 0;  // d^2 of tokens with the same log mu
};

PartOfSeries MeansOf(std::span<const DriftPoint> points) {
  PartOfSeries part;
  const auto n = static_cast<double>(points.size());
  for (const DriftPoint& p : points) {
    part.square += p.mean_square / n;
    part.expected += p.expected_square / n;
  }
  return part;
}

struct SteadyGrowth {
  bool found = false;
  double first = 0, last = 0;  // mean d^2 of the first eighth and of the last quarter of the steps
};

SteadyGrowth FindSteadyGrowth(std::span<const DriftPoint> points) {
  SteadyGrowth growth;
  if (points.size() < kFewestSteady) return growth;
  const PartOfSeries first = MeansOf(points.first(points.size() / 8));
  const PartOfSeries last = MeansOf(points.last(points.size() / 4));
  growth.first = first.square;
  growth.last = last.square;
  // A harder task makes tokens rarer, and rare tokens differ more.
  const double by_tokens = first.expected > 0 ? last.expected / first.expected : 1;
  growth.found = last.square > kSteadyGrows * first.square && first.square <= 2 * kDriftHealthy &&
                 last.square > 2 * kDriftHealthy &&
                 by_tokens * by_tokens < last.square / first.square &&
                 RisingShareOf(points) >= kSteadyRises;
  return growth;
}

// True if the first steps have at least a quarter of the whole record's drift.
bool IsThereFromTheStart(const DriftStatistics& s) {
  const std::vector<DriftPoint> points = s.series.At(s.series.CommonLag());
  if (points.empty()) return false;
  const auto all = MeansOf(points);
  const auto first = MeansOf(std::span(points).first(std::max<size_t>(1, points.size() / 8)));
  return first.square >= all.square / 4;
}

// True if first tokens differ as much as later ones. Different prompts change first tokens most.
bool IsEvenOverPositions(const DriftStatistics& s) {
  const FirstTokensExcess first = s.first_tokens.Excess();
  return first.expected > 0 && first.square <= kEvenPositions * first.expected;
}

}  // namespace

bool IsUnrelated(const SlopeFit& d_on_log_mu) {
  // log pi = (1 + slope) log mu + rest.
  return std::fabs(1 + d_on_log_mu.slope) < kUnrelatedSlope;
}

double RisingShareOf(std::span<const DriftPoint> points) {
  const size_t apart = points.size() / 4;
  size_t rising = 0;
  for (size_t i = apart; i < points.size(); ++i)
    rising += points[i].mean_square > points[i - apart].mean_square;
  return static_cast<double>(rising) / static_cast<double>(points.size() - apart);
}

RepeatedValues RepeatsOf(const DriftStatistics& s, const DriftTests& tests) {
  const Recurrence& r = s.recurrence;
  const double k2 = s.fresh.k2();
  if (tests.trainer_k2 <= kRepeatsEqual * k2) return RepeatedValues::kEqual;
  // If the recurring tokens have little of the drift, they do not show its cause.
  if (r.within() < Recurrence::kFewest || !(r.within_drift() > kRepeatsDrift * 2 * k2))
    return RepeatedValues::kUnknown;
  const double share = r.within_square() / r.within_drift();
  return share <= kRepeatsEqual   ? RepeatedValues::kEqual
         : share >= kRepeatsApart ? RepeatedValues::kRandom
                                  : RepeatedValues::kUnknown;
}

std::optional<DriftCause> GrowsWithVersions(const DriftStatistics& s) {
  const bool labelled = s.with_lag > 0;
  const std::vector<DriftPoint> points = s.series.At(labelled ? 0 : DriftSeries::kUnknownLag);
  const SteadyGrowth growth = FindSteadyGrowth(points);
  if (!growth.found) return {};
  const std::string words = absl::StrFormat(
      "d^2 is %.2g in the first steps, as rounding causes, and grows with the "
      "versions to %.2g",
      growth.first, growth.last);
  const Recurrence& r = s.recurrence;
  const bool stands = labelled && r.across() >= Recurrence::kFewest &&
                      r.across_square() > kMovesFromNoise * growth.first &&
                      !(r.within_square() > r.across_square() / kMovesFromNoise);
  if (!stands) {
    return DriftCause{"unknown", 0,
                      words +
                          ": weight updates do not reach the engine, a LoRA adapter is not merged, "
                          "or the policy moved to where the engine's precision is too low" +
                          (labelled ? "" : ", or the tokens are stale (no versions are recorded)"),
                      kCompareWeights};
  }
  return DriftCause{
      kByStandingWeights.cause, kByStandingWeights.confidence,
      absl::StrFormat("%s. The engine scores %d recurring tokens with the same bits in different "
                      "steps, and the trainer does not: the engine still has its first weights, or "
                      "an adapter is not merged",
                      words, r.across()),
      kCompareWeights};
}

DriftCause OtherWeights(const DriftStatistics& s, const DriftTests& tests) {
  const double k3 = s.bounded_k3.mean();
  const RepeatedValues repeats = RepeatsOf(s, tests);
  const bool unrelated = IsUnrelated(s.slopes.pool().on_rollout.Fit());
  const std::string size = absl::StrFormat(
      "the record is correct, no bias is visible, and k3 of %.2g is more than "
      "rounding causes",
      k3);
  const char* const kCompare =
      "Compare the path, the revision and checksums of the engine's weights with the trainer's.";
  if (repeats == RepeatedValues::kRandom) {
    return {kByTrainerItself.cause, kByRepeatedContexts,
            size +
                ". The trainer scores the same token in the same context differently in one "
                "step: dropout, router jitter or another random layer is active",
            kScoreInEvaluation};
  }
  // Tokens without a version may be stale, whose values repeat too.
  const bool sure = unrelated || (repeats == RepeatedValues::kEqual && s.with_lag > 0 &&
                                  IsEvenOverPositions(s) && k3 > 10 * kDriftWarning);
  if (sure && IsThereFromTheStart(s)) {
    return {kByOtherModel.cause, kByOtherModel.confidence,
            size + ". It is there from the first step on, and " +
                (unrelated ? "log pi does not follow log mu"
                           : "the same token in the same context has the same difference again") +
                ": the engine has another model's weights",
            kCompare};
  }
  if (repeats == RepeatedValues::kEqual) {
    return {"unknown", 0,
            size +
                ". The trainer gives the same values again, so no random layer causes it: the "
                "engine has other weights, of another checkpoint, or strongly quantised ones, or "
                "the two sides have different prompts" +
                (s.with_lag > 0 ? "" : ", or the tokens are stale (no versions are recorded)"),
            kCompare};
  }
  return {"unknown", 0,
          size +
              ": dropout or another random layer is active in one pass, or the engine has "
              "another model's weights, strongly quantised ones, or the two sides have different "
              "prompts",
          absl::StrCat("Run the trainer's scoring pass in evaluation mode (no dropout, no router "
                       "jitter), and score the same batch twice: the results must be equal. ",
                       kCompare)};
}

}  // namespace plumbline::analysis
