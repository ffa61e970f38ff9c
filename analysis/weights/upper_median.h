// The median that is one of the values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace plumbline::analysis {

// Returns the median; the larger of the middle two if the number is even. `values` is not empty.
inline double UpperMedian(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace plumbline::analysis
