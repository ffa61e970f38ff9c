#include "tests/analysis/series/curves.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace plumbline::rules::testing {
namespace {

double Draw(CurveRandom& random, CurveSpec::Tail tail) {
  switch (tail) {
    case CurveSpec::Tail::kNormal:
      return random.Normal();
    case CurveSpec::Tail::kLaplace: {
      const double u = random.Uniform() - 0.5;
      return -std::copysign(std::log1p(-2 * std::fabs(u)), u) / std::numbers::sqrt2;
    }
    case CurveSpec::Tail::kStudent5: {
      double squares = 0;
      for (int i = 0; i < 5; ++i) squares += std::pow(random.Normal(), 2);
      return random.Normal() / std::sqrt(squares / 5) * std::sqrt(3.0 / 5);
    }
  }
  return 0;
}

double LogMean(const CurveSpec& spec, size_t i) {
  const double at = static_cast<double>(spec.plateau_from > 0 ? std::min(i, spec.plateau_from) : i);
  const double warm = static_cast<double>(spec.warm_up);
  const double along = at < warm ? at * at / (2 * std::max(warm, 1.0)) : at - warm / 2;
  double loss =
      spec.floor + (spec.begin - spec.floor) * std::pow(1 + along / spec.scale, -spec.power);
  if (spec.step_down > 0 && i >= spec.step_at) loss *= 1 - spec.step_down;
  const double half = static_cast<double>(spec.points) / 2;
  if (spec.overfit > 0 && static_cast<double>(i) > half)
    loss *= 1 + spec.overfit * (static_cast<double>(i) - half) / half;
  const double turn = 2 * std::numbers::pi * static_cast<double>(i) / spec.period;
  return std::log(loss) + spec.wave * std::sin(turn);
}

}  // namespace

uint64_t CurveRandom::Next() {
  uint64_t z = (state_ += 0x9E3779B97F4A7C15ull);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

double CurveRandom::Uniform() { return (static_cast<double>(Next() >> 11) + 0.5) * 0x1p-53; }

double CurveRandom::Normal() {
  const double radius = std::sqrt(-2 * std::log(Uniform()));
  return radius * std::cos(2 * std::numbers::pi * Uniform());
}

double CurveRandom::Student3() {
  double squares = 0;
  for (int i = 0; i < 3; ++i) squares += std::pow(Normal(), 2);
  return Normal() / std::sqrt(squares / 3);
}

std::vector<double> Curve(const CurveSpec& spec) {
  CurveRandom random(spec.seed);
  std::vector<double> values;
  double noise = Draw(random, spec.tail);
  const double fresh = std::sqrt(1 - spec.correlation * spec.correlation);
  for (size_t i = 0; i < spec.points; ++i) {
    if (i > 0) noise = spec.correlation * noise + fresh * Draw(random, spec.tail);
    const double done = static_cast<double>(i) / static_cast<double>(spec.points);
    const double y = LogMean(spec, i) + spec.noise * (1 + spec.grow * done) * noise;
    double value = std::exp(y);
    if (spec.rounding > 0) value = std::round(value / spec.rounding) * spec.rounding;
    values.push_back(value);
  }
  return values;
}

}  // namespace plumbline::rules::testing
