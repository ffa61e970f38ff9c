#include "analysis/moments/moments.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "base/half.h"

namespace plumbline::analysis {
namespace {

template <typename T>
double Fused(double v, double g, double beta2, DType t) {
  const T b = static_cast<T>(beta2), rest = static_cast<T>(1 - beta2);
  const T x = static_cast<T>(g);
  return RoundToFormat(static_cast<double>(b * static_cast<T>(v) + rest * x * x), t);
}

template <typename T>
double MultiplyThenAdd(double v, double g, double beta2, DType t) {
  const T rest = static_cast<T>(1 - beta2), x = static_cast<T>(g);
  const double kept =
      RoundToFormat(static_cast<double>(static_cast<T>(beta2) * static_cast<T>(v)), t);
  return RoundToFormat(static_cast<double>(static_cast<T>(kept) + rest * x * x), t);
}

double EachRounded(double v, double g, double beta2, DType t) {
  const double kept = RoundToFormat(beta2 * v, t);
  const double added = RoundToFormat((1 - beta2) * RoundToFormat(g * g, t), t);
  return RoundToFormat(kept + added, t);
}

constexpr MomentArithmetic kArithmetics[] = {
    {"fused", Fused<double>},
    {"fused in fp32", Fused<float>},
    {"multiply, then add", MultiplyThenAdd<double>},
    {"multiply, then add in fp32", MultiplyThenAdd<float>},
    {"each product rounded", EachRounded},
};

// Tried if the decay is not declared.
constexpr std::array kCustomary = {0.999, 0.99, 0.95, 0.98, 0.995, 0.9999, 0.9};
constexpr double kRatchetExplained = 0.99;

}  // namespace

// Returns the smallest moment that has an effect. The root of a smaller one is lost next to eps, or
// it underflows.
double LeastMoment(const v1::UpdateConfig& config, DType t) {
  if (config.eps() > 0 && std::isfinite(config.eps())) return config.eps() * config.eps();
  return t == DType::kF16 ? 0 : PowerOfTwo(FormatOf(t).min_exponent);
}

Falling LookAtMoment(const UpdateCase& c, double least) {
  Falling f;
  for (size_t i = 0; i < c.size(); ++i) {
    const double v = c.moment_before[i], after = c.moment_after[i], g = c.gradient[i];
    if (!std::isfinite(v) || !std::isfinite(after) || !std::isfinite(g)) {
      ++f.non_finite;
      continue;
    }
    const bool moved = after != v || c.unchanged[i] == 0;
    f.moved |= moved;
    if (!(v > least) || (g == 0 && !moved)) continue;
    f.informative.push_back(i);
    // If g^2 is closer to v, the required decay is too small to show in any format.
    if (!(g * g < 0.5 * v)) continue;
    ++f.all;
    if (!(after < v)) f.still.push_back(i);
  }
  return f;
}

// Returns every arithmetic of the update, and how many elements of the record it explains.
std::vector<MomentReplay> MomentReplays(const UpdateCase& c, const Falling& f, double beta2) {
  std::vector<double> betas = {beta2};
  if (!(beta2 > 0 && beta2 < 1)) betas.assign(kCustomary.begin(), kCustomary.end());
  std::vector<MomentReplay> all;
  for (const double b : betas) {
    for (const MomentArithmetic& a : kArithmetics) {
      MomentReplay r{&a, b};
      const auto gives = [&](size_t i) {
        return r.Next(c.moment_before[i], c.gradient[i], c.moment_dtype) == c.moment_after[i];
      };
      const auto count = [&](const std::vector<size_t>& of) {
        return static_cast<size_t>(std::count_if(of.begin(), of.end(), gives));
      };
      r.still = count(f.still);
      r.informative = count(f.informative);
      all.push_back(r);
    }
  }
  return all;
}

const MomentReplay& BestReplay(const std::vector<MomentReplay>& replays) {
  return *std::max_element(
      replays.begin(), replays.end(), [](const MomentReplay& a, const MomentReplay& b) {
        return std::tie(a.still, a.informative) < std::tie(b.still, b.informative);
      });
}

bool ReplayExplains(size_t explained, size_t of) {
  return static_cast<double>(explained) >= kRatchetExplained * static_cast<double>(of);
}

// Returns, over the elements in `f.informative`, how many moments this arithmetic could lower
// without a gradient.
size_t AbleToFall(const UpdateCase& c, const Falling& f, const MomentReplay& r) {
  return static_cast<size_t>(
      std::count_if(f.informative.begin(), f.informative.end(), [&](size_t i) {
        const double v = c.moment_after[i];
        return r.Next(v, 0, c.moment_dtype) < v;
      }));
}

}  // namespace plumbline::analysis
