// OnsetCause and CauseOfGrowth of weights_cause.h.
#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/drift/details.h"
#include "analysis/drift/marks.h"
#include "analysis/drift/weights_cause.h"

namespace plumbline::analysis {
namespace {

constexpr char kCompareUpdates[] =
    "Check that the weight update of that step reached every worker and every tensor: compare "
    "checksums of the engine's weights with the trainer's after each update.";

// The steps of a drift that began, and how it went on.
struct Onset {
  std::string words;   // "rose 4.2-fold at step 24 and stayed"
  bool grows = false;  // the drift grows with the steps after it
  double k3 = 0;       // mean over the tokens of these steps
};

// Tests whether drift grows with the steps, which it does if the engine's weights stand: the slope
// of ln d^2 is above 0 by kOnsetErrors standard errors.
bool Grows(std::span<const DriftPoint> points) {
  if (points.size() < kFewestOnset) return false;
  const auto n = static_cast<double>(points.size());
  double mean = 0, xx = 0, xy = 0, yy = 0;
  for (const DriftPoint& p : points) {
    if (!(p.mean_square > 0)) return false;
    mean += std::log(p.mean_square) / n;
  }
  for (size_t i = 0; i < points.size(); ++i) {
    const double x = static_cast<double>(i) - (n - 1) / 2;
    const double y = std::log(points[i].mean_square) - mean;
    xx += x * x;
    xy += x * y;
    yy += y * y;
  }
  const double slope = xy / xx;
  const double error = std::sqrt(std::max(0.0, yy - slope * xy) / (n - 2) / xx);
  return slope > kOnsetErrors * error && slope * (n - 1) > std::log(kOnsetGrows);
}

Onset OnsetOf(const DriftStatistics& s, const StepPatterns& patterns) {
  const StepChange& jump = patterns.jump;
  const DriftEpisode& episode = patterns.episode;
  const bool stays = jump.found || jump.at_edge;
  const int64_t begin = stays ? jump.step : episode.first;
  Onset onset;
  onset.words = stays ? absl::StrFormat("rose %.1f-fold at step %d and stayed", std::exp(jump.jump),
                                        jump.step)
                      : absl::StrFormat("rose %.1f-fold in step %d and fell back in step %d",
                                        std::exp(episode.rise), episode.first, episode.after);
  std::vector<DriftPoint> points;
  double tokens = 0;
  for (const DriftPoint& p : s.series.At(s.with_lag > 0 ? 0 : DriftSeries::kUnknownLag)) {
    if (p.step < begin || (!stays && p.step > episode.last)) continue;
    points.push_back(p);
    tokens += p.tokens;
    onset.k3 += p.k3 * p.tokens;
  }
  if (tokens > 0) onset.k3 /= tokens;
  onset.grows = Grows(points);
  return onset;
}

// The causes that the evidence does not exclude.
std::string Remaining(const DriftStatistics& s, const Onset& onset, bool repeats_equal) {
  std::vector<std::string> causes = {"a weight update did not arrive or arrives late"};
  if (!(onset.k3 > 2 * kDriftWarning))
    causes.push_back("one side has another arithmetic (precision, kernels)");
  if (!repeats_equal) causes.push_back("dropout or another random layer is active in one pass");
  if (onset.k3 > kDriftHealthy) {
    causes.push_back("the engine has another model or strongly quantised weights");
    causes.push_back("the two sides have different prompts");
    if (s.fresh.below()[3] + s.fresh.above()[3] > 0)
      causes.push_back("the two sides have different token ids");
  }
  return absl::StrJoin(causes, ", or ");
}

}  // namespace

std::optional<DriftCause> OnsetCause(const DriftStatistics& s, const StepPatterns& patterns,
                                     const DriftTests& tests) {
  const bool stays = patterns.jump.found || patterns.jump.at_edge;
  if (!stays && !patterns.episode.found) return {};
  const Onset onset = OnsetOf(s, patterns);
  const bool labelled = s.with_lag > 0;
  const std::string words = absl::StrCat(
      "drift of tokens ", labelled ? "labelled lag 0 " : "without versions ", onset.words);
  const RepeatedValues repeats = RepeatsOf(s, tests);
  if (repeats == RepeatedValues::kRandom && onset.k3 > kDriftHealthy) {
    return DriftCause{kByTrainerItself.cause, kByRepeatedContexts,
                      words +
                          ". The trainer scores the same token in the same context differently in "
                          "one step: dropout, router jitter or another random layer is active",
                      kScoreInEvaluation};
  }
  const bool sized = !(onset.k3 > 10 * kDriftWarning);
  const bool repaired = patterns.episode.found && !stays && sized;
  const DriftMark& mark = labelled ? kByJump : kByUnlabelledJump;
  if (onset.grows || repaired) {
    return DriftCause{mark.cause, mark.confidence,
                      onset.grows ? words + ", and grows with the steps after it" : words,
                      kCompareUpdates};
  }
  const std::string remaining = Remaining(s, onset, repeats == RepeatedValues::kEqual);
  return DriftCause{
      "unknown", 0, absl::StrCat(words, ": ", remaining),
      absl::StrCat(kCompareUpdates,
                   " If they are equal, score one batch twice in evaluation mode, and compare the "
                   "token ids of a whole sequence."),
      remaining};
}

DriftCause CauseOfGrowth(DriftCause cause) {
  if (cause.id != "noise") return cause;
  return {
      "unknown", 0,
      "The only mark is noise, which does not grow: weight updates do not arrive or arrive late, "
      "or an adapter is not merged, or the policy moved to where one side's precision is too "
      "low, or one side has another arithmetic since then",
      kCompareUpdates};
}

}  // namespace plumbline::analysis
