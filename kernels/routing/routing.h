// Measures one router call: the choice of its own scores, the recorded choice, and the refusals.
//
// One pass over the scores. The device kernel (routing/device.h) and this CPU reference share each
// row's arithmetic (base/router/scores.h, routing/row.h) and agree bit for bit, means included.
#pragma once

#include <cstdint>
#include <vector>

#include "base/router/scores.h"
#include "base/tensor_view.h"
#include "kernels/core/status_declared.h"

namespace plumbline {

// The tensors of one call. T tokens, E experts, k choices. Views are borrowed for the call. Absent
// ones are default TensorViews. Integers of any width, masks bool or u8, any strides.
struct RoutingInput {
  TensorView scores;  // [T,E] f64/f32/f16/bf16, required
  bool scores_are_logits = true;
  TensorView expert_bias;   // [E] floating; added after the score function
  TensorView topk_indices;  // [T,k]; -1: no choice
  TensorView keep_mask;     // [T,k]
  TensorView routing_map;   // [T,E]
  TensorView probs;         // [T,E] or [T,k]
  TensorView sequence_id;   // [T]
  TensorView position;      // [T]
  TensorView padding_mask;  // [T], non-zero = padding
  TensorView pool_id;       // [T]
  TensorView region;        // [T], non-zero = prompt; not measured

  int top_k = 0;
  ScoreFunction score_function = ScoreFunction::kIdentity;
  int groups = 0;  // 0 or 1: no group limit; must divide E
  int top_groups = 0;
  GroupScore group_score = GroupScore::kAbsent;  // absent: max
};

// The loads of experts in pools (pool_id; without it, the whole call is one pool), reduced to
// counts. A cell is an (expert, pool) pair. Set only if the kept choices are recorded.
struct RoutingPoolStats {
  bool measured = false;  // false: the members below are not set (no fates recorded, or over 64
                          // pools)
  uint32_t pools = 0;
  uint32_t refusing_cells = 0;
  uint32_t separable_cells = 0;      // of these: no refused score is above a kept score
  uint64_t most_held = 0;            // by any cell, padding included
  uint64_t least_held_refusing = 0;  // both equal: a capacity is exhibited
  uint64_t most_held_refusing = 0;
  // Sequences and positions are recorded, at most 1024 sequences in pools, positions below 2^36.
  bool order_measured = false;
  uint32_t inverted_cells = 0;  // (expert, sequence in a pool) with a refusal before an admission
  // One such pair: the lowest refused row that begins one, and the last admission after it; -1:
  // none.
  int64_t refused_row = -1;
  int64_t admitted_row = -1;
  int32_t expert = -1;
};

// Means are over the rows on which they are defined, NaN if there are none.
struct RoutingStats {
  uint64_t tokens = 0;  // rows, padding included
  uint64_t padding = 0;
  uint64_t tied = 0;         // non-padding rows whose own choice the recorded precision leaves open
  uint64_t non_finite = 0;   // non-padding rows with a NaN, a +inf or fewer than k candidates
  uint64_t unexplained = 0;  // untied finite rows whose recorded choice differs from that of their
                             // own scores
  uint64_t choices = 0;      // made by non-padding rows, kept or not
  uint64_t dropped = 0;      // number of these that were refused
  std::vector<uint32_t> load;     // [E] kept choices, including padding, which takes capacity too
  std::vector<uint32_t> refused;  // [E] sums to `dropped`
  double entropy_mean = 0;   // mean over finite non-padding rows of H(softmax(logits))/ln E; where
                             // only scores were seen, H of the scores scaled to sum 1 (rows with a
                             // negative one left out); NaN for E = 1
  double margin_mean = 0;    // mean of the best minus the second-best selection score, over the
                             // finite rows with two candidates
  double z_mean = 0;         // mean of logsumexp(logits)^2; NaN when only scores were seen
  double logit_abs_max = 0;  // largest |recorded score| over finite non-padding rows
  std::vector<uint64_t> drop_histogram;     // [16] refused choices by position, equal bins over the
                                            // longest sequence; empty without positions
  std::vector<uint64_t> offered_histogram;  // [16] `choices` in the same bins
  RoutingPoolStats pools;
};

// Limits in addition to kMaxExperts and kMaxTopK (base/router/scores.h).
inline constexpr int64_t kMaxTokens = int64_t{1} << 26;

// Measures a call. Choices and refusals come from the record:
// - topk_indices: its entries are the choices; keep_mask, else routing_map, gives the kept ones.
// - routing_map alone: its entries were kept. If an untied row keeps fewer than k experts, all from
//   its own choice, the others of that choice were refused. Other rows do not show refusals.
// - neither: each finite row's own choice is its load.
// A routing_map entry whose probability in probs [T,E] is zero is not kept. A score of -inf masks
// its expert: it is no candidate, and no statistic includes it (base/router/rule.h).
//
// Shapes, dtypes, ranges and indices are checked: returns InvalidArgument with the tensor and what
// was expected. NaN and infinity are data, not errors. Host tensors only. Thread-safe. `threads`:
// the number of threads that may work on it, including the caller's; the result has the same bits
// for any number.
absl::Status SummariseRouting(const RoutingInput& in, RoutingStats* out, int threads = 1);

}  // namespace plumbline
