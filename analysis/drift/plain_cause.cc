#include "analysis/drift/plain_cause.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/drift/marks.h"
#include "analysis/drift/weights_cause.h"

namespace plumbline::analysis {
namespace {

using Plain = std::optional<DriftCause>;

DriftCause OtherUnits(const std::string& words, const std::string& which) {
  return {kByUnits.cause, kByUnits.confidence, words,
          absl::StrCat("Log natural logarithms of single tokens' probabilities on both sides: ",
                       which, ".")};
}

Plain Units(const DriftStatistics& s) {
  struct Base {
    double factor;
    const char* which;
  };
  static constexpr Base kBases[] = {{std::numbers::ln10, "the rollout's column is in log10"},
                                    {1 / std::numbers::ln10, "the trainer's column is in log10"},
                                    {std::numbers::ln2, "the rollout's column is in log2"},
                                    {1 / std::numbers::ln2, "the trainer's column is in log2"}};
  if (const UnitsFit::Repeated repeated = s.units.RepeatedNumber(); repeated.found) {
    const char* what = repeated.mean ? "mean" : "sum";
    const char* whose = repeated.of_train ? "trainer" : "rollout";
    return OtherUnits(
        absl::StrFormat("log %s is one number per sequence, %.4g times the %s of log %s over its "
                        "tokens, in each of %d sequences",
                        repeated.of_train ? "pi" : "mu", repeated.ratio, what,
                        repeated.of_train ? "mu" : "pi", repeated.sequences),
        absl::StrCat("the ", whose, "'s column is a ", what, " over tokens"));
  }
  if (s.units.ByLength())
    return OtherUnits("log pi is log mu times the length of its sequence, in every sequence",
                      "the rollout's column is a mean over tokens");
  if (s.units.ByInverseLength())
    return OtherUnits("log mu is log pi times the length of its sequence, in every sequence",
                      "the trainer's column is a mean over tokens");
  const double factor = s.units.Factor();
  for (const Base& base : kBases) {
    if (!(std::fabs(factor / base.factor - 1) < kUnitsNear)) continue;
    return OtherUnits(absl::StrFormat("log pi is log mu times %.6g, in every token", factor),
                      base.which);
  }
  return {};
}

// In this run, bit-equal weights gave bit-equal values, so noise does not explain the difference of
// later steps.
Plain NeverArrived(const DriftStatistics& s) {
  const std::vector<DriftPoint> points = s.series.At(s.series.CommonLag());
  if (points.size() < kFewestNeverArrived || points[0].tokens < kTokensOfFirst) return {};
  if (points[0].mean_square != 0) return {};
  const bool zero_again = std::any_of(points.begin() + 1, points.end(),
                                      [](const DriftPoint& p) { return !(p.mean_square > 0); });
  const double last = points.back().mean_square;
  if (zero_again || !(last > kNeverArrivedGrows * points[1].mean_square)) return {};
  return DriftCause{
      kByNeverArrived.cause, kByNeverArrived.confidence,
      absl::StrFormat("both sides are equal to the last bit in step %d and in no step after it: "
                      "the engine still has the first weights, or an adapter is not merged",
                      points[0].step),
      "Check that each weight update reaches the engine, and that a LoRA adapter is merged or "
      "loaded there: compare checksums of its weights with the trainer's after an update."};
}

// Returns true if d rises with log mu and is often above 0, which shows a temperature. In a
// truncation, the trainer's mass on the allowed tokens is at most 1, so d is at most 0.
bool RisesWithRollout(const DriftStatistics& s) {
  if (kRisesOften * s.fresh.above()[0] < s.fresh.below()[0]) return false;
  const TemperatureMark mark = FindTemperature(s);
  return mark.by_rollout && mark.fit.slope > 0 && mark.fit.r2 >= kSignExcludesCut;
}

}  // namespace

bool CoversLess(const DriftStatistics& s) {
  const bool processed = s.declared.mode == v1::LOGPROB_MODE_PROCESSED;
  const uint64_t below = s.fresh.below()[1], above = s.fresh.above()[1];
  const uint64_t rest = processed ? below : below - std::min(below, s.unlikely_zeros);
  // A grammar that keeps most of the probability mass changes d little, but in all tokens.
  const uint64_t little = s.fresh.below()[0];
  if (processed && little >= kFewestLittle && kLittleOfOne * s.fresh.above()[0] <= little)
    return true;
  return rest >= (processed ? kFewestBelowProcessed : kFewestBelow) &&
         kBelowOfOne * above <= rest && !RisesWithRollout(s);
}

bool LosesMass(const DriftStatistics& s, double deviations) {
  // Values that are truncated to 16 bits have errors up to a whole unit in one direction.
  const double n = static_cast<double>(s.fresh.count());
  const double unit = n > 0 ? std::sqrt(12 * s.rounding_squares / n) : 0;
  const bool significant = s.lost_mass.z() > deviations && s.lost_mass.mean() > kLostMass + unit;
  const bool one_sided = static_cast<double>(s.fresh.above_fourth()) <=
                         kRisesFar * static_cast<double>(s.fresh.count());
  return significant && one_sided && s.fresh.above()[3] + s.fresh.below()[3] == 0;
}

bool LogsLikeliest(const DriftStatistics& s) {
  const uint64_t below = s.fresh.below()[1], above = s.fresh.above()[1];
  return s.declared.mode != v1::LOGPROB_MODE_PROCESSED && s.likeliest >= kFewestLikeliest &&
         kOfLikeliest * s.unlikeliest <= s.likeliest && below >= kFewestBelow &&
         kBelowOfOne * above <= below && kLikeliestOf * below >= s.fresh.count();
}

std::optional<DriftCause> SharperOrFlatter(const DriftStatistics& s) {
  const TemperatureMark mark = FindTemperature(s);
  if (!mark.by_rollout || mark.fit.r2 < kSignHints) return {};
  const bool sharper = mark.fit.slope > 0;
  return DriftCause{
      "unknown", 0,
      absl::StrFormat("d changes with log mu (slope %+.3g, R^2 %.2f): the trainer's distribution "
                      "is %s than the rollout's, by a temperature that only one side applies (the "
                      "trainer's is %s), or by other weights",
                      mark.fit.slope, mark.fit.r2, sharper ? "sharper" : "flatter",
                      sharper ? "lower" : "higher"),
      "Divide the trainer's logits by the sampler's temperature. If it does, log the trainer's "
      "entropy, which distinguishes the two, and compare checksums of the weights."};
}

std::optional<DriftCause> GrowsFromRounding(const DriftStatistics& s) {
  const std::vector<DriftPoint> points = s.series.At(s.series.CommonLag());
  const size_t part = points.size() / 4;
  if (part < kFewestGrowing) return {};
  const auto mean = [&](size_t from, double DriftPoint::*value) {
    double sum = 0;
    for (size_t i = from; i < from + part; ++i) sum += points[i].*value;
    return sum / static_cast<double>(part);
  };
  const size_t newest = points.size() - part;
  const double first = mean(0, &DriftPoint::mean_square);
  const double last = mean(newest, &DriftPoint::mean_square);
  const double by_tokens =
      mean(newest, &DriftPoint::expected_square) / mean(0, &DriftPoint::expected_square);
  const bool far = last / 2 > kBeyondRounding && last > kGrowsFromRounding * first;
  const bool steady = last > kRisesFromRounding * first && RisingShareOf(points) >= kRisesInPairs &&
                      by_tokens * by_tokens < last / first;
  if (!far && !steady) return {};
  return DriftCause{
      "unknown", 0,
      absl::StrFormat("d^2 grew from %.2g in the first quarter of the steps to %.2g in the last: "
                      "dropout and other kernels do not grow. The engine's weights are not "
                      "updated or updates arrive late, or an adapter is not merged, or the policy "
                      "moved to where the engine's precision is too low",
                      first, last),
      "Check that each weight update reaches the engine: compare checksums of its weights with the "
      "trainer's after an update."};
}

std::optional<DriftCause> PlainCause(const DriftStatistics& statistics) {
  if (Plain units = Units(statistics)) return units;
  return NeverArrived(statistics);
}

}  // namespace plumbline::analysis
