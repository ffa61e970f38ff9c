// Sums over the blocks of an update check; exact between blocks, so their order does not matter.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "base/tensor_view.h"
#include "kernels/core/wide_sum.h"
#include "kernels/update/check.h"
#include "kernels/update/core.h"

namespace plumbline {

struct UpdateTotals {
  std::array<WideSum, kUpdateSums> sums;
  // For f64 tensors whose sums overflow: the resulting infinities (or NaN). Else 0.
  std::array<double, kUpdateSums> beyond{};
  std::array<uint64_t, kUpdateCounts> counts{};

  void Add(int k, PairSum block) {
    const auto i = static_cast<size_t>(k);
    if (!IsFiniteValue(block.high) || !IsFiniteValue(block.low)) {
      beyond[i] += block.high;
      return;
    }
    sums[i].Add(block.high);
    sums[i].Add(block.low);
  }

  void Add(const UpdateTotals& other) {
    for (size_t i = 0; i < sums.size(); ++i) {
      sums[i].Add(other.sums[i]);
      beyond[i] += other.beyond[i];
    }
    for (size_t i = 0; i < counts.size(); ++i) counts[i] += other.counts[i];
  }

  double Sum(int k) const {
    const auto i = static_cast<size_t>(k);
    if (beyond[i] == 0) return sums[i].Nearest();
    // The NaN that results from cancelling infinities differs between processors.
    return beyond[i] != beyond[i] ? std::numeric_limits<double>::quiet_NaN() : beyond[i];
  }

  UpdateStats Finish(uint64_t count) const {
    UpdateStats stats;
    stats.count = count;
    stats.non_finite = counts[kNonFinite];
    stats.intended = counts[kIntended];
    stats.lost = counts[kLost];
    stats.moved_against = counts[kMovedAgainst];
    stats.misrounded = counts[kMisrounded];
    stats.intended_l1 = Sum(kIntendedL1);
    stats.applied_l1 = Sum(kAppliedL1);
    stats.lost_l1 = Sum(kLostL1);
    stats.applied_along = Sum(kAppliedAlong);
    stats.error_sum = Sum(kErrorSum);
    return stats;
  }
};

// Checks the requirements of CheckUpdate on its tensors, except their place: all on one device, or
// the host.
absl::Status CheckUpdateTensors(const TensorView& before, const TensorView& after,
                                const TensorView& intended, int64_t* count);

}  // namespace plumbline
