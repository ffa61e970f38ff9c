#include "analysis/series/rise.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace plumbline::analysis {
namespace {

constexpr size_t kMostBlocks = 96;
constexpr double kTenth = 0.1, kRiseThird = 1.0 / 3;

}  // namespace

std::optional<Rise> Riser::Take(int64_t step, double y) {
  const uint64_t block = BlockAt(count_ + 1);
  if (window_.size() == block) {
    window_.Replace(At(points_, count_ - block), y);
  } else {
    window_.Insert(y);
  }
  points_[count_ % kRing] = y;
  steps_[count_ % kRing] = step;
  levels_[count_ % kRing] = window_.median();
  ++count_;
  fell_ = false;
  Best(block);
  if (best_at_ == 0) return std::nullopt;
  const uint64_t since = count_ - best_at_;
  // Gathers points only after they have left the ring, because a falling curve has a new best block
  // all the time.
  if (since == kRing) Fill();
  if (since > kRing) since_.Add(step, y);

  const double rise = level() - best_;
  if (reported_ > 0 && rise < Part(kTenth, reported_sigma_) / 2) {
    reported_ = 0;
    fell_ = true;
  }
  if (reported_ == 2) return std::nullopt;
  const double share = reported_ == 0 ? kTenth : kRiseThird;
  if (!(rise >= Part(share, 0)) || count_ < kBegin || since < next_look_) return std::nullopt;
  next_look_ = since + std::max<uint64_t>(1, since / 32);
  const double sigma = SigmaOf(count_ - std::min(2 * block, count_), count_, 1);
  if (near_ < 0) LookBeforeBest();
  // Sigma of a point. If noise is correlated, the differences of neighbours are too small.
  const double whole = std::max(sigma, apart_);
  if (!(rise >= 6 * ErrorOf(sigma, block)) || !(rise >= Part(share, whole))) return std::nullopt;
  const bool around_zero = linear_ && std::fabs(best_) < Excursion::kMeans * whole;
  if (around_zero && count_ < kBeginAroundZero) return std::nullopt;
  double low = 0;
  if (!RisesSince(&low)) return std::nullopt;
  reported_ = rise >= Part(kRiseThird, whole) ? 2 : 1;
  reported_sigma_ = whole;
  Rise reported = Stand(step);
  reported.onset_step = OnsetStep(best_ + sigma);
  reported.sigma = sigma;
  reported.slope_low = low;
  reported.third = reported_ == 2;
  return reported;
}

Rise Riser::Stand(int64_t step) const {
  Rise rise;
  rise.step = step;
  rise.best = best_;
  rise.level = level();
  rise.block = BlockAt(count_);
  rise.best_block = best_block_;
  rise.since = count_ - best_at_;
  rise.linear = linear_;
  return rise;
}

// Updates the best block. The candidate is the newest block that has no point in common with the
// current block.
void Riser::Best(uint64_t block) {
  if (count_ < block + kFewest) return;
  const uint64_t end = count_ - block;
  if (end <= best_at_) return;
  const double level = At(levels_, end - 1);
  if (best_at_ != 0 && !(level < best_)) return;
  best_at_ = end;
  best_ = level;
  best_block_ = BlockAt(end);
  best_step_ = steps_[(end - 1) % kRing];
  since_ = BlockMedians();
  next_look_ = 0;
  near_ = -1;
}

void Riser::Fill() {
  since_ = BlockMedians();
  for (uint64_t i = best_at_; i < count_; ++i) since_.Add(steps_[i % kRing], At(points_, i));
}

// Returns `share` of the best level, as a difference of levels.
double Riser::Part(double share, double sigma) const {
  if (linear_) return PartOf(share, best_, sigma, true);
  return share == kTenth ? std::log(1.1) : std::log(4.0 / 3);
}

// Returns sigma of a point, from differences of points that are `lag` apart, for the points [from,
// to).
double Riser::SigmaOf(uint64_t from, uint64_t to, uint64_t lag) const {
  std::vector<double> differences;
  for (uint64_t i = from + lag; i < to; ++i)
    differences.push_back(At(points_, i) - At(points_, i - lag));
  return differences.empty() ? 0 : DeviationOf(differences) / std::sqrt(2.0);
}

// Estimates the noise in the eight blocks up to the end of the best one, because no rise has
// changed these.
void Riser::LookBeforeBest() {
  const uint64_t oldest = count_ - std::min(kRing, count_);
  const uint64_t to = std::max(best_at_, std::min(count_, oldest + 4 * best_block_));
  const uint64_t from = std::max(oldest, to - std::min(8 * best_block_, to));
  near_ = SigmaOf(from, to, 1);
  apart_ = SigmaOf(from, to, 2 * best_block_);
}

// Returns the standard error of the difference of two medians. If points two blocks apart differ
// more than neighbours, the noise is correlated. With correlation r from one point to the next, the
// neighbours' sigma is sqrt(1 - r) of the true one, and a block counts as (1 - r)/(1 + r) of its
// points.
double Riser::ErrorOf(double sigma, uint64_t block) const {
  const double sum = 1 / static_cast<double>(block) + 1 / static_cast<double>(best_block_);
  if (!(apart_ > near_)) return 1.25 * sigma * std::sqrt(sum);
  const double less = (near_ / apart_) * (near_ / apart_);  // 1 - r
  return 1.25 * std::max(sigma, apart_) * std::sqrt((2 - less) / less * sum);
}

bool Riser::RisesSince(double* low) const {
  GatheredBlocks blocks;
  if (count_ - best_at_ < kRing) {
    BlockMedians few;
    for (uint64_t i = best_at_; i < count_; ++i) few.Add(steps_[i % kRing], At(points_, i));
    blocks = Gather(few, 0, kMostBlocks);
  } else {
    blocks = Gather(since_, 0, kMostBlocks);
  }
  *low = TheilSen({}, blocks.medians).low / static_cast<double>(blocks.length);
  return *low > 0;
}

// Returns the step after the last point for which the median of it and its neighbours was at most
// `under`.
int64_t Riser::OnsetStep(double under) const {
  const uint64_t held = std::min(kRing, count_ - best_at_);
  for (uint64_t i = count_ - 1; i-- > count_ - held + 1;) {
    double three[] = {At(points_, i - 1), At(points_, i), At(points_, i + 1)};
    if (MedianOf(three) <= under) return steps_[(i + 1) % kRing];
  }
  const auto& blocks = since_.blocks();
  for (size_t i = blocks.size(); i-- > 0;) {
    if (blocks[i].median <= under)
      return i + 1 < blocks.size() ? blocks[i + 1].step : steps_[(count_ - held) % kRing];
  }
  return held == count_ - best_at_ ? steps_[best_at_ % kRing] : blocks.front().step;
}

void Riser::Persist(Archive& a) {
  a(linear_, count_, points_, steps_, levels_, best_at_, best_, best_block_, best_step_, near_,
    apart_, since_, next_look_, reported_, reported_sigma_);
  if (!a.reading()) return;
  window_.Clear();
  for (uint64_t i = count_ - std::min(count_, BlockAt(count_)); i < count_; ++i)
    window_.Insert(At(points_, i));
}

}  // namespace plumbline::analysis
