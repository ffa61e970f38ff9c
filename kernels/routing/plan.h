// Data that the CPU reference and the device kernel of the routing measurement share, in addition
// to a row's arithmetic: the checked description of a call, and the raw counts of both.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/router/scores.h"
#include "kernels/core/device_load.h"
#include "kernels/core/status_declared.h"
#include "kernels/routing/routing.h"

namespace plumbline {

// The number of rows in a tile of a sum, for any launch shape: see RoutingRaw.
inline constexpr int kTileRows = 256;
inline constexpr int kDropBins = 16;
inline constexpr uint64_t kNothingBad = ~uint64_t{0};

// Two axes of a tensor, as plain data that device code can read. A vector has column stride 0.
struct StridedView {
  const void* data = nullptr;
  int64_t row = 0;  // strides in elements
  int64_t column = 0;
  DType dtype = DType::kUnspecified;

  PLUMB_HD bool present() const { return dtype != DType::kUnspecified; }
  PLUMB_HD double Number(int64_t i, int64_t j = 0) const {
    return CalledLoadDouble(data, dtype, i * row + j * column);
  }
  PLUMB_HD int64_t Integer(int64_t i, int64_t j = 0) const {
    return CalledLoadInt64(data, dtype, i * row + j * column);
  }
};

// The source of the recorded choices.
enum class RecordedChoice : uint8_t {
  kNone,     // nothing recorded: own choices are the load
  kIndices,  // topk_indices, with keep_mask, routing_map or neither for the kept choices
  kMap,      // routing_map alone
};

// A call whose tensors fit together. Plain data: passed to kernels by value.
struct RoutingPlan {
  RouterRule rule;
  int64_t tokens = 0;
  RecordedChoice recorded = RecordedChoice::kNone;
  bool logits_known = false;     // if false, the scores are results of a softmax or a sigmoid
  bool probs_by_expert = false;  // a routing_map entry of probability zero is not kept
  double log_experts = 0;        // ln E
  StridedView scores;
  StridedView bias;
  StridedView topk;
  StridedView keep;
  StridedView map;
  StridedView probs;
  StridedView position;
  StridedView padding;
  StridedView pool;
  StridedView sequence;
  bool fates_known = false;  // the kept choices are recorded, so pools are measured
  bool units_known = false;  // the order within each sequence is recorded too
};

// The counts of a call. Integers: the order of addition does not matter.
struct RoutingCounts {
  uint64_t padding;
  uint64_t tied;
  uint64_t non_finite;
  uint64_t unexplained;
  uint64_t choices;
  uint64_t dropped;
  uint64_t finite;        // finite non-padding rows
  uint64_t entropy_rows;  // of these, with an entropy
  uint64_t margin_rows;   // of these, with a second candidate
  uint64_t abs_max_bits;  // bits of the largest |score| of the finite rows; they order as the value
  uint64_t drop_histogram[kDropBins];
  uint64_t offered_histogram[kDropBins];
  uint32_t load[kMaxExperts];
  uint32_t refused[kMaxExperts];
};

// Limits of the measurement pool by pool: beyond them, that part is absent.
inline constexpr uint32_t kMaxPools = 64;
inline constexpr uint32_t kMaxUnits = 1024;  // sequences, counted in each pool that they are in
inline constexpr int64_t kMaxUnitPosition = int64_t{1} << 36;

// Figures of the (expert, pool) cells together: see kernels/routing/pools.h. Words that start as
// zero and only grow; "least" as the complement.
struct RoutingPools {
  uint32_t pools;  // distinct; kMaxPools + 1: more
  uint32_t units;  // distinct; kMaxUnits + 1: more; 0: not known
  uint32_t refusing_cells;
  uint32_t separable_cells;  // of these, those in which every score kept >= every score refused
  uint32_t inverted_cells;   // (expert, unit): a refusal before an admission
  int32_t expert;            // of the witness
  uint64_t most_held;
  uint64_t least_held_refusing;  // complement; 0: none refused
  uint64_t most_held_refusing;
  uint64_t witness;  // complement of refused row << 16 | expert; 0: none
  int64_t refused_row;
  int64_t admitted_row;
};

// The raw result of either form.
//
// Floating sums do not depend on the launch shape: the values of 256 consecutive rows (a tile; rows
// without a value are zero) are added as a binary tree, v[i] += v[i + step] for step = 128 .. 1;
// then stripe s adds the tiles s, s + 256, ... in order, and the stripes are added as such a tree.
struct RoutingRaw {
  RoutingCounts counts;
  double entropy_sum;  // of H / ln E
  double margin_sum;
  double z_sum;
  uint64_t longest;  // 1 + the largest position of a non-padding row; 0 without positions
  uint64_t
      bad_index;  // row << 38 | choice << 32 | value as i32 of the first bad index, or kNothingBad
  uint64_t bad_position;  // row << 32 | value as i32, in the same form
  RoutingPools pools;
};

// Returns the value in the low half of a "first bad" key: saturated, since it is only printed.
PLUMB_HD inline uint32_t KeyValue(int64_t v) {
  const int64_t low = -2147483647 - 1;
  const int64_t high = 2147483647;
  return static_cast<uint32_t>(static_cast<int32_t>(v < low ? low : (v > high ? high : v)));
}
PLUMB_HD inline uint64_t BadIndexKey(int64_t row, int choice, int64_t value) {
  return static_cast<uint64_t>(row) << 38 | static_cast<uint64_t>(choice) << 32 | KeyValue(value);
}
PLUMB_HD inline uint64_t BadPositionKey(int64_t row, int64_t value) {
  return static_cast<uint64_t>(row) << 32 | KeyValue(value);
}

// Positions at or above this are refused: position * 16 must not overflow.
inline constexpr int64_t kMaxPosition = int64_t{1} << 58;

// Returns the bin of a position below `longest`: 16 equal bins.
PLUMB_HD inline int DropBin(int64_t position, uint64_t longest) {
  return static_cast<int>(static_cast<uint64_t>(position) * kDropBins / longest);
}

// Checks shapes, dtypes and options (not the values). Returns InvalidArgument with the tensor.
// Tensors may be on the host or a device, but all on the same one.
absl::Status PlanRouting(const RoutingInput& in, RoutingPlan* plan);

// Does the CPU reference's part between the two: host tensors only.
RoutingRaw MeasureRouting(const RoutingPlan& plan, int threads);

// Turns raw counts into statistics; returns InvalidArgument for a bad index or position. Reuses the
// vectors of `out`.
absl::Status FinishRouting(const RoutingPlan& plan, const RoutingRaw& raw, RoutingStats* out);

}  // namespace plumbline
