#include "calculators/ledger/multipliers.h"

#include <cmath>
#include <map>

#include "calculators/ledger/square.h"

namespace plumbline::ledger {
namespace {

// Shared by all ablations of a scale that is not the largest of any.
double SmallScales(const Worth& a, const Worth& b, const Allowances& allowances) {
  double sum = 0;
  for (const ScaleWorth& x : a.scales) {
    if (x.decades == 0) continue;
    for (const ScaleWorth& y : b.scales) {
      if (y.decades > 0 && x.flops == y.flops) sum += x.share * x.gain * y.share * y.gain;
    }
  }
  return Square(allowances.small) * sum;
}

double OwnScales(const Worth& a, const Allowances& allowances) {
  double sum = 0;
  for (const ScaleWorth& x : a.scales) sum += Square(allowances.scale * x.share * x.decades);
  return sum;
}

}  // namespace

Worth WorthOf(const std::vector<Cell>& cells, const Baseline& baseline, double variance,
              const Allowances& allowances) {
  Worth worth;
  double sum = 0;
  for (const Cell& cell : cells) {
    ScaleWorth& at = worth.scales.emplace_back();
    at.flops = cell.flops;
    at.worth = baseline.Worth(cell);
    at.gain = baseline.Gain(cell.ln_without);
    // Scales are equal or ascending, so that 0 is exact at the largest.
    at.decades = std::log10(cells.back().flops / cell.flops);
    const double below = at.decades > 0 ? Square(allowances.small * at.gain) : 0;
    at.share = 1 / (Square(at.gain) * variance * cell.spread() +
                    Square(allowances.scale * at.decades) + below);
    sum += at.share;
  }
  std::map<size_t, double> coefficients;
  for (size_t i = 0; i < cells.size(); ++i) {
    ScaleWorth& at = worth.scales[i];
    at.share /= sum;
    worth.y += at.share * at.worth;
    const double weight = at.share * at.gain;
    for (const size_t r : cells[i].with)
      coefficients[r] -= weight / static_cast<double>(cells[i].with.size());
    for (const size_t r : cells[i].without)
      coefficients[r] += weight / static_cast<double>(cells[i].without.size());
  }
  worth.coefficients.assign(coefficients.begin(), coefficients.end());
  return worth;
}

double SharedSquares(const std::vector<std::pair<size_t, double>>& a,
                     const std::vector<std::pair<size_t, double>>& b) {
  double sum = 0;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (a[i].first < b[j].first) {
      ++i;
    } else if (b[j].first < a[i].first) {
      ++j;
    } else {
      sum += a[i++].second * b[j++].second;
    }
  }
  return sum;
}

std::vector<double> CovarianceOf(const std::vector<Worth>& worths, double variance,
                                 const Allowances& allowances) {
  const size_t n = worths.size();
  std::vector<double> covariance(n * n);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = i; j < n; ++j) {
      const Worth &a = worths[i], &b = worths[j];
      double value = variance * SharedSquares(a.coefficients, b.coefficients) +
                     SmallScales(a, b, allowances) +
                     Square(allowances.large) * a.largest().gain * b.largest().gain;
      if (i == j) value += OwnScales(a, allowances);
      covariance[i * n + j] = covariance[j * n + i] = value;
    }
  }
  return covariance;
}

}  // namespace plumbline::ledger
