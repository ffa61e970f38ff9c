#include "calculators/ledger/next_ablation.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>

namespace plumbline::ledger {
namespace {

class Ranking {
 public:
  Ranking(const Ledger& ledger, const Allowances& allowances, const Estimate& estimate)
      : ledger_(ledger), allowances_(allowances), estimate_(estimate) {
    for (const Run& run : ledger.runs) fresh_ = std::max(fresh_, run.seed);
    fresh_ = fresh_ < std::numeric_limits<int64_t>::max() ? fresh_ + 1 : Unused();
  }

  std::vector<NextRuns> Rank() {
    for (size_t i = 0; i < ledger_.multipliers.size(); ++i) {
      if (ledger_.multipliers[i].kept) Pairs(i);
    }
    Baselines();
    StackPair();
    const auto narrows = [](const NextRuns& next) { return next.drop() > 0; };
    ranked_.erase(std::remove_if(ranked_.begin(), ranked_.end(), std::not_fn(narrows)),
                  ranked_.end());
    std::stable_sort(ranked_.begin(), ranked_.end(),
                     [](const NextRuns& a, const NextRuns& b) { return a.drop() > b.drop(); });
    return std::move(ranked_);
  }

 private:
  // Returns a seed that no run has.
  int64_t Unused() const {
    std::set<int64_t> seeds;
    for (const Run& run : ledger_.runs) seeds.insert(run.seed);
    int64_t seed = 0;
    while (seeds.contains(seed)) ++seed;
    return seed;
  }

  size_t Add(Ledger* more, double flops, double ln_loss) const {
    more->runs.push_back({"", flops, fresh_, std::exp(ln_loss), std::nullopt});
    return more->runs.size() - 1;
  }

  void Pairs(size_t i) {
    const MultiplierEstimate& m = estimate_.multipliers[i];
    for (const Cell& cell : m.cells) Pair(i, cell.flops, cell.ln_with, cell.ln_without);
    if (m.cells.back().flops == estimate_.largest_scale) return;
    // If the change was not measured at this scale, assumes the same value as at other scales.
    const double floor = estimate_.baseline.floor;
    const double without = std::exp(estimate_.ln_loss);
    const double with = floor + (without - floor) * std::exp(-estimate_.baseline.alpha * m.worth.y);
    Pair(i, estimate_.largest_scale, std::log(with), estimate_.ln_loss);
  }

  void Pair(size_t i, double flops, double ln_with, double ln_without) {
    Ledger more = ledger_;
    Arms& arms = more.multipliers[i].arms;
    arms.with.push_back(Add(&more, flops, ln_with));
    arms.without.push_back(Add(&more, flops, ln_without));
    const auto then = EstimateLedger(more, allowances_, estimate_.noise);
    if (!then.ok()) return;
    ranked_.push_back({NextRuns::Kind::kPair, ledger_.multipliers[i].name, flops, 2 * flops,
                       estimate_.product.all_variance, then->product.all_variance});
  }

  void Baselines() {
    std::map<double, std::pair<double, double>> scales;  // flops -> sum of ln loss, runs
    for (const size_t r : ledger_.baseline) {
      auto& [sum, count] = scales[ledger_.runs[r].flops];
      sum += std::log(ledger_.runs[r].loss);
      ++count;
    }
    for (const auto& [flops, of] : scales) {
      Ledger more = ledger_;
      more.baseline.push_back(Add(&more, flops, of.first / of.second));
      const auto then = EstimateLedger(more, allowances_, estimate_.noise);
      if (!then.ok()) continue;
      ranked_.push_back({NextRuns::Kind::kBaseline, "", flops, flops,
                         estimate_.product.all_variance, then->product.all_variance});
    }
  }

  // One more pair at the stack's scale, or the first pair at the largest ablated scale.
  void StackPair() {
    Ledger more = ledger_;
    double flops = estimate_.largest_scale, without = estimate_.ln_loss;
    double ln = estimate_.product.ln, before = estimate_.product.all_variance;
    if (estimate_.stack) {
      const Cell cell = CellsOf(ledger_.runs, ledger_.stack->arms).back();
      flops = cell.flops;
      without = cell.ln_without;
      ln = estimate_.stack->ln;
      before = estimate_.stack->sd * estimate_.stack->sd;
    } else {
      more.stack.emplace();
    }
    const double floor = estimate_.baseline.floor;
    const double with =
        floor + (std::exp(without) - floor) * std::exp(-estimate_.baseline.alpha * ln);
    more.stack->arms.with.push_back(Add(&more, flops, std::log(with)));
    more.stack->arms.without.push_back(Add(&more, flops, without));
    const auto then = EstimateLedger(more, allowances_, estimate_.noise);
    if (!then.ok() || !then->stack) return;
    ranked_.push_back(
        {NextRuns::Kind::kStack, "", flops, 2 * flops, before, then->stack->sd * then->stack->sd});
  }

  const Ledger& ledger_;
  const Allowances& allowances_;
  const Estimate& estimate_;
  int64_t fresh_ = 0;
  std::vector<NextRuns> ranked_;
};

}  // namespace

std::vector<NextRuns> RankNextRuns(const Ledger& ledger, const Allowances& allowances,
                                   const Estimate& estimate) {
  return Ranking(ledger, allowances, estimate).Rank();
}

}  // namespace plumbline::ledger
