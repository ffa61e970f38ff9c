#include "analysis/routing/call/near_repeats.h"

#include <algorithm>
#include <cmath>

namespace plumbline::analysis {
namespace {

constexpr size_t kTried = 128, kCompared = 512;
constexpr double kNear = 0.05;

std::vector<int32_t> EverySome(const std::vector<int32_t>& rows, size_t most) {
  if (rows.size() <= most) return rows;
  std::vector<int32_t> out;
  for (size_t i = 0; i < most; ++i) out.push_back(rows[i * rows.size() / most]);
  return out;
}

double SquaredDistance(const RoutingCase& c, int32_t a, int32_t b) {
  double sum = 0;
  for (int32_t e = 0; e < c.experts; ++e) {
    const double d = c.scores.At(a, e) - c.scores.At(b, e);
    sum += d * d;
  }
  return sum;
}

}  // namespace

bool RowsNearlyRepeat(const RoutingCase& c, const std::vector<int32_t>& rows) {
  const std::vector<int32_t> others = EverySome(rows, kCompared);
  std::vector<double> nearest, all;
  for (const int32_t row : EverySome(others, kTried)) {
    double least = HUGE_VAL;
    for (const int32_t other : others) {
      if (other == row) continue;
      const double distance = SquaredDistance(c, row, other);
      least = std::min(least, distance);
      all.push_back(distance);
    }
    nearest.push_back(least);
  }
  if (all.empty()) return false;
  const auto middle = [](std::vector<double>& values) {
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), at, values.end());
    return *at;
  };
  return middle(nearest) <= kNear * kNear * middle(all);
}

}  // namespace plumbline::analysis
