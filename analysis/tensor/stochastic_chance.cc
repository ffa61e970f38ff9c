#include "analysis/tensor/stochastic_chance.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"

namespace plumbline::analysis {
namespace {

struct Move {
  double unit;      // ulp at the sum
  double whole;     // integer part of the intended change in units, as a change
  double fraction;  // probability of one unit more
};

struct Moves {
  std::vector<Move> all;
  double applied = 0;  // along the intended changes
};

Moves MovesOf(const UpdateCase& c) {
  Moves moves;
  for (size_t i = 0; i < c.size(); ++i) {
    const double change = c.after[i] - c.before[i];
    const double sum = c.before[i] + c.intended[i];  // in f64 it may exceed the format
    if (c.intended[i] == 0 || !std::isfinite(c.intended[i]) || !std::isfinite(change) ||
        !std::isfinite(sum))
      continue;
    const double unit = UlpOf(sum, c.dtype);
    const double units = std::abs(c.intended[i]) / unit;
    const double whole = std::floor(units);
    moves.all.push_back({unit, whole * unit, units - whole});
    moves.applied += c.intended[i] > 0 ? change : -change;
  }
  return moves;
}

double LogMoment(const Moves& moves, double t) {
  double log = t * moves.applied;
  for (const Move& m : moves.all)
    log += -t * m.whole + std::log1p(m.fraction * std::expm1(-t * m.unit));
  return log;
}

double LogChanceOfSample(const Moves& moves) {
  double least = INFINITY, most = 0;
  for (const Move& m : moves.all) {
    least = std::min(least, m.unit);
    most = std::max(most, m.unit);
  }
  double best = 0;  // t = 0
  if (moves.all.empty() || !(least > 0)) return best;
  // Any t gives a bound. Doubling t comes close to the best one.
  constexpr int kTried = 256;
  double t = 1e-3 / most;
  for (int tried = 0; tried < kTried && t < 1e3 / least; ++tried, t *= 2) {
    const double log = LogMoment(moves, t);
    if (std::isfinite(log)) best = std::min(best, log);
  }
  return best;
}

double LogChanceOfWhole(const Moves& moves, const v1::UpdateSummary& summary) {
  double sum = 0;
  for (const Move& m : moves.all) sum += std::min(m.fraction, 1 - m.fraction);
  if (moves.all.empty()) return 0;
  const double mu =
      sum / static_cast<double>(moves.all.size()) * static_cast<double>(summary.intended());
  const auto n = static_cast<double>(summary.misrounded());
  if (!(n < mu)) return 0;
  return n == 0 ? -mu : n - mu + n * std::log(mu / n);
}

}  // namespace

double LogChanceIfStochastic(const UpdateCase& sample, const v1::UpdateSummary& summary) {
  const Moves moves = MovesOf(sample);
  return std::min(LogChanceOfSample(moves), LogChanceOfWhole(moves, summary));
}

}  // namespace plumbline::analysis
