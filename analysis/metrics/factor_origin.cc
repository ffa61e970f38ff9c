#include "analysis/metrics/factor_origin.h"

#include <cmath>
#include <tuple>

#include "absl/strings/str_format.h"
#include "analysis/metrics/logged_metric.h"

namespace plumbline::analysis {
namespace {

bool IsNumber(double factor, double number) {
  return std::fabs(factor / number - 1) <= 2 * LoggedMetric::kTolerance;
}

}  // namespace

std::optional<FactorOrigin> OriginOf(double factor, SeriesRole role, const RunNumbers& numbers) {
  const bool norm = role == SeriesRole::kGradientNorm;
  const std::tuple<double, const char*, const char*> counts[] = {
      {numbers.passes, "micro-batches", "micro-batches"}, {numbers.ranks, "ranks", "ranks"}};
  for (const auto& [n, noun, cause] : counts) {
    if (!(n > 1)) continue;
    const std::string number = absl::StrFormat("%.0f %s", n, noun);
    const bool sure = norm || n > 2;
    if (IsNumber(factor, n)) return FactorOrigin{number, cause, sure};
    if (IsNumber(factor, 1 / n)) return FactorOrigin{"1 / " + number, cause, sure};
    if (norm && IsNumber(factor, std::sqrt(n))) return FactorOrigin{"root of " + number, cause};
    if (norm && IsNumber(factor, 1 / std::sqrt(n)))
      return FactorOrigin{"1 / root of " + number, cause};
  }
  for (const double scale : numbers.scales) {
    if (scale > 2 && IsNumber(factor, scale))
      return FactorOrigin{absl::StrFormat("the loss scale %.6g", scale), "loss-scale"};
  }
  return std::nullopt;
}

}  // namespace plumbline::analysis
