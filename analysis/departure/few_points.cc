// Measures how far the ends of two groups of curves are apart. If there are too few points for
// blocks, finds which side is above.
#include <algorithm>
#include <cmath>
#include <vector>

#include "analysis/departure/departure.h"

namespace plumbline::departure {
namespace {

constexpr size_t kLeastSigns = 8;  // 2 x 2^-8 is under kSignChance

double MeanAt(const Curves& curves, size_t point) {
  double sum = 0;
  for (const std::vector<double>& run : curves) sum += run[point];
  return sum / static_cast<double>(curves.size());
}

// Returns b minus a at the newest `count` points.
std::vector<double> NewestDifferences(const Curves& a, const Curves& b, size_t count) {
  const size_t points = a.empty() || b.empty() ? 0 : a[0].size();
  std::vector<double> differences;
  for (size_t i = points - std::min(count, points); i < points; ++i)
    differences.push_back(MeanAt(b, i) - MeanAt(a, i));
  return differences;
}

double MiddleDifference(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

// Returns the probability of at least `heads` of `trials`, or as few on the other side.
double TwoSided(size_t heads, size_t trials) {
  const size_t most = std::max(heads, trials - heads);
  double sum = 0;
  for (size_t k = most; k <= trials; ++k) {
    sum += std::exp(std::lgamma(static_cast<double>(trials) + 1) -
                    std::lgamma(static_cast<double>(k) + 1) -
                    std::lgamma(static_cast<double>(trials - k) + 1) -
                    static_cast<double>(trials) * std::log(2.0));
  }
  return std::min(1.0, 2 * sum);
}

}  // namespace

EndDifference EndsApart(const Curves& a, const Curves& b) {
  const size_t points = a.empty() ? 0 : a[0].size();
  const std::vector<double> newest =
      NewestDifferences(a, b, std::max<size_t>(std::min<size_t>(3, points), points / 8));
  if (newest.empty()) return {};
  return {newest.size(), MiddleDifference(newest)};
}

FewPoints SignTest(const Curves& a, const Curves& b) {
  const size_t points = a.empty() ? 0 : a[0].size();
  const std::vector<double> newest = NewestDifferences(a, b, std::max(kLeastSigns, points / 2));
  FewPoints few;
  few.points = newest.size();
  if (newest.empty()) return few;
  few.size = MiddleDifference(newest);
  size_t signs = 0;  // a tie does not count
  for (const double x : newest) {
    few.above += x > 0;
    signs += x != 0;
  }
  few.chance = signs == 0 ? 1 : TwoSided(few.above, signs);
  few.apart = few.chance <= kSignChance && std::fabs(few.size) >= kSeedsApart;
  return few;
}

}  // namespace plumbline::departure
