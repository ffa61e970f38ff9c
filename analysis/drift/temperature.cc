#include "analysis/drift/temperature.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "analysis/statistics/statistics.h"

namespace plumbline::analysis {
namespace {

constexpr double kExplained = 0.6;  // required R^2 on log pi + H_pi
// Required R^2 on log mu + H_pi, and on log mu if the slope is small.
constexpr double kExplainedToo = 0.3;
constexpr double kSmallSlope = 0.05;
constexpr uint64_t kFewSequences = 8;  // a part needs this number of sequences for a standard error

// Returns the two-sided normal deviation that is exceeded with probability p.
double DeviationsOf(double p) {
  double low = 0, high = 40;
  for (int i = 0; i < 60; ++i) {
    const double z = (low + high) / 2;
    (std::erfc(z / std::numbers::sqrt2) > p ? low : high) = z;
  }
  return high;
}

// Returns an estimate in deviations of a normal distribution, with the errors of `fit`. The
// standard error of few sequences is uncertain, so uses Student's t for it. The error over contexts
// needs no such correction, because it is already widened.
double DeviationsOf(double estimate, const SlopeFit& fit) {
  if (fit.sequences < 2) return 0;
  const auto degrees = static_cast<double>(fit.sequences - 1);
  const double by_sequence = NormalDeviateOfT(estimate / fit.sequence_error, degrees);
  const double by_context = estimate / fit.standard_error;
  return std::fabs(by_context) < std::fabs(by_sequence) ? by_context : by_sequence;
}

TemperatureMark MarkOf(const DriftSlopes& slopes, double tokens, double deviations) {
  TemperatureMark mark;
  mark.fit = slopes.on_entropy.Fit();
  if (mark.fit.count > 0) {
    const SlopeFit other = slopes.on_centred.Fit();
    const bool one_sign = mark.fit.slope * other.slope > 0;
    // The trainer's noise can only raise the first slope, and the rollout's noise can only lower
    // the second. So tests the slope that noise cannot move in that direction.
    const SlopeFit& tested = mark.fit.slope > 0 ? other : mark.fit;
    const double z = DeviationsOf(tested.slope, tested);
    mark.by_entropy = one_sign && std::fabs(z) > deviations &&
                      std::fabs(DeviationsOf(mark.fit.slope, mark.fit)) > deviations &&
                      mark.fit.r2 >= kExplained && other.r2 >= kExplainedToo;
    if (mark.by_entropy || 2 * mark.fit.count > tokens) return mark;
  }
  mark.fit = slopes.on_rollout.Fit();
  // Noise of log mu changes the slope of d on log mu by at most var(d) / var(log mu).
  const double noise = mark.fit.variance_y / mark.fit.variance_x;
  const double above = std::fabs(mark.fit.slope) - std::max(noise, 0.01);
  mark.by_rollout = DeviationsOf(above, mark.fit) > deviations;
  return mark;
}

// Returns true if the slope explains most of d.
bool ExplainsMost(const TemperatureMark& mark) {
  return mark.by_entropy || (mark.by_rollout && mark.fit.r2 >= kExplained);
}

}  // namespace

void DriftSlopes::Add(double train, double rollout, double entropy, ContextKey context) {
  const double d = train - rollout;
  on_rollout.Add(rollout, d, context);
  if (!std::isfinite(train + entropy)) return;
  on_entropy.Add(train + entropy, d, context);
  on_centred.Add(rollout + entropy, d, context);
}

void DriftSlopes::EndSequence() {
  for (ClusteredSlope* fit : {&on_entropy, &on_centred, &on_rollout}) fit->EndSequence();
}

TemperatureMark FindTemperature(const RolloutSlices<DriftSlopes>& slopes, double tokens,
                                double most) {
  TemperatureMark pool, found;
  slopes.ForEach([&](const SliceName& name, double share, const DriftSlopes& part) {
    if (ExplainsMost(pool) || found.found()) return;
    const SlopeFit size = part.on_rollout.Fit();
    if (!name.pool() && size.sequences < kFewSequences) return;
    TemperatureMark mark =
        MarkOf(part, name.pool() ? tokens : size.count, DeviationsOf(share * most));
    mark.part = name;
    if (name.pool()) {
      pool = mark;
    } else if (pool.found() ? name.kind == SliceName::Kind::kWorker && ExplainsMost(mark)
                            : mark.found()) {
      found = mark;
    }
  });
  return found.found() ? found : pool;
}

}  // namespace plumbline::analysis
