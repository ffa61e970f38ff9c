#include "tests/analysis/series/curves.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>

namespace plumbline::analysis::testing {
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

namespace {

// Adds restarts of a cosine rate: the loss rises slightly with the rate and falls again with it.
void AddRestarts(CurveRandom& random, HealthyCurve* curve) {
  const size_t cycle = 150 + random.Below(600);
  const double rise = random.Uniform(0.01, 0.2);
  for (size_t i = 0; i < curve->values.size(); ++i) {
    const double done = static_cast<double>(i % cycle) / static_cast<double>(cycle);
    const double rate = 0.05 + 0.95 * (1 + std::cos(std::numbers::pi * done)) / 2;
    curve->rate.push_back(1e-3 * rate);
    if (i < cycle) continue;
    // The effect of the higher rate is delayed by some points.
    const double shows = 1 - std::exp(-static_cast<double>(i % cycle) / 20);
    curve->values[i] *= 1 + rise * rate * shows;
  }
}

// Smooths the values as a dashboard does, by an exponential mean.
void Smooth(double keep, std::vector<double>* values) {
  double mean = values->front();
  for (double& value : *values) value = mean = keep * mean + (1 - keep) * value;
}

}  // namespace

HealthyCurve Healthy(uint64_t number) {
  const char* const families[] = {"plain",   "laplace", "student-5", "correlated", "rounded",
                                  "plateau", "restart", "warm-up",   "curriculum", "overfit",
                                  "smooth",  "growing", "wave",      "to-zero",    "short"};
  const uint64_t family = number % std::size(families);
  CurveRandom random(number + 77'000'000);
  HealthyCurve curve;
  curve.family = families[family];
  CurveSpec spec;
  spec.seed = number + 990'000'000;
  spec.points = static_cast<size_t>(std::exp(random.Uniform(std::log(150), std::log(5000))));
  spec.begin = random.Uniform(4, 12);
  spec.floor = random.Uniform(0.5, 3);
  spec.power = random.Uniform(0.2, 0.8);
  spec.scale = std::exp(random.Uniform(std::log(3), std::log(300)));
  spec.noise = std::exp(random.Uniform(std::log(0.001), std::log(0.15)));
  if (curve.family == "laplace") spec.tail = CurveSpec::Tail::kLaplace;
  if (curve.family == "student-5") spec.tail = CurveSpec::Tail::kStudent5;
  if (curve.family == "correlated") spec.correlation = random.Uniform(0.2, 0.9);
  if (curve.family == "rounded") spec.rounding = random.Below(2) == 0 ? 0.01 : 0.1;
  if (curve.family == "plateau")
    spec.plateau_from = spec.points / 4 + random.Below(spec.points / 2);
  if (curve.family == "warm-up") spec.warm_up = 20 + random.Below(spec.points / 4);
  if (curve.family == "growing") spec.grow = random.Uniform(0.5, 3);
  if (curve.family == "wave") {
    spec.wave = random.Uniform(0.005, 0.03);
    spec.period = random.Uniform(200, 1000);
  }
  if (curve.family == "to-zero") {
    spec.floor = random.Uniform(0.005, 0.05);
    spec.power = random.Uniform(0.8, 1.5);
  }
  if (curve.family == "short") spec.points = 20 + random.Below(130);
  if (curve.family == "curriculum") {
    spec.step_down = random.Uniform(0.05, 0.5);
    spec.step_at = spec.points / 4 + random.Below(spec.points / 2);
  }
  if (curve.family == "overfit") {
    curve.evaluation = true;
    spec.points = 20 + random.Below(300);
    spec.noise = random.Uniform(0.002, 0.03);
    spec.overfit = random.Uniform(0.02, 1);
  }
  curve.values = Curve(spec);
  if (curve.family == "restart") AddRestarts(random, &curve);
  if (curve.family == "smooth") Smooth(random.Uniform(0.8, 0.99), &curve.values);
  return curve;
}

}  // namespace plumbline::analysis::testing
