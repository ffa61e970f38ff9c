#include "analysis/timeline/stragglers.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace plumbline::timeline {
namespace {

constexpr size_t kManySteps = 12, kFewSteps = 5, kLargeCohort = 16;
constexpr double kSlow = 4.0 / 3, kSlowInLarge = 1.1, kDeviations = 6, kToSigma = 1.4826;
constexpr double kHalfPi =
    1.5707963267948966;        // ratio of the variance of a median to that of a mean
constexpr double kChance = 4;  // standard errors: 64 ranks and more are tested

// Returns the median of the finite values.
double Median(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::min_element(middle + 1, values.end())) / 2;
}

// Returns the scatter of logarithms about their median. Needs at least two values.
double Scatter(const std::vector<double>& values) {
  std::vector<double> logs;
  for (const double value : values) {
    if (std::isfinite(value) && value > 0) logs.push_back(std::log(value));
  }
  const double middle = Median(logs);
  for (double& value : logs) value = std::fabs(value - middle);
  return kToSigma * Median(std::move(logs));
}

// Returns, for each value, the median of all others, with one sort. Values must be finite.
std::vector<double> MedianOfOthers(const std::vector<double>& values) {
  std::vector<double> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  const size_t n = sorted.size();
  std::vector<double> out(n, 0);
  if (n < 2) return out;
  for (size_t i = 0; i < n; ++i) {
    const size_t at = static_cast<size_t>(
        std::lower_bound(sorted.begin(), sorted.end(), values[i]) - sorted.begin());
    const auto without = [&](size_t k) { return sorted[k < at ? k : k + 1]; };
    const size_t m = n - 1;
    out[i] = m % 2 == 1 ? without(m / 2) : (without(m / 2 - 1) + without(m / 2)) / 2;
  }
  return out;
}

bool Usable(double own) { return std::isfinite(own) && own > 0; }

// One cohort: per step, each rank's own time divided by the median of the others'.
class Cohort {
 public:
  explicit Cohort(std::vector<const RankSteps*> ranks)
      : ranks_(std::move(ranks)), ratios_(ranks_.size()) {
    size_t steps = SIZE_MAX;
    for (const RankSteps* rank : ranks_) steps = std::min(steps, rank->own.size());
    for (size_t step = 0; step < steps; ++step) AddStep(step);
    for (const auto& ratios : ratios_) slowness_.push_back(ratios.empty() ? 1 : Median(ratios));
    for (const RankSteps* rank : ranks_) {
      own_.push_back(Median(rank->own));
      compute_.push_back(Median(rank->compute));
      exposed_.push_back(Median(rank->exposed));
    }
    FindErrors();
  }

  void Judge(Stragglers* out) const {
    out->largest_cohort = std::max(out->largest_cohort, ranks_.size());
    for (size_t i = 0; i < ranks_.size(); ++i) {
      out->steps = std::max(out->steps, ratios_[i].size());
      if (slowness_[i] > out->largest) {
        out->largest = slowness_[i];
        out->largest_rank = ranks_[i]->rank;
      }
      Straggler found;
      if (!IsCulprit(i, &found)) continue;
      // If no rank waits for it, it delays no rank.
      Straggler culprit = Describe(i);
      culprit.steady_share = found.steady_share;
      culprit.mads = found.mads;
      const bool awaited = 2 * culprit.others_exposed >= culprit.own - culprit.others;
      (awaited ? out->culprits : out->unawaited).push_back(culprit);
    }
  }

 private:
  // Adds the ratio of each rank that has a usable time in this step.
  void AddStep(size_t step) {
    std::vector<double> own;
    std::vector<size_t> whose;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (!Usable(ranks_[i]->own[step])) continue;
      own.push_back(ranks_[i]->own[step]);
      whose.push_back(i);
    }
    if (own.size() < 2) return;
    const std::vector<double> others = MedianOfOthers(own);
    for (size_t k = 0; k < own.size(); ++k) ratios_[whose[k]].push_back(own[k] / others[k]);
  }

  // Estimates how far chance moves the logarithm of each rank's slowness if it were like the
  // others. If steps differ on all ranks alike, own times scatter, but ratios do not. If one of two
  // ranks varies, both ratios scatter, but not the other's own times. So the smaller of both is
  // used.
  void FindErrors() {
    std::vector<double> of_ratios, of_own;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      of_ratios.push_back(Scatter(ratios_[i]));
      of_own.push_back(Scatter(ranks_[i]->own));
    }
    const std::vector<double> ratios = MedianOfOthers(of_ratios), own = MedianOfOthers(of_own);
    const double others = static_cast<double>(std::max<size_t>(ranks_.size(), 2) - 1);
    for (size_t i = 0; i < ranks_.size(); ++i) {
      const double scatter = std::min(ratios[i], own[i] * std::sqrt(1 + kHalfPi / others));
      const auto steps = static_cast<double>(std::max<size_t>(ratios_[i].size(), 1));
      errors_.push_back(scatter * std::sqrt(kHalfPi / steps));
    }
  }

  // Returns true if chance explains it. Over few steps, sequences of very different lengths can
  // make a rank's median long without a fault.
  bool MayBeChance(size_t i) const { return std::log(slowness_[i]) < kChance * errors_[i]; }

  // Applies the rule's table: if there are few steps, all of them must agree; if there are many,
  // three quarters.
  bool IsCulprit(size_t i, Straggler* straggler) const {
    const std::vector<double>& ratios = ratios_[i];
    const double s = slowness_[i];
    if (ratios.size() < kFewSteps || MayBeChance(i)) return false;
    if (ratios.size() < kManySteps) {
      straggler->steady_share = 1;
      return std::all_of(ratios.begin(), ratios.end(), [](double r) { return r >= kSlow; });
    }
    const auto steady =
        std::count_if(ratios.begin(), ratios.end(), [&](double r) { return r - 1 > (s - 1) / 2; });
    straggler->steady_share = static_cast<double>(steady) / static_cast<double>(ratios.size());
    if (4 * static_cast<size_t>(steady) < 3 * ratios.size()) return false;
    // A smaller excess only shows among many ranks.
    if (s >= kSlow) return true;
    if (ranks_.size() < kLargeCohort || s < kSlowInLarge) return false;
    straggler->mads = DeviationsAbove(i);
    return straggler->mads >= kDeviations;
  }

  // Returns the distance from the others' slowness, in their median deviations.
  double DeviationsAbove(size_t i) const {
    std::vector<double> others;
    for (size_t k = 0; k < slowness_.size(); ++k) {
      if (k != i) others.push_back(slowness_[k]);
    }
    const double middle = Median(others);
    for (double& value : others) value = std::fabs(value - middle);
    const double deviation = kToSigma * Median(std::move(others));
    return deviation > 0 ? (slowness_[i] - middle) / deviation : INFINITY;
  }

  // Returns medians over the steps.
  Straggler Describe(size_t i) const {
    Straggler out;
    out.rank = ranks_[i]->rank;
    out.slowness = slowness_[i];
    out.own = own_[i];
    out.exposed = exposed_[i];
    out.others = MedianOfOthers(own_)[i];
    out.others_exposed = MedianOfOthers(exposed_)[i];
    const double computes = compute_[i] - MedianOfOthers(compute_)[i];
    out.computes = 2 * computes >= out.own - out.others;
    return out;
  }

  std::vector<const RankSteps*> ranks_;
  std::vector<std::vector<double>> ratios_;  // by rank, for its usable steps
  std::vector<double> slowness_;
  std::vector<double> errors_;                   // of the logarithm of slowness, by rank
  std::vector<double> own_, compute_, exposed_;  // medians over steps, by rank
};

}  // namespace

Stragglers FindStragglers(const std::vector<RankSteps>& ranks) {
  std::map<int64_t, std::vector<const RankSteps*>> cohorts;
  for (const RankSteps& rank : ranks) cohorts[rank.cohort].push_back(&rank);
  Stragglers found;
  for (auto& [id, cohort] : cohorts) Cohort(std::move(cohort)).Judge(&found);
  std::sort(found.culprits.begin(), found.culprits.end(),
            [](const Straggler& a, const Straggler& b) { return a.rank < b.rank; });
  return found;
}

}  // namespace plumbline::timeline
