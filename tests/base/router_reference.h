// A direct implementation of the definition of the selection and tie rule of base/router/scores.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/router/scores.h"

namespace plumbline {

// The definition, written for readability: library exp, sorts, no shared arithmetic except UlpOf.
struct RouterReference {
  std::vector<int> chosen;
  std::vector<double> value;
  bool no_choice = false;  // fewer than k candidates: nothing else is set
  bool tied = false;
  bool order_known = true;
  bool has_second = false;
  double best_margin = 0;
  double closeness = INFINITY;  // relative distance of the closest decision to its threshold
};

inline double ToleranceByDefinition(const RouterRule& r, const std::vector<double>& x,
                                    const std::vector<double>& f, const std::vector<double>& b,
                                    size_t i) {
  if (x[i] == -INFINITY) return 0;
  double delta = 2 * UlpOf(x[i], r.dtype);
  if (r.function == ScoreFunction::kSigmoid) delta *= f[i] * (1 - f[i]);
  if (r.function == ScoreFunction::kSoftmax) {
    double most = 0;
    for (double v : x) most = std::max(most, v == -INFINITY ? 0 : 2 * UlpOf(v, r.dtype));
    delta = f[i] * (delta + most);
  }
  if (r.has_bias || r.function != ScoreFunction::kIdentity) {
    delta += 2 * UlpOf(std::max(std::fabs(f[i]), r.has_bias ? std::fabs(b[i]) : 0), DType::kF32);
  }
  return delta;
}

inline bool Apart(double margin, double ta, double tb, RouterReference* ref) {
  const double t = std::max(ta, tb);
  ref->closeness = std::min(ref->closeness, std::fabs(margin - t) / (t + 1e-300));
  return margin > t;
}

inline RouterReference JudgeByDefinition(const RouterRule& r, const std::vector<double>& x,
                                         const std::vector<double>& b) {
  const auto e = static_cast<size_t>(r.experts);
  RouterReference ref;
  std::vector<double> f = x;
  const double top = *std::max_element(x.begin(), x.end());
  double z = 0;
  for (double v : x) z += std::exp(v - top);
  if (top == -INFINITY) {
    ref.no_choice = true;
    return ref;
  }
  for (size_t i = 0; i < e; ++i) {
    if (r.function == ScoreFunction::kSoftmax) f[i] = std::exp(x[i] - top) / z;
    if (r.function == ScoreFunction::kSigmoid) f[i] = 1 / (1 + std::exp(-x[i]));
  }
  ref.value = f;
  std::vector<double> t(e);
  for (size_t i = 0; i < e; ++i) {
    if (r.has_bias) ref.value[i] += b[i];
    if (x[i] == -INFINITY) ref.value[i] = -INFINITY;
    t[i] = ToleranceByDefinition(r, x, f, b, i);
  }
  const auto before = [&](size_t a, size_t c) {
    if (!r.has_bias && !(r.groups > 1 && r.top_groups < r.groups)) {
      return x[a] != x[c] ? x[a] > x[c] : a < c;
    }
    return ref.value[a] != ref.value[c] ? ref.value[a] > ref.value[c] : a < c;
  };
  std::vector<size_t> pool(e);
  std::iota(pool.begin(), pool.end(), 0);
  if (r.groups > 1 && r.top_groups < r.groups) {
    const auto groups = static_cast<size_t>(r.groups);
    const size_t size = e / groups;
    std::vector<double> gs(groups);
    std::vector<double> gt(groups);
    for (size_t g = 0; g < groups; ++g) {
      std::vector<size_t> members(size);
      std::iota(members.begin(), members.end(), g * size);
      std::sort(members.begin(), members.end(), before);
      gs[g] = ref.value[members[0]];
      gt[g] = t[members[0]];
      if (r.group_score == GroupScore::kSum2 && size > 1) {
        gs[g] += ref.value[members[1]];
        gt[g] += t[members[1]];
      }
    }
    std::vector<size_t> order(groups);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t c) { return gs[a] > gs[c]; });
    const auto in = static_cast<size_t>(r.top_groups);
    if (!Apart(gs[order[in - 1]] - gs[order[in]], gt[order[in - 1]], gt[order[in]], &ref)) {
      ref.tied = true;
    }
    pool.clear();
    for (size_t g = 0; g < in; ++g) {
      for (size_t i = 0; i < size; ++i) pool.push_back(order[g] * size + i);
    }
  }
  std::erase_if(pool, [&](size_t i) { return x[i] == -INFINITY; });
  ref.no_choice = pool.size() < static_cast<size_t>(r.top_k);
  if (ref.no_choice) return ref;
  std::sort(pool.begin(), pool.end(), before);
  ref.has_second = pool.size() > 1;
  if (ref.has_second) ref.best_margin = ref.value[pool[0]] - ref.value[pool[1]];
  const auto k = static_cast<size_t>(r.top_k);
  for (size_t n = 0; n < k; ++n) {
    ref.chosen.push_back(static_cast<int>(pool[n]));
    if (n + 1 == pool.size()) break;
    const size_t a = pool[n];
    const size_t c = pool[n + 1];
    const bool apart = Apart(ref.value[a] - ref.value[c], t[a], t[c], &ref);
    if (n + 1 < k && !apart) ref.order_known = false;
    if (n + 1 == k && !apart) ref.tied = true;
  }
  return ref;
}

}  // namespace plumbline
