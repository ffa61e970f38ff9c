#include "analysis/metrics/measured_values.h"

#include <algorithm>

namespace plumbline::analysis {
namespace {

bool IsBeforeStep(const std::pair<int64_t, double>& value, int64_t step) {
  return value.first < step;
}

}  // namespace

void MeasuredValues::Take(int64_t step, double value) {
  while (!values_.empty() && values_.back().first >= step) values_.pop_back();
  values_.emplace_back(step, value);
  if (values_.size() > kKept) values_.pop_front();
}

std::optional<double> MeasuredValues::At(int64_t step) const {
  const auto found = std::lower_bound(values_.begin(), values_.end(), step, IsBeforeStep);
  if (found == values_.end() || found->first != step) return std::nullopt;
  return found->second;
}

std::optional<double> MeasuredValues::MeanOf(int64_t last, int64_t count) const {
  if (count < 1 || count > static_cast<int64_t>(kKept)) return std::nullopt;
  const auto begin =
      std::lower_bound(values_.begin(), values_.end(), last - count + 1, IsBeforeStep);
  const auto end = std::lower_bound(begin, values_.end(), last + 1, IsBeforeStep);
  if (end - begin != count) return std::nullopt;
  double sum = 0;
  for (auto at = begin; at != end; ++at) sum += at->second;
  return sum / static_cast<double>(count);
}

}  // namespace plumbline::analysis
