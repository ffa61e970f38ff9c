#include "calculators/ledger/baseline.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace plumbline::ledger {
namespace {

constexpr int kFloors = 96;  // 0, 0.01, ... 0.95 of the lowest loss
constexpr double kLeastAlpha = 0.02, kMostAlpha = 0.6;

struct ScalePoint {
  double ln_flops = 0, loss = 0, runs = 0;
};

std::vector<ScalePoint> PointsOf(const std::vector<Run>& runs, const std::vector<size_t>& of) {
  std::map<double, std::vector<double>> scales;
  for (const size_t r : of) scales[runs[r].flops].push_back(std::log(runs[r].loss));
  std::vector<ScalePoint> points;
  for (const auto& [flops, logs] : scales) {
    double sum = 0;
    for (const double log : logs) sum += log;
    const double n = static_cast<double>(logs.size());
    points.push_back({std::log(flops), std::exp(sum / n), n});
  }
  return points;
}

// Weighted least squares of ln(L - E) on ln C. Sets `*misfit` to chi squared.
Curve Fit(const std::vector<ScalePoint>& points, double floor, double variance, double* misfit) {
  double weights = 0, x = 0, y = 0;
  const auto weight = [&](const ScalePoint& p) {
    const double share = (p.loss - floor) / p.loss;
    return p.runs * share * share / variance;
  };
  for (const ScalePoint& p : points) {
    weights += weight(p);
    x += weight(p) * p.ln_flops;
    y += weight(p) * std::log(p.loss - floor);
  }
  x /= weights;
  y /= weights;
  double sxx = 0, sxy = 0;
  for (const ScalePoint& p : points) {
    sxx += weight(p) * (p.ln_flops - x) * (p.ln_flops - x);
    sxy += weight(p) * (p.ln_flops - x) * (std::log(p.loss - floor) - y);
  }
  Curve curve;
  curve.floor = floor;
  curve.alpha = -sxy / sxx;
  curve.alpha_error = 1 / std::sqrt(sxx);
  *misfit = 0;
  for (const ScalePoint& p : points) {
    const double rest = std::log(p.loss - floor) - y + curve.alpha * (p.ln_flops - x);
    *misfit += weight(p) * rest * rest;
  }
  return curve;
}

}  // namespace

size_t ScalesOf(const std::vector<Run>& runs, const std::vector<size_t>& of) {
  return PointsOf(runs, of).size();
}

Baseline FitBaseline(const std::vector<Run>& runs, const std::vector<size_t>& of, double variance,
                     double lowest) {
  const std::vector<ScalePoint> points = PointsOf(runs, of);
  Baseline baseline;
  if (points.size() < 2) return baseline;
  double least = std::numeric_limits<double>::infinity();
  for (const ScalePoint& p : points) least = std::min(least, p.loss);
  std::vector<double> misfits;
  for (int i = 0; i < kFloors; ++i) {
    const double floor = 0.01 * i * least;
    if (floor >= lowest) break;
    double misfit = 0;
    const Curve curve = Fit(points, floor, variance, &misfit);
    if (!(curve.alpha >= kLeastAlpha && curve.alpha <= kMostAlpha)) continue;
    baseline.curves.push_back(curve);
    misfits.push_back(misfit);
  }
  if (misfits.empty()) return baseline;
  // Relative to the best one, because otherwise all weights might be 0.
  const double best = *std::min_element(misfits.begin(), misfits.end());
  double sum = 0;
  for (size_t i = 0; i < misfits.size(); ++i)
    sum += baseline.curves[i].weight = std::exp((best - misfits[i]) / 2);
  for (Curve& curve : baseline.curves) {
    curve.weight /= sum;
    baseline.floor += curve.weight * curve.floor;
    baseline.alpha += curve.weight * curve.alpha;
  }
  return baseline;
}

double Baseline::GainOf(const Curve& curve, double ln_loss) {
  return 1 / (curve.alpha * (1 - curve.floor / std::exp(ln_loss)));
}

double Baseline::Gain(double ln_loss) const {
  double sum = 0;
  for (const Curve& curve : curves) sum += curve.weight * GainOf(curve, ln_loss);
  return sum;
}

double Baseline::Worth(const Cell& cell) const {
  const double with = std::exp(cell.ln_with), without = std::exp(cell.ln_without);
  double sum = 0;
  for (const Curve& curve : curves) {
    sum += curve.weight * std::log((without - curve.floor) / (with - curve.floor)) / curve.alpha;
  }
  return sum;
}

double Baseline::RelativeError(double ln_loss) const {
  const double mean = Gain(ln_loss);
  double sum = 0;
  for (const Curve& curve : curves) {
    const double gain = GainOf(curve, ln_loss) / mean - 1;
    const double slope = curve.alpha_error / curve.alpha;
    sum += curve.weight * (gain * gain + slope * slope);
  }
  return std::sqrt(sum);
}

}  // namespace plumbline::ledger
