// Estimates the slope of a smooth curve at one end of a few of its points.
#pragma once

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace plumbline::analysis {

struct SlopeAt {
  double slope = NAN;  // NaN if there are fewer than four points, or all at one place
  double error = NAN;  // one standard error
};

// Returns the slope at `at` of the least-squares parabola through the points (x, y). It is exact
// for a straight line and for a parabola. The error comes from the residuals.
inline SlopeAt FitSlope(const std::vector<std::pair<double, double>>& points, double at) {
  const auto n = static_cast<double>(points.size());
  if (points.size() < 4) return {};
  // x in units of the points' span, so that squares stay near 1.
  const double middle = (points.front().first + points.back().first) / 2;
  const double unit = (points.back().first - points.front().first) / 2;
  if (!(unit > 0)) return {};
  double t_mean = 0, y_mean = 0;
  for (const auto& [x, y] : points) {
    t_mean += (x - middle) / unit / n;
    y_mean += y / n;
  }
  // Orthogonal polynomials p1 = t - mean, p2 = t^2 - a p1 - b.
  double s11 = 0, t2_mean = 0, s12 = 0;
  for (const auto& [x, y] : points) {
    const double t = (x - middle) / unit, p1 = t - t_mean;
    s11 += p1 * p1;
    t2_mean += t * t / n;
    s12 += t * t * p1;
  }
  if (!(s11 > 0)) return {};
  const double a = s12 / s11;
  double s22 = 0, y1 = 0, y2 = 0;
  for (const auto& [x, y] : points) {
    const double t = (x - middle) / unit, p1 = t - t_mean, p2 = t * t - a * p1 - t2_mean;
    s22 += p2 * p2;
    y1 += (y - y_mean) * p1;
    y2 += (y - y_mean) * p2;
  }
  if (!(s22 > 0)) return {};
  const double c1 = y1 / s11, c2 = y2 / s22;
  double rest = 0;
  for (const auto& [x, y] : points) {
    const double t = (x - middle) / unit, p1 = t - t_mean, p2 = t * t - a * p1 - t2_mean;
    const double r = y - y_mean - c1 * p1 - c2 * p2;
    rest += r * r;
  }
  const double end = (at - middle) / unit, p2_slope = 2 * end - a;
  const double variance = rest / (n - 3);
  return {.slope = (c1 + c2 * p2_slope) / unit,
          .error = std::sqrt(variance * (1 / s11 + p2_slope * p2_slope / s22)) / unit};
}

}  // namespace plumbline::analysis
