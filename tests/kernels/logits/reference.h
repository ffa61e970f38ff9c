// Measures a row of logits by its definitions, in long double and in as many passes as needed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/logits/pair.h"

namespace plumbline {

// Both rows as f32 values, -inf is masked; `token` -1: none.
class LogitReferenceRow {
 public:
  using Real = long double;

  LogitReferenceRow(std::vector<float> train, std::vector<float> rollout, int64_t token)
      : z_{std::move(train), std::move(rollout)}, token_(token) {
    for (int s = 0; s < 2; ++s) {
      for (const float z : z_[s]) max_[s] = std::max<Real>(max_[s], z);
      Real sum = 0;
      for (const float z : z_[s]) sum += std::exp(static_cast<Real>(z) - max_[s]);
      rest_[s] = std::log(sum);
      // Subtract max first: log p without the rounding of max + log.
      for (const float z : z_[s]) log_[s].push_back((static_cast<Real>(z) - max_[s]) - rest_[s]);
    }
  }

  LogitRow Measure() const {
    LogitRow row{};
    const auto nan = std::numeric_limits<double>::quiet_NaN();
    for (int s = 0; s < 2; ++s) {
      for (size_t i = 0; i < size(); ++i) {
        row.finite[s] += std::isfinite(z_[s][i]) ? 1 : 0;
        row.only[s] += std::isfinite(z_[s][i]) && z_[1 - s][i] == -INFINITY ? 1 : 0;
        row.non_finite[s] += std::isnan(z_[s][i]) || z_[s][i] == INFINITY ? 1 : 0;
      }
    }
    for (size_t i = 0; i < size(); ++i) row.common += Both(i) ? 1 : 0;
    row.usable = row.common > 0 && row.non_finite[0] + row.non_finite[1] == 0;
    row.token = -1;
    if (!row.usable) return row;
    row.token = token_;
    for (int s = 0; s < 2; ++s) {
      row.lse[s] = static_cast<double>(Lse(s));
      row.entropy[s] = static_cast<double>(Entropy(s));
      row.varentropy[s] = static_cast<double>(Varentropy(s));
      row.lattice[s] = Lattice(s);
      row.logprob[s] = token_ < 0 ? nan : static_cast<double>(LogP(s, static_cast<size_t>(token_)));
    }
    row.kl_train_rollout = static_cast<double>(Kl(0));
    row.kl_rollout_train = static_cast<double>(Kl(1));
    Fit(&row);
    row.topk_common = TopCommon();
    row.top1_differs = TopDiffers();
    Details(&row);
    return row;
  }

 private:
  size_t size() const { return z_[0].size(); }
  bool Both(size_t i) const { return std::isfinite(z_[0][i]) && std::isfinite(z_[1][i]); }
  Real Max(int s) const { return max_[s]; }
  Real Lse(int s) const { return max_[s] + rest_[s]; }
  const std::vector<Real>& LogPs(int s) const { return log_[s]; }
  Real LogP(int s, size_t i) const { return LogPs(s)[i]; }
  Real Entropy(int s) const {
    Real sum = 0;
    for (const Real l : LogPs(s)) sum -= std::isinf(l) ? 0 : std::exp(l) * l;
    return sum;
  }
  Real Varentropy(int s) const {
    const Real h = Entropy(s);
    Real sum = 0;
    for (const Real l : LogPs(s)) sum += std::isinf(l) ? 0 : std::exp(l) * (l + h) * (l + h);
    return sum;
  }
  double Lattice(int s) const {
    double exact = 0, finite = 0;
    for (const float z : z_[s]) {
      if (!std::isfinite(z)) continue;
      ++finite;
      exact += (__builtin_bit_cast(uint32_t, z) << 16) == 0 ? 1 : 0;
    }
    return exact / finite;
  }
  Real Kl(int from) const {
    const auto &p = LogPs(from), &q = LogPs(1 - from);
    Real sum = 0;
    for (size_t i = 0; i < size(); ++i) {
      if (!std::isinf(p[i])) sum += std::exp(p[i]) * (p[i] - q[i]);
    }
    return sum;
  }
  void Fit(LogitRow* row) const {
    Real n = 0, x = 0, y = 0, mean = 0;
    for (size_t i = 0; i < size(); ++i) {
      if (!Both(i)) continue;
      ++n;
      y += z_[0][i];
      x += z_[1][i];
      mean += static_cast<Real>(z_[0][i]) - z_[1][i];
    }
    x /= n, y /= n, mean /= n;
    Real xx = 0, xy = 0, yy = 0, worst = 0;
    for (size_t i = 0; i < size(); ++i) {
      if (!Both(i)) continue;
      const Real a = z_[0][i] - y, b = z_[1][i] - x;
      xx += b * b, xy += a * b, yy += a * a;
      worst = std::max(worst, std::fabs(static_cast<Real>(z_[0][i]) - z_[1][i] - mean));
    }
    row->max_abs_delta = static_cast<double>(worst);
    row->slope = static_cast<double>(xy / xx);
    row->intercept = static_cast<double>(y - xy / xx * x);
    row->fit_r2 = static_cast<double>(xy * xy / (xx * yy));
  }
  std::vector<size_t> Top(int s) const {
    std::vector<size_t> order;
    for (size_t i = 0; i < size(); ++i) {
      if (z_[s][i] > -INFINITY) order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return z_[s][a] > z_[s][b]; });
    order.resize(std::min<size_t>(order.size(), kTopLogits));
    return order;
  }
  int32_t TopCommon() const {
    const auto a = Top(0), b = Top(1);
    int32_t common = 0;
    for (const size_t i : a) common += std::count(b.begin(), b.end(), i) > 0 ? 1 : 0;
    return common;
  }
  bool TopDiffers() const {
    for (size_t i = 0; i < size(); ++i) {
      if (z_[0][i] == Max(0) && z_[1][i] == Max(1)) return false;
    }
    return true;
  }
  void Details(LogitRow* row) const {
    const auto &p = LogPs(0), &q = LogPs(1);
    const Real h = Entropy(1);
    Real js = 0, tv = 0;
    for (size_t i = 0; i < size(); ++i) {
      const Real a = std::exp(p[i]), b = std::exp(q[i]);
      if (a > 0) js += a * std::log(2 * a / (a + b)) / 2;
      if (b > 0) js += b * std::log(2 * b / (a + b)) / 2;
      tv += std::fabs(a - b) / 2;
    }
    row->js = static_cast<double>(js);
    row->total_variation = static_cast<double>(tv);
    for (int k = 0; k < kLogitLambdas; ++k) {
      const Real lambda = std::ldexp(Real{1}, -k);
      Real sum = 0;
      for (size_t i = 0; i < size(); ++i) {
        const Real a = std::exp(p[i]), b = std::exp(q[i]);
        sum += b > 0 ? std::max<Real>(0, b + lambda * (b - a)) : 0;
      }
      row->downward[k] = static_cast<double>(sum);
    }
    for (int k = 0; k < kLogitThetas; ++k) {
      const Real theta = k < 7 ? std::ldexp(Real{1}, -1 - k) : -std::ldexp(Real{1}, 6 - k);
      Real sum = 0;
      for (const Real l : q) sum += std::isinf(l) ? 0 : std::exp(l + theta * (-l - h));
      row->log_moments[k] = static_cast<double>(std::log(sum));
    }
  }

  std::vector<float> z_[2];
  int64_t token_;
  Real max_[2] = {-INFINITY, -INFINITY}, rest_[2];
  std::vector<Real> log_[2];
};

}  // namespace plumbline
