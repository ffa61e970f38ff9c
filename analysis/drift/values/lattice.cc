#include "analysis/drift/values/lattice.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace plumbline::analysis {
namespace {

// Rounds to the nearest integer; x must be in [0, 2^51].
double Rounded(double x) {
  constexpr double kShift = 0x1p52;
  return (x + kShift) - kShift;
}

}  // namespace

void DriftLattice::Add(double d) {
  const double size = std::fabs(d);
  // Values below half of the finest unit are not tested. In large values the fractional part is
  // only rounding error.
  if (size < kFinest / 2 || size > 16 || distinct_ >= kMost) return;
  if (seen_.empty()) seen_.resize(kBits / 64);
  uint64_t hash = __builtin_bit_cast(uint64_t, size) * 0x9e3779b97f4a7c15u;
  hash >>= 48;
  uint64_t& word = seen_[hash / 64];
  const uint64_t bit = uint64_t{1} << (hash % 64);
  if ((word & bit) != 0) return;
  word |= bit;
  ++distinct_;
  double x = size / kFinest;
  for (size_t i = 0; i < kUnits && x >= 0.5; ++i, x /= 2) {
    ++cells_[i].tokens;
    const double multiple = Rounded(x);
    if (!(std::fabs(x - multiple) < 0.1)) continue;
    const auto far = static_cast<size_t>(std::min(multiple, 4.0));  // 1 .. 4
    ++cells_[i].near[d < 0 ? 4 - far : 3 + far];
  }
}

Lattice DriftLattice::Find() const {
  constexpr uint64_t kFewest = 32;
  constexpr double kChance = 0.2, kDeviations = 8, kLeastShare = 0.1;
  constexpr std::ptrdiff_t kMultiples = 4;
  Lattice best;
  for (size_t i = 0; i < kUnits; ++i) {
    const Cell& cell = cells_[i];
    if (cell.tokens < kFewest) continue;
    const double n = static_cast<double>(cell.tokens);
    const double near =
        static_cast<double>(std::accumulate(cell.near.begin(), cell.near.end(), uint64_t{0}));
    const double z = (near - kChance * n) / std::sqrt(kChance * (1 - kChance) * n);
    const auto multiples = std::count_if(cell.near.begin(), cell.near.end(), [near](uint64_t at) {
      return static_cast<double>(at) >= kLeastShare * near;
    });
    const bool found = near >= n / 2 && z > kDeviations && multiples >= kMultiples;
    if (!found && (best.found || near / n < best.share)) continue;
    best = {found, std::ldexp(kFinest, static_cast<int>(i)), cell.tokens, near / n};
  }
  return best;
}

}  // namespace plumbline::analysis
