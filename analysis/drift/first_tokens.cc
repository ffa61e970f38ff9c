#include "analysis/drift/first_tokens.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace plumbline::analysis {
namespace {

constexpr double kFarAbove = 10, kFirstDeviations = 5, kSharp = 1.0 / 3;
constexpr double kNoNoise = 1e-6;  // a smaller mean square does not matter
constexpr uint64_t kFewestFirst = 32, kFewestLate = 256, kFewestOfBin = 32;

}  // namespace

void FirstTokens::BeginSequence(const RolloutSequence& sequence) {
  if (!begun_) {
    start_step_ = sequence.step;
    const int64_t version = sequence.train_version;
    from_start_ = sequence.step <= 1 || (version != kNoVersion && version <= 1);
    begun_ = true;
  }
  at_start_ = sequence.step == start_step_;
  cached_tokens_ = sequence.cached_tokens;
  open_ = {};
}

void FirstTokens::Add(double d, size_t bin, ContextKey context) {
  const double square = std::min(d * d, 0.25);
  bin = std::min(bin, kBins - 1);
  if (index_ < kFirst) {
    first_.Add(square, context);
    ++first_bins_[bin];
    open_.Add(square);
  } else {
    if (index_ < kNext) next_.Add(square);
    late_[bin].Add(square);
  }
  const auto octave = static_cast<size_t>(std::bit_width(index_ / kFirst));
  octaves_[std::min(octave, kOctaves - 1)].Add(square);
  ++index_;
}

void FirstTokens::EndSequence() {
  first_.EndSequence();
  index_ = 0;
  if (open_.count == 0) return;
  all_.squares.Add(open_.mean());
  if (at_start_) start_.squares.Add(open_.mean());
  if (cached_tokens_ >= 0) (cached_tokens_ > 0 ? cached_ : uncached_).squares.Add(open_.mean());
}

FirstTokensExcess FirstTokens::Excess() const {
  FirstTokensExcess excess;
  Cell late;
  for (const Cell& cell : late_) {
    late.count += cell.count;
    late.squares += cell.squares;
  }
  if (first_.sequences() < kFewestFirst || late.count < kFewestLate) return excess;
  double expected = 0;
  for (size_t i = 0; i < kBins; ++i) {
    const Cell& cell = late_[i].count < kFewestOfBin ? late : late_[i];
    expected += static_cast<double>(first_bins_[i]) * cell.mean();
  }
  excess.square = first_.mean();
  excess.expected = expected / first_.count();
  const double above = excess.square - excess.expected;
  excess.found = excess.square > std::max(kFarAbove * excess.expected, kNoNoise) &&
                 above > kFirstDeviations * first_.standard_error();
  excess.sharp = next_.count > 0 && next_.mean() < kSharp * excess.square;
  Decay(excess);
  Place(excess);
  return excess;
}

void FirstTokens::Decay(FirstTokensExcess& excess) const {
  // Early tokens may be less likely, so they must also exceed later ones of equal probability.
  constexpr double kFalls = 0.9, kFallsInAll = 4, kAbove = 2;
  if (!(excess.square > kAbove * excess.expected)) return;
  double last = excess.square;
  size_t seen = 0;
  for (const Cell& cell : octaves_) {
    if (cell.count < kFewestLate) continue;
    if (seen > 0 && !(cell.mean() < kFalls * last)) return;
    last = cell.mean();
    ++seen;
  }
  excess.decays = seen >= 4 && last > 0 && excess.square > kFallsInAll * last &&
                  excess.square > kNoNoise &&
                  excess.square - last > kFirstDeviations * first_.standard_error();
}

// A sequence differs if the mean square of its first tokens is nearer to the mean of all first
// tokens than to that of later ones, on a log scale.
void FirstTokens::Place(FirstTokensExcess& excess) const {
  constexpr double kMost = 0.5, kFew = 0.15;
  const double differs = std::sqrt(excess.square * std::max(excess.expected, kNoNoise));
  excess.share = all_.Share(differs);
  const double affected = cached_.any() ? cached_.Share(differs) : excess.share;
  const bool at_start = start_.any() && start_.Share(differs) > kMost * excess.share;
  const bool clean_start = start_.any() && start_.Share(differs) < kFew * excess.share;
  const bool uncached = uncached_.any() && uncached_.Share(differs) > kMost * affected;
  const bool only_cached =
      cached_.any() && uncached_.any() && uncached_.Share(differs) < kFew * affected;
  const bool not_cache = uncached || (from_start_ && at_start);
  const bool cache = only_cached || clean_start;
  if (not_cache != cache)
    excess.where = cache ? FirstTokensExcess::Where::kCache : FirstTokensExcess::Where::kNotCache;
}

}  // namespace plumbline::analysis
