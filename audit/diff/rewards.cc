#include "audit/diff/rewards.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "analysis/series/series.h"

namespace plumbline::audit {
namespace {

constexpr size_t kFewestApart = 8;

// Mean reward of the runs of a side at each step that all of them have.
using RewardCurve = std::map<int64_t, double>;

RewardCurve MeanOf(const DiffSide& side, const std::string& name) {
  std::map<int64_t, std::pair<size_t, double>> sums;
  for (const RecordedRun& run : side.runs) {
    const auto series = run.series.find(name);
    if (series == run.series.end()) return {};
    for (const SeriesPoint& point : series->second) {
      if (!std::isfinite(point.value)) continue;
      ++sums[point.step].first;
      sums[point.step].second += point.value / static_cast<double>(side.runs.size());
    }
  }
  RewardCurve curve;
  for (const auto& [step, sum] : sums) {
    if (sum.first == side.runs.size()) curve.emplace(step, sum.second);
  }
  return curve;
}

// Returns true if the differences have one sign, and their mean is at least 7.3 standard errors
// (for 8 of them, a probability of 1.6e-4) and a fifth of the larger reward. Rewards that still
// rise differ more from step to step than the runs do; those of two seeds by less than a fifth.
bool DifferByStep(const std::vector<double>& a, const std::vector<double>& b) {
  constexpr double kErrors = 7.3, kShare = 0.2;
  double sum = 0, squares = 0, size_a = 0, size_b = 0;
  bool above = true, below = true;
  for (size_t i = 0; i < a.size(); ++i) {
    const double apart = a[i] - b[i];
    sum += apart;
    size_a += a[i];
    size_b += b[i];
    above &= apart > 0;
    below &= apart < 0;
  }
  const auto count = static_cast<double>(a.size());
  for (size_t i = 0; i < a.size(); ++i) squares += std::pow(a[i] - b[i] - sum / count, 2);
  const double error = std::sqrt(squares / (count - 1) / count);
  return (above || below) && std::fabs(sum / count) >= kErrors * error &&
         std::fabs(sum) >= kShare * std::max(std::fabs(size_a), std::fabs(size_b));
}

std::optional<RewardDiff> EndsOf(const std::string& name, const RewardCurve& a,
                                 const RewardCurve& b) {
  std::vector<double> of_a, of_b;
  for (const auto& [step, value] : a) {
    const auto other = b.find(step);
    if (other == b.end()) continue;
    of_a.push_back(value);
    of_b.push_back(other->second);
  }
  if (of_a.empty()) return std::nullopt;
  const size_t newest = std::min(of_a.size(), std::max(kFewestApart, of_a.size() / 8));
  const auto older = static_cast<std::ptrdiff_t>(of_a.size() - newest);
  of_a.erase(of_a.begin(), of_a.begin() + older);
  of_b.erase(of_b.begin(), of_b.begin() + older);
  const auto [least_a, most_a] = std::minmax_element(of_a.begin(), of_a.end());
  const auto [least_b, most_b] = std::minmax_element(of_b.begin(), of_b.end());
  const bool apart = newest >= kFewestApart &&
                     (*most_a < *least_b || *most_b < *least_a || DifferByStep(of_a, of_b));
  return RewardDiff{name, newest, analysis::MedianOf(of_a), analysis::MedianOf(of_b), apart};
}

}  // namespace

double RewardDiff::shortfall() const {
  const double scale = std::max(std::fabs(a), std::fabs(b));
  return scale > 0 ? (a - b) / scale : 0;
}

std::vector<RewardDiff> CompareRewards(const DiffSide& a, const DiffSide& b) {
  std::vector<RewardDiff> out;
  if (a.runs.empty() || b.runs.empty()) return out;
  for (const auto& [name, points] : a.runs[0].series) {
    if (a.roles.Of(name) != SeriesRole::kReward) continue;
    if (const auto ends = EndsOf(name, MeanOf(a, name), MeanOf(b, name))) out.push_back(*ends);
  }
  return out;
}

}  // namespace plumbline::audit
