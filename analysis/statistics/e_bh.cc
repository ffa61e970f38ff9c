#include "analysis/statistics/e_bh.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace plumbline::analysis {

std::vector<bool> SelectByEBh(std::span<const double> log_e, double alpha) {
  std::vector<size_t> order;
  for (size_t i = 0; i < log_e.size(); ++i) {
    if (!std::isnan(log_e[i])) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return log_e[a] > log_e[b] || (log_e[a] == log_e[b] && a < b);
  });
  const auto tensors = static_cast<double>(log_e.size());
  size_t selected = 0;
  for (size_t k = 1; k <= order.size(); ++k) {
    if (log_e[order[k - 1]] >= std::log(tensors / (alpha * static_cast<double>(k)))) selected = k;
  }
  std::vector<bool> result(log_e.size(), false);
  for (size_t k = 0; k < selected; ++k) result[order[k]] = true;
  return result;
}

}  // namespace plumbline::analysis
