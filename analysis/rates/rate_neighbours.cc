#include "analysis/rates/rate_neighbours.h"

#include <cstdio>
#include <cstdlib>
#include <iterator>

namespace plumbline::analysis {
namespace {

// Returns the fewest significant digits that reproduce the value.
uint32_t DigitsOf(double value) {
  char text[40];
  for (int digits = 1; digits < 17; ++digits) {
    std::snprintf(text, std::size(text), "%.*e", digits - 1, value);
    if (std::strtod(text, nullptr) == value) return static_cast<uint32_t>(digits);
  }
  return 17;
}

}  // namespace

void RateNeighbours::Take(const SiteStep& step, SeriesRole role) {
  if (done_ || !IsOne(role) || step.items.empty()) return;
  const v1::Evidence& first = *step.items.front().evidence;
  if (!first.has_scalar() || !std::isfinite(first.scalar().value())) return;
  const double value = first.scalar().value();
  if (looked_ < kLooked) {
    ++looked_;
    digits_ = std::max(digits_, DigitsOf(value));
  }
  if (role == SeriesRole::kReward) {
    if (reward_op_.empty()) reward_op_ = step.site.op();
    if (reward_op_ == step.site.op()) reward_.Take(step.step, -value);
  }
  if (role == SeriesRole::kLoss && value > 0) loss_.Take(step.step, std::log(value));
}

bool RateNeighbours::Learns() const {
  const FallFigures loss = loss_.LookForFall(), reward = reward_.LookForFall();
  return (loss.known && loss.falls) || (reward.known && reward.falls);
}

}  // namespace plumbline::analysis
