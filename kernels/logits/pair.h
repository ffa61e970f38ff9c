// Compares two distributions over one vocabulary, row by row: the trainer's logits pi and the
// rollout's mu.
//
// A row is read once: normalisers, divergences, entropies, the affine fit and the counts come from
// sums that are carried along with running maxima. Figures that need both normalisers
// (Jensen-Shannon, total variation, the downward means) need a second read of rows that are
// requested in detail.
//
// -inf is a mask: such a logit is outside that side's support. NaN and +inf are faults: a row with
// one has only counts. Units: nats.
#pragma once

#include <cstdint>

#include "base/tensor_view.h"
#include "kernels/core/status_declared.h"
#include "kernels/core/strided.h"

namespace plumbline {

inline constexpr int kTopLogits = 8;     // k of the top-k agreement
inline constexpr int kLogitLambdas = 7;  // 2^0 ... 2^-6
inline constexpr int kLogitThetas = 14;  // 2^-1 ... 2^-7, then -2^-1 ... -2^-7
inline constexpr int kTrain = 0, kRollout = 1;

// Borrowed. `train` and `rollout` [..., V] of one shape, f32, f16 or bf16, may differ; `tokens` of
// the leading axes, integer: the sampled token, negative: none; may be absent; `allowed` of train's
// shape, bool or u8: true where sampling was allowed, all other logits count as masked on both
// sides; may be absent.
struct LogitInput {
  TensorView train, rollout, tokens, allowed;
};

// The layout of a tensor's rows.
struct LogitPart {
  const void* data = nullptr;  // nullptr: absent
  DType dtype = DType::kUnspecified;
  StridedAxes rows;    // of the leading axes
  int64_t stride = 1;  // along V, in elements
};

// Plain data: a kernel takes it as an argument.
struct LogitPlan {
  int64_t rows = 0;
  int64_t vocabulary = 0;
  LogitPart side[2];
  LogitPart tokens;  // only of its rows
  LogitPart allowed;
};

// One row. Undefined values are NaN: everything except the counts in a row that is not usable, the
// affine fit with fewer than two distinct common logits, probabilities of an absent token.
struct LogitRow {
  double lse[2];            // log of the sum of exp
  double kl_train_rollout;  // KL(pi || mu), +inf if mu masks a logit that pi does not mask
  double kl_rollout_train;
  double max_abs_delta;  // |z_pi - z_mu - their mean| over the common support
  double entropy[2];
  double varentropy[2];
  double slope, intercept,
      fit_r2;         // z_pi = slope z_mu + intercept, least squares, every logit alike
  double lattice[2];  // share of finite logits that bf16 represents exactly
  double logprob[2];  // at the token; -inf where it is masked
  int64_t token;      // -1: none
  uint64_t finite[2], only[2], common;  // logits finite on a side, on it alone, on both
  uint64_t non_finite[2];               // NaN or +inf
  uint64_t second_reads;                // logits of both sides that were read twice
  int32_t topk_common;                  // of the 8 largest of each side, equal ones by their place
  bool usable;                          // no faults, a support in common
  bool top1_differs;                    // no logit is the largest of both sides
  // Set in detail, else NaN.
  double js, total_variation;
  double downward[kLogitLambdas];    // E_mu[max(0, 1 + lambda(1 - pi/mu))]
  double log_moments[kLogitThetas];  // log E_mu[exp(theta (-log mu - H))]
};

// Checks shapes and dtypes only: the tensors may be on any one device. V from 1 to 2^31 - 1.
// Returns InvalidArgument with the tensor and what was expected.
absl::Status CheckLogits(const LogitInput& input);

// Plans a checked input.
LogitPlan PlanLogits(const LogitInput& input);

// Returns the token of a row in host memory; -1: none. `plan.tokens` may be absent.
int64_t TokenOf(const LogitPlan& plan, int64_t row);

// Returns InvalidArgument if the row's token, in host memory, is beyond the vocabulary.
absl::Status CheckToken(const LogitPlan& plan, int64_t row);

// Measures one row of host tensors, of any alignment, in f64. Thread-safe.
LogitRow MeasureLogitRow(const LogitPlan& plan, int64_t row, bool detailed);

}  // namespace plumbline
