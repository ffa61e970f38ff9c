#include "tests/rules/support/plain_routing.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "analysis/routing/train_infer/side.h"
#include "rules/analysis_names.h"

namespace plumbline::rules::testing {

PlainRow RowOf(const v1::Routing& r, size_t row) {
  const auto experts = static_cast<size_t>(r.config().experts());
  const auto k = static_cast<size_t>(r.config().top_k());
  PlainRow out;
  for (size_t e = 0; e < experts; ++e)
    out.x.push_back(At<float>(r.sample().scores(), row * experts + e));
  for (size_t j = 0; j < k; ++j)
    out.chosen.push_back(At<int64_t>(r.sample().topk_indices(), row * k + j));
  for (size_t e = 0; e < experts; ++e) out.order.push_back(static_cast<int>(e));
  std::stable_sort(out.order.begin(), out.order.end(), [&](int a, int b) {
    return out.x[static_cast<size_t>(a)] > out.x[static_cast<size_t>(b)];
  });
  return out;
}

namespace {

// Returns true if the differences of the experts that both sides chose or both left out, of those
// among the best 2k + 4 of both sides, explain the flip.
bool Explained(const PlainRow& a, const PlainRow& b, const std::set<int64_t>& s,
               const std::set<int64_t>& t, double factor, double spread) {
  const size_t k = s.size();
  const size_t best = std::min(a.x.size(), 2 * k + 4);
  double all = 0, common = 0, squares = 0, n = 0;
  for (size_t i = 0; i < best; ++i) {
    const int e = a.order[i];
    const auto end = b.order.begin() + static_cast<std::ptrdiff_t>(best);
    if (std::find(b.order.begin(), end, e) == end) continue;
    const auto at = static_cast<size_t>(e);
    const double square = std::pow(double{a.x[at]} - double{b.x[at]}, 2);
    all += square;
    ++common;
    if (s.count(e) != t.count(e)) continue;
    squares += square;
    ++n;
  }
  if (n == 0) return std::sqrt(all / common) <= spread / 8 * (1 + 2.3 / std::sqrt(common));
  const double noise = std::sqrt(squares / n);
  return noise <= spread / 8 * (1 + 2.3 / std::sqrt(n)) &&
         std::min(a.Margin(k), b.Margin(k)) <= factor * 0.6745 * (1 + 28 / (n * n)) * noise;
}

}  // namespace

Plain ByDefinition(const v1::Routing& train, const v1::Routing& infer, double factor) {
  const auto k = static_cast<size_t>(train.config().top_k());
  const auto n = static_cast<size_t>(train.sample().scores().shape(0));
  const auto m = static_cast<size_t>(infer.sample().scores().shape(0));
  Plain p;
  std::vector<double> differences;
  std::vector<std::pair<PlainRow, PlainRow>> pairs;
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < m; ++j) {
      const auto same = [&](const v1::Tensor& a, const v1::Tensor& b, bool wide) {
        return wide ? At<int64_t>(a, i) == At<int64_t>(b, j)
                    : At<int32_t>(a, i) == At<int32_t>(b, j);
      };
      if (!same(train.sample().sequence_id(), infer.sample().sequence_id(), true)) continue;
      if (!same(train.sample().position(), infer.sample().position(), false)) continue;
      pairs.emplace_back(RowOf(train, i), RowOf(infer, j));
    }
  }
  p.joined = pairs.size();
  for (const auto& [a, b] : pairs) {
    for (const auto* side : {&a, &b}) {
      for (size_t i : {k - 1, k}) {
        const auto e = static_cast<size_t>(side->order[i]);
        differences.push_back(std::fabs(double{a.x[e]} - double{b.x[e]}));
      }
    }
  }
  std::sort(differences.begin(), differences.end());
  p.difference = differences[differences.size() / 2];
  double spread = 0;
  for (const bool of_train : {true, false}) {
    std::vector<double> spreads;
    for (const auto& [a, b] : pairs) {
      std::vector<double> values((of_train ? a : b).x.begin(), (of_train ? a : b).x.end());
      spreads.push_back(SpreadOf(values));
    }
    std::sort(spreads.begin(), spreads.end());
    spread = std::max(spread, spreads[spreads.size() / 2]);
  }
  for (const auto& [a, b] : pairs) {
    const std::set<int64_t> s(a.chosen.begin(), a.chosen.end());
    const std::set<int64_t> t(b.chosen.begin(), b.chosen.end());
    const auto both = std::count_if(s.begin(), s.end(), [&](int64_t e) { return t.count(e) > 0; });
    p.overlap += static_cast<double>(both) / static_cast<double>(k) / static_cast<double>(p.joined);
    if (s == t) {
      p.order_only += a.chosen == b.chosen ? 0 : 1;
      continue;
    }
    ++p.flips;
    const double margin = std::min(a.Margin(k), b.Margin(k));
    if (a.Tied(k) || b.Tied(k) || !(margin > factor * p.difference)) continue;
    ++(Explained(a, b, s, t, factor, spread) ? p.noisy : p.large);
  }
  return p;
}

}  // namespace plumbline::rules::testing
