#include "kernels/tensor/totals.h"

#include <algorithm>
#include <cmath>

namespace plumbline {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

void FinishExponents(const TensorTotals& totals, TensorStats* stats) {
  const auto filled = [](uint64_t n) { return n != 0; };
  const auto& all = totals.look().exponents;
  const auto first = std::find_if(all.begin(), all.end(), filled);
  if (first == all.end()) return;
  const auto last = std::find_if(all.rbegin(), all.rend(), filled).base();
  stats->first_exponent = LowestExponentOf(totals.dtype) + static_cast<int>(first - all.begin());
  stats->exponents.assign(first, last);
}

void FinishFloating(const TensorTotals& totals, TensorStats* stats) {
  FinishExponents(totals, stats);
  stats->fits_count = kFormatFits;
  stats->fits = totals.look().fits;
  if (totals.count == totals.nan + totals.pos_inf + totals.neg_inf) return;
  stats->amax = std::max(std::abs(stats->min), std::abs(stats->max));
  totals.squares.Nearest(&stats->sum_squares, &stats->sum_squares_low);
  stats->l1 = totals.magnitudes.Nearest();
}

}  // namespace

void TensorLook::Add(const TensorLook& other) {
  for (size_t i = 0; i < exponents.size(); ++i) exponents[i] += other.exponents[i];
  for (size_t i = 0; i < fits.size(); ++i) {
    fits[i].flushed += other.fits[i].flushed;
    fits[i].subnormal += other.fits[i].subnormal;
    fits[i].saturated += other.fits[i].saturated;
  }
}

void TensorTotals::Add(const TensorTotals& other) {
  count += other.count;
  nan += other.nan;
  pos_inf += other.pos_inf;
  neg_inf += other.neg_inf;
  zero += other.zero;
  subnormal += other.subnormal;
  min = std::min(min, other.min);
  max = std::max(max, other.max);
  sum.Add(other.sum);
  magnitudes.Add(other.magnitudes);
  squares.Add(other.squares);
  whole.Add(other.whole);
  drawn.Add(other.drawn);
  digest.low += other.digest.low;
  digest.high += other.digest.high;
}

TensorStats TensorTotals::Finish() const {
  TensorStats stats;
  stats.dtype = dtype;
  stats.count = count;
  stats.nan = nan;
  stats.pos_inf = pos_inf;
  stats.neg_inf = neg_inf;
  stats.zero = zero;
  stats.subnormal = subnormal;
  stats.digest_low = digest.low;
  stats.digest_high = digest.high;
  stats.min = stats.max = stats.sum = kNone;
  stats.amax = stats.sum_squares = stats.l1 = kNone;
  if (count > nan + pos_inf + neg_inf) {
    stats.min = min + 0.0;  // -0 becomes +0
    stats.max = max + 0.0;
    sum.Nearest(&stats.sum, &stats.sum_low);
  }
  if (IsFloating(dtype)) FinishFloating(*this, &stats);
  return stats;
}

}  // namespace plumbline
