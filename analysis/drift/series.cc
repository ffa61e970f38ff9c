#include "analysis/drift/series.h"

#include <algorithm>
#include <cmath>

namespace plumbline::analysis {

void DriftSeries::BeginStep(uint32_t attempt, int64_t step) {
  const auto [at, fresh] = steps_.try_emplace(step);
  open_ = &at->second;
  cell_ = nullptr;
  if (fresh) {
    open_->attempt = attempt;
  } else if (attempt > open_->attempt) {
    *open_ = {.attempt = attempt, .by_lag = {}};
  } else if (attempt < open_->attempt) {
    open_ = nullptr;
  }
}

void DriftSeries::Add(double d, double k3, size_t stratum, int64_t lag, int64_t version) {
  if (open_ == nullptr || !std::isfinite(d)) return;
  const int64_t key = lag < 0 ? kUnknownLag : lag;
  if (cell_ == nullptr || key != cell_lag_) {
    cell_ = &open_->by_lag[key];
    cell_lag_ = key;
  }
  Cell& cell = *cell_;
  const double square = d * d;
  ++cell.tokens;
  if (square > 0.48045301391820139) ++cell.tail;  // (ln 2)^2
  cell.bounded += std::min(square, 0.25);
  cell.squares += square;
  cell.k3 += k3;
  cell.version = version;
  const size_t of = std::min(stratum, kStrata - 1);
  ++cell.tokens_of[of];
  cell.squares_of[of] += static_cast<float>(square);
}

std::vector<DriftPoint> DriftSeries::At(int64_t lag) const {
  std::vector<DriftPoint> points;
  // Mean squares by log mu, over all steps.
  std::array<double, kStrata> tokens{}, mean{};
  for (const auto& [step, held] : steps_) {
    const auto found = held.by_lag.find(lag);
    for (size_t s = 0; found != held.by_lag.end() && s < kStrata; ++s) {
      tokens[s] += found->second.tokens_of[s];
      mean[s] += static_cast<double>(found->second.squares_of[s]);
    }
  }
  for (size_t s = 0; s < kStrata; ++s) mean[s] /= std::max(1.0, tokens[s]);
  for (const auto& [step, held] : steps_) {
    const auto found = held.by_lag.find(lag);
    if (found == held.by_lag.end()) continue;
    const Cell& cell = found->second;
    const double n = static_cast<double>(cell.tokens);
    double expected = 0;
    for (size_t s = 0; s < kStrata; ++s) expected += mean[s] * cell.tokens_of[s];
    points.push_back({step, held.attempt, n, static_cast<double>(cell.tail) / n, cell.bounded / n,
                      cell.squares / n, cell.k3 / n, cell.version, expected / n});
  }
  return points;
}

int64_t DriftSeries::CommonLag() const {
  std::map<int64_t, size_t> counts;
  for (const auto& [step, held] : steps_) {
    for (const auto& [lag, cell] : held.by_lag) ++counts[lag];
  }
  int64_t best = kUnknownLag;
  size_t most = 0;
  for (const auto& [lag, count] : counts) {
    if (lag != kUnknownLag && count > most) {
      best = lag;
      most = count;
    }
  }
  return best;
}

}  // namespace plumbline::analysis
