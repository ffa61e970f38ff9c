#include "analysis/drift/first_tokens.h"

#include <algorithm>

namespace plumbline::analysis {
namespace {

constexpr double kFarAbove = 10, kFirstDeviations = 5, kSharp = 1.0 / 3;
constexpr double kNoNoise = 1e-6;  // a smaller mean square does not matter
constexpr uint64_t kFewestFirst = 32, kFewestLate = 256, kFewestOfBin = 32;

}  // namespace

void FirstTokens::Add(double d, size_t bin, ContextKey context) {
  const double square = std::min(d * d, 0.25);
  bin = std::min(bin, kBins - 1);
  if (index_ < kFirst) {
    first_.Add(square, context);
    ++first_bins_[bin];
  } else {
    if (index_ < kNext) next_.Add(square);
    late_[bin].Add(square);
  }
  ++index_;
}

void FirstTokens::EndSequence() {
  first_.EndSequence();
  index_ = 0;
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
  return excess;
}

}  // namespace plumbline::analysis
