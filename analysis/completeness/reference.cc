#include "analysis/completeness/reference.h"

#include <algorithm>
#include <cmath>

namespace plumbline::analysis {
namespace {

constexpr double kGoodFit = 0.02;  // residual of a gradient that may be a sum
constexpr double kSameWeight = 2e-3;
constexpr double kErrors = 5;

bool AllZero(const GradientValues& values) {
  return std::all_of(values.begin(), values.end(), [](double x) { return x == 0; });
}

double MedianWeight(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Adds the rank to the column that has its own gradient, or begins one.
void AddColumn(uint32_t rank, const GradientValues& own, HeldGradient* held) {
  if (AllZero(own)) return;
  for (size_t k = 0; k < held->own.size(); ++k) {
    if (*held->own[k] != own) continue;
    held->columns[k].push_back(rank);
    return;
  }
  held->columns.push_back({rank});
  held->own.push_back(&own);
}

}  // namespace

std::vector<HeldGradient> HeldGradientsOf(const AppliedGradient& parameter, size_t number) {
  HeldGradient columns;
  columns.parameter = &parameter;
  columns.number = number;
  for (size_t r = 0; r < parameter.ranks.size(); ++r)
    AddColumn(parameter.ranks[r], parameter.own[r], &columns);
  std::vector<HeldGradient> held;
  for (size_t r = 0; r < parameter.ranks.size(); ++r) {
    const GradientValues& applied = parameter.applied[r];
    if (applied.empty()) continue;
    const auto same = std::find_if(held.begin(), held.end(), [&](const HeldGradient& other) {
      return *other.applied == applied;
    });
    if (same != held.end()) {
      same->holders.push_back(parameter.ranks[r]);
      continue;
    }
    HeldGradient& one = held.emplace_back(columns);
    one.holders = {parameter.ranks[r]};
    one.applied = &applied;
    one.fit = FitWeights(one.own, applied);
  }
  return held;
}

WeightedElement SumAt(const HeldGradient& held, const std::vector<double>& weights, size_t i) {
  WeightedElement element;
  for (size_t k = 0; k < weights.size(); ++k) {
    const double addend = weights[k] * (*held.own[k])[i];
    element.sum += addend;
    element.mass += std::fabs(addend);
  }
  return element;
}

double LargestError(const HeldGradient& held, const std::vector<double>& weights) {
  double largest = 0;
  for (size_t i = 0; i < held.applied->size(); ++i) {
    const WeightedElement element = SumAt(held, weights, i);
    const double error = std::fabs((*held.applied)[i] - element.sum);
    if (element.mass > 0) largest = std::max(largest, error / element.mass);
  }
  return largest;
}

ReferenceWeights::ReferenceWeights(const std::vector<HeldGradient>& held) {
  std::map<std::vector<RankSet>, Group> groups;
  const HeldGradient* last = nullptr;
  for (const HeldGradient& one : held) {
    // Each parameter counts once, however many ranks applied something else.
    const bool first = last == nullptr || last->number != one.number;
    last = &one;
    if (first && one.fit && one.fit->residual <= kGoodFit) groups[one.columns].push_back(&one);
    slack_ = std::max(slack_, 8 * one.parameter->unit);
  }
  std::vector<const Group*> largest;
  for (const auto& [columns, group] : groups) largest.push_back(&group);
  std::stable_sort(largest.begin(), largest.end(),
                   [](const Group* a, const Group* b) { return a->size() > b->size(); });
  for (const Group* group : largest) TakeGroup(*group);
  if (!errors_.empty()) slack_ = std::max(slack_, 4 * MedianWeight(errors_));
}

void ReferenceWeights::TakeGroup(const Group& group) {
  std::vector<double> medians;
  for (size_t k = 0; k < group[0]->columns.size(); ++k) {
    std::vector<double> weights;
    for (const HeldGradient* one : group) weights.push_back(one->fit->weight[k]);
    medians.push_back(MedianWeight(std::move(weights)));
  }
  Group agree;
  std::copy_if(group.begin(), group.end(), std::back_inserter(agree),
               [&](const HeldGradient* one) { return Agrees(*one->fit, medians); });
  const double share = static_cast<double>(agree.size()) / static_cast<double>(group.size());
  if (agree.size() < kFewest || !(share >= kMajority)) return;
  for (size_t k = 0; k < medians.size(); ++k) weight_.emplace(group[0]->columns[k], medians[k]);
  agreeing_ += agree.size();
  for (const HeldGradient* one : agree) errors_.push_back(LargestError(*one, Of(*one)));
}

std::vector<double> ReferenceWeights::Of(const HeldGradient& held) const {
  std::vector<double> weights;
  for (const RankSet& column : held.columns) {
    const auto known = weight_.find(column);
    if (known == weight_.end()) return {};
    weights.push_back(known->second);
  }
  return weights;
}

bool ReferenceWeights::Agrees(const WeightsFit& fit, const std::vector<double>& weights) {
  for (size_t k = 0; k < weights.size(); ++k) {
    const double far = std::fabs(fit.weight[k] - weights[k]);
    if (!(far <= std::max(kSameWeight * std::fabs(weights[k]), kErrors * fit.error[k])))
      return false;
  }
  return true;
}

}  // namespace plumbline::analysis
