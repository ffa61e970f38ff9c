#include "analysis/tensor/loss_means.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/half.h"

namespace plumbline::analysis {
namespace {

constexpr double kFp32Step = 0x1p-24;

struct Mean {
  double value = 0;
  double allowance = 0;
  const char* over = "";
};

// Returns the mean of `means`, where `absent` units count as zeros.
Mean MeanOf(const std::vector<double>& means, size_t absent, double step, const char* over) {
  double sum = 0, size = 0;
  for (const double m : means) {
    sum += m;
    size += std::abs(m);
  }
  const auto n = static_cast<double>(means.size() + absent);
  return {sum / n, (n + 4) * kFp32Step * size / n + step, over};
}

// Returns the candidates for a mean of means: over ranks and over micro-batches, each without and
// with those that had no tokens.
std::vector<Mean> MeansOfMeans(const std::vector<LossUnit>& units, size_t absent, double step) {
  std::map<uint32_t, LossUnit> by_rank;
  std::vector<double> unit_means, rank_means;
  for (const LossUnit& u : units) {
    LossUnit& rank = by_rank[u.rank];
    rank.loss_sum += u.loss_sum;
    rank.tokens += u.tokens;
    unit_means.push_back(u.mean());
  }
  for (const auto& [rank, sums] : by_rank) rank_means.push_back(sums.mean());
  std::vector<Mean> all;
  for (const size_t zeros : {size_t{0}, absent}) {
    if (rank_means.size() > 1) all.push_back(MeanOf(rank_means, zeros, step, "ranks"));
    if (unit_means.size() > rank_means.size())
      all.push_back(MeanOf(unit_means, zeros, step, "micro-batches"));
    if (absent == 0) break;
  }
  return all;
}

Mean TokenMean(const std::vector<LossUnit>& units, double step) {
  double sum = 0, size = 0, tokens = 0;
  for (const LossUnit& u : units) {
    sum += u.loss_sum;
    size += std::abs(u.loss_sum);
    tokens += u.tokens;
  }
  const auto n = static_cast<double>(units.size());
  return {sum / tokens, (n + 4) * kFp32Step * size / tokens + step, "tokens"};
}

bool Meets(double logged, const Mean& mean) {
  return std::abs(logged - mean.value) <= mean.allowance;
}

bool IsLocal(double logged, uint32_t logger, const std::vector<LossUnit>& units, double step) {
  std::vector<LossUnit> own;
  std::copy_if(units.begin(), units.end(), std::back_inserter(own),
               [&](const LossUnit& u) { return u.rank == logger; });
  if (own.empty() || own.size() == units.size()) return false;
  if (Meets(logged, TokenMean(own, step))) return true;
  std::vector<double> means;
  for (const LossUnit& u : own) means.push_back(u.mean());
  return Meets(logged, MeanOf(means, 0, step, ""));
}

}  // namespace

double LoggingStep(double value) {
  if (!std::isfinite(value) || value == 0) return 0;
  double step = 0;
  for (const DType t : {DType::kBF16, DType::kF16}) {
    if (RoundToFormat(value, t) == value) step = std::max(step, 0.5 * UlpOf(value, t));
  }
  // A loss is logged with at least two decimals: 3.0 means 3.00.
  double unit = 1e-2;
  for (int decimals = 2; decimals <= 6; ++decimals, unit /= 10) {
    const double rounded = std::round(value / unit) * unit;
    // Equal as a double, or as the float that was parsed or printed.
    const bool same = std::abs(rounded - value) <= 1e-14 * std::abs(value) ||
                      static_cast<float>(rounded) == static_cast<float>(value);
    // A float near 100 has few decimals anyway. Rounding there is within its own ulp.
    if (same && 0.5 * unit > kFp32Step * std::abs(value)) return std::max(step, 0.5 * unit);
  }
  return step;
}

LossComparison CompareLoss(double logged, uint32_t logger, const std::vector<LossUnit>& units,
                           size_t units_without_tokens) {
  const double step = LoggingStep(logged) + kFp32Step * std::abs(logged);
  const Mean token_mean = TokenMean(units, step);
  const std::vector<Mean> means = MeansOfMeans(units, units_without_tokens, step);
  LossComparison c;
  c.token_mean = token_mean.value;
  c.allowance = token_mean.allowance;
  if (!means.empty()) {
    c.mean_of_means = means.front().value;
    c.over = means.front().over;
  }
  const bool token = Meets(logged, token_mean);
  const auto met =
      std::find_if(means.begin(), means.end(), [&](const Mean& m) { return Meets(logged, m); });
  if (met != means.end()) {
    c.mean_of_means = met->value;
    c.over = met->over;
    const bool apart =
        std::abs(met->value - token_mean.value) > met->allowance + token_mean.allowance;
    c.kind = token || !apart ? LossMean::kBoth : LossMean::kMeanOfMeans;
    const double met_width = 2 * met->allowance * static_cast<double>(means.size());
    c.chance = std::min(1.0, met_width / std::abs(met->value - token_mean.value));
  } else if (token) {
    c.kind = LossMean::kTokenMean;
  }
  const bool judged = c.kind == LossMean::kMeanOfMeans || c.kind == LossMean::kNeither;
  if (judged && IsLocal(logged, logger, units, step)) c.kind = LossMean::kLocal;
  return c;
}

}  // namespace plumbline::analysis
