// The inner loops of the CPU reference over a chunk of a row, for the current processor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/logits/core.h"

namespace plumbline {

inline constexpr int kLogitChunk = 256;

// Sums of mu^(1 - theta) relative to the running maximum, theta as in LogitRow::log_moments.
struct LogitPowers {
  double sum[kLogitThetas] = {};
};

struct LogitTails {
  double js = 0, variation = 0, downward[kLogitLambdas] = {};
};

// One chunk of one side as numbers: -inf if it is masked, a fault, or not allowed.
struct LogitChunk {
  alignas(64) double z[kLogitChunk];
  alignas(64) double e[kLogitChunk];  // exp(z - max) after AddSide was called
  int n = 0;
  double max = 0;
  uint32_t finite = 0, exact = 0, faults = 0;
};

struct LogitLoops {
  // Widens n <= kLogitChunk elements at `data`, dense, any alignment; `allowed` [n] or nullptr.
  void (*widen)(const std::byte* data, DType dtype, const uint8_t* allowed, int n, LogitChunk* out);
  // Requires side->max >= chunk->max.
  void (*add_side)(LogitChunk* chunk, LogitSide<double>* side);
  void (*add_common)(const LogitChunk& train, const LogitChunk& rollout, const LogitReference& r,
                     LogitSums<double>* sums);
  void (*add_powers)(const LogitChunk& chunk, double max, LogitPowers* powers);
  void (*add_tails)(const LogitChunk& train, double lse_train, const LogitChunk& rollout,
                    double lse_rollout, LogitTails* tails);
};

// Returns the best loops for this processor; results differ between processors only by rounding.
const LogitLoops& LoopsOfLogits();
// Returns the loops for any processor.
const LogitLoops& PortableLogitLoops();

}  // namespace plumbline
