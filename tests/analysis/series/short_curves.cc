#include "tests/analysis/series/short_curves.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <stdexcept>

#include "tests/analysis/series/curves.h"

namespace plumbline::analysis::testing {
namespace {

constexpr const char* kHealthyShort[] = {
    "fine-tuning", "from-scratch", "noisy",    "small-batch",  "correlated",
    "heavy-tails", "hump",         "plateau",  "rounded",      "epoch-steps",
    "vae",         "converged",    "smoothed", "warm-restart", "first-low",
};
constexpr const char* kBrokenShort[] = {
    "breaks-early",         "explodes",     "ruined",    "diverges-late", "ramps",
    "never-learns-uniform", "never-learns", "swallowed",
};

// Noise of ln loss between adjacent points.
struct Noise {
  double sigma = 0.02, correlation = 0;
  CurveSpec::Tail tail = CurveSpec::Tail::kNormal;
};

void AddNoise(const Noise& noise, uint64_t seed, std::vector<double>* values) {
  CurveSpec spec;
  spec.points = values->size();
  spec.begin = spec.floor = 1;
  spec.noise = noise.sigma;
  spec.correlation = noise.correlation;
  spec.tail = noise.tail;
  spec.seed = seed;
  const std::vector<double> around = Curve(spec);
  for (size_t i = 0; i < values->size(); ++i) (*values)[i] *= around[i];
}

double LogUniform(CurveRandom& random, double low, double high) {
  return std::exp(random.Uniform(std::log(low), std::log(high)));
}

// Returns a fall by a fraction of the level, most of it within `scale` points.
std::vector<double> Falling(size_t points, double begin, double share, double scale) {
  std::vector<double> values;
  for (size_t i = 0; i < points; ++i) {
    const double left = std::exp(-static_cast<double>(i) / scale);
    values.push_back(begin * (1 - share * (1 - left)));
  }
  return values;
}

std::vector<double> FineTuning(size_t points, CurveRandom& random) {
  const double part = random.Uniform(0.05, 0.8);
  return Falling(points, random.Uniform(0.8, 4), random.Uniform(0.05, 0.7),
                 std::max(1.0, part * static_cast<double>(points)));
}

ShortCurve Healthy(const std::string& family, size_t points, CurveRandom& random) {
  ShortCurve curve{FineTuning(points, random), {}};
  std::vector<double>& v = curve.values;
  Noise noise{LogUniform(random, 0.003, 0.1), 0, CurveSpec::Tail::kNormal};
  if (family == "from-scratch") {
    CurveSpec spec;
    spec.points = points;
    spec.begin = random.Uniform(4, 12);
    spec.floor = random.Uniform(0.5, 3);
    spec.scale = LogUniform(random, 1, 30);
    spec.noise = 0;
    v = Curve(spec);
  } else if (family == "noisy") {
    noise.sigma = random.Uniform(0.1, 0.2);
  } else if (family == "small-batch") {
    noise.sigma = random.Uniform(0.2, 0.5);
  } else if (family == "correlated") {
    noise.correlation = random.Uniform(0.2, 0.9);
  } else if (family == "heavy-tails") {
    noise.tail = CurveSpec::Tail::kStudent5;
  } else if (family == "hump") {  // during rate warm-up
    const double at = random.Uniform(2, 0.3 * static_cast<double>(points));
    const double height = random.Uniform(0.02, 0.15);
    for (size_t i = 0; i < points; ++i)
      v[i] *= 1 + height * std::exp(-std::pow((static_cast<double>(i) - at) / (at / 2 + 1), 2));
  } else if (family == "plateau") {
    v = Falling(points, random.Uniform(1, 10), random.Uniform(0.2, 0.8),
                std::max(1.0, 0.03 * static_cast<double>(points)));
  } else if (family == "rounded") {
    AddNoise(noise, random.Below(1u << 30), &v);
    const double unit = random.Below(2) == 0 ? 0.01 : 0.1;
    for (double& value : v) value = std::max(unit, std::round(value / unit) * unit);
    return curve;
  } else if (family == "epoch-steps") {
    const size_t epoch = std::max<size_t>(2, points / 3);
    for (size_t i = 0; i < points; ++i)
      v[i] = 1.5 * std::pow(0.75, static_cast<double>(i / epoch)) *
             (1 - 0.1 / (1 + 1.0 * static_cast<double>(i % epoch)));
  } else if (family == "vae") {  // falls immediately, then constant
    v = Falling(points, random.Uniform(100, 600), random.Uniform(0.5, 0.8), 1.5);
  } else if (family == "converged") {  // continued pretraining: a fall of 1 to 4 %
    v = Falling(points, random.Uniform(1.5, 2.5), random.Uniform(0.01, 0.04),
                0.5 * static_cast<double>(points));
    noise.sigma = random.Uniform(0.005, 0.05);
  } else if (family == "smoothed") {
    AddNoise(noise, random.Below(1u << 30), &v);
    const double keep = random.Uniform(0.5, 0.9);
    double mean = v.front();
    for (double& value : v) value = mean = keep * mean + (1 - keep) * value;
    return curve;
  } else if (family == "warm-restart") {  // a cosine rate restarts in the middle
    for (size_t i = 0; i < points; ++i) {
      const double half = static_cast<double>(points) / 2;
      const double done = std::fmod(static_cast<double>(i), half) / half;
      curve.rate.push_back(1e-4 * (1 + std::cos(3.14159265 * done)) / 2 + 1e-6);
      if (static_cast<double>(i) >= half) v[i] *= 1 + 0.1 * (1 - done);
    }
  } else if (family == "first-low") {  // the first point is from one easy batch
    v.front() *= random.Uniform(0.6, 0.9);
  }
  AddNoise(noise, random.Below(1u << 30), &v);
  return curve;
}

ShortCurve Broken(const std::string& family, size_t points, CurveRandom& random) {
  ShortCurve curve{FineTuning(points, random), {}};
  std::vector<double>& v = curve.values;
  const auto n = static_cast<double>(points);
  Noise noise{LogUniform(random, 0.005, 0.05), 0, CurveSpec::Tail::kNormal};
  if (family == "breaks-early") {  // permanently, from the third to eighth point on
    const size_t at = 2 + random.Below(std::min<size_t>(6, points / 3));
    const double times = random.Uniform(2.5, 6);
    for (size_t i = at; i < points; ++i) v[i] = v[at > 0 ? at - 1 : 0] * times;
  } else if (family == "explodes") {  // 1.4 to 20 and back to 7.5
    const size_t at = points / 4;
    for (size_t i = 0; i < points; ++i) {
      const double since =
          (static_cast<double>(i) - static_cast<double>(at)) / (n - static_cast<double>(at));
      v[i] = i < at ? 1.4 : 7.5 + 12.5 * std::exp(-4 * since);
    }
  } else if (family == "ruined") {  // 3.3 to 84 and back to 14.3
    const size_t at = 1 + points / 10;
    for (size_t i = 0; i < points; ++i) {
      const double since =
          (static_cast<double>(i) - static_cast<double>(at)) / (n - static_cast<double>(at));
      v[i] = i < at ? 3.3 : 14.3 + 70 * std::exp(-8 * since);
    }
    noise.sigma = 0.05;
  } else if (family == "diverges-late") {
    const auto at = static_cast<size_t>(0.6 * n);
    for (size_t i = at; i < points; ++i)
      v[i] = v[at] * std::exp(2.5 * (static_cast<double>(i) - static_cast<double>(at) + 1) /
                              (n - static_cast<double>(at)));
  } else if (family == "ramps") {  // from 40 to 80 % on, up to 2.2 to 6 times its first value
    const auto at = static_cast<size_t>(random.Uniform(0.4, 0.8) * n);
    const double bend = random.Uniform(0.6, 1.3);
    const double top = v[0] * LogUniform(random, 2.2, 6);
    const double bottom = v[at];
    for (size_t i = at; i < points; ++i) {
      const double done = (static_cast<double>(i - at) + 1) / static_cast<double>(points - at);
      v[i] = bottom * std::pow(top / bottom, std::pow(done, bend));
    }
  } else if (family == "never-learns-uniform") {
    std::fill(v.begin(), v.end(), std::log(2.0 + static_cast<double>(random.Below(9))));
    noise.sigma = LogUniform(random, 0.001, 0.03);
  } else if (family == "never-learns") {
    std::fill(v.begin(), v.end(), random.Uniform(1, 4));
    noise.sigma = LogUniform(random, 0.003, 0.03);
  } else if (family == "swallowed") {  // bf16 weights without any update: batch noise only
    std::fill(v.begin(), v.end(), random.Uniform(1, 2.5));
    noise.sigma = LogUniform(random, 0.02, 0.08);
  }
  AddNoise(noise, random.Below(1u << 30), &v);
  return curve;
}

}  // namespace

std::span<const char* const> HealthyShort() { return kHealthyShort; }
std::span<const char* const> BrokenShort() { return kBrokenShort; }

ShortCurve ShortCurveOf(const std::string& family, size_t points, uint64_t seed) {
  const auto is = [&](const char* name) { return family == name; };
  CurveRandom random(seed * 1000 + points + 55'000'000 * family.size() +
                     static_cast<uint64_t>(family[0]));
  if (std::any_of(std::begin(kHealthyShort), std::end(kHealthyShort), is))
    return Healthy(family, points, random);
  if (std::any_of(std::begin(kBrokenShort), std::end(kBrokenShort), is))
    return Broken(family, points, random);
  throw std::runtime_error("no family of short curves: " + family);
}

}  // namespace plumbline::analysis::testing
