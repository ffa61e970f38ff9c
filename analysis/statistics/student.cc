#include "analysis/statistics/student.h"

#include <cmath>
#include <limits>

namespace plumbline {
namespace {

// Computes the continued fraction of the incomplete beta function by Lentz's method (DLMF 8.17.22).
// For x < (a + 1) / (a + b + 2) it converges within O(sqrt(max(a, b))) terms.
double BetaFraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  constexpr int kMostTerms = 100000;
  const auto away = [](double v) { return std::fabs(v) < kTiny ? kTiny : v; };
  double c = 1, d = 1 / away(1 - (a + b) * x / (a + 1)), h = d;
  for (int m = 1; m < kMostTerms; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / away(1 + even * d);
    c = away(1 + even / c);
    h *= d * c;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / away(1 + odd * d);
    c = away(1 + odd / c);
    h *= d * c;
    if (std::fabs(d * c - 1) < 1e-15) break;
  }
  return h;
}

// lgamma writes a global variable; lgamma_r does not.
double LogGamma(double x) {
  int sign = 0;
  return lgamma_r(x, &sign);
}

// Returns I_x(a, b), with y = 1 - x.
double IncompleteBeta(double a, double b, double x, double y) {
  if (x <= 0) return 0;
  if (y <= 0) return 1;
  const double front =
      std::exp(LogGamma(a + b) - LogGamma(a) - LogGamma(b) + a * std::log(x) + b * std::log(y));
  if (x < (a + 1) / (a + b + 2)) return front * BetaFraction(a, b, x) / a;
  return 1 - front * BetaFraction(b, a, y) / b;
}

// Returns P(T > t) for t >= 0.
double UpperTail(double t, double freedom) {
  const double t2 = t * t;
  return IncompleteBeta(freedom / 2, 0.5, freedom / (freedom + t2), t2 / (freedom + t2)) / 2;
}

}  // namespace

double StudentCdf(double t, double freedom) {
  if (std::isnan(t) || !(freedom > 0)) return std::numeric_limits<double>::quiet_NaN();
  return t >= 0 ? 1 - UpperTail(t, freedom) : UpperTail(-t, freedom);
}

double NormalDeviateOfT(double t, double freedom) {
  const double z =
      (8 * freedom + 1) / (8 * freedom + 3) * std::sqrt(freedom * std::log1p(t * t / freedom));
  return std::copysign(z, t);
}

double StudentQuantile(double p, double freedom) {
  if (!(p > 0 && p < 1) || !(freedom > 0)) return std::numeric_limits<double>::quiet_NaN();
  if (p == 0.5) return 0;
  if (p < 0.5) return -StudentQuantile(1 - p, freedom);
  const double tail = 1 - p;
  double low = 0, high = 1;
  while (UpperTail(high, freedom) > tail && high < 1e300) low = high, high *= 2;
  for (int i = 0; i < 200 && high - low > 1e-15 * high; ++i) {
    const double middle = low + (high - low) / 2;
    (UpperTail(middle, freedom) > tail ? low : high) = middle;
  }
  return low + (high - low) / 2;
}

}  // namespace plumbline
