// Recordings of reference routers on random scores, and the truth about them by intervention.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "plumbline/v1/batch.pb.h"
#include "rules/lib/reference_routers.h"

namespace plumbline::rules::testing {

enum class PoolUnit { kMicrobatch, kSequence, kChunk };
enum class Recorded { kIndicesAndMask, kIndicesAndMap, kMapOnly };

struct RoutingSpec {
  RouterPolicy policy = RouterPolicy::kTokenChoice;
  int sequences = 4;
  int length = 64;
  int experts = 8;
  int top_k = 2;
  double capacity_factor = 1.0;
  int chunks = 4;  // of kFifoChunks, and of PoolUnit::kChunk
  DType dtype = DType::kF32;
  double quantum = 0;  // > 0: logits are multiples of it, so rows tie
  PoolUnit pool = PoolUnit::kMicrobatch;
  bool record_pool_id = true;
  bool pool_metadata = true;
  bool declare_capacity = true;
  bool seq_major = false;     // the queue's order
  bool shuffle_rows = false;  // rows stored in another order than queued
  double padding_share = 0;
  bool packed = false;  // documents of random lengths up to `length`
  bool softmax = true;  // score_function metadata
  Recorded recorded = Recorded::kIndicesAndMask;
  uint64_t seed = 1;
};

class SyntheticRouting {
 public:
  explicit SyntheticRouting(const RoutingSpec& spec);

  const RoutingSpec& spec() const { return spec_; }
  const RouterResult& result() const { return result_; }
  int64_t capacity() const { return capacity_; }
  int64_t dropped() const;

  // One evidence item, as a probe would send it.
  v1::Evidence Evidence() const;
  // The same in a batch of one source.
  v1::Batch Batch(uint32_t rank = 0, uint32_t world = 1, int64_t step = 0) const;

  // Redraws what follows a cut of one sequence (half of the time with copies of the prefix's
  // strongest tokens) and routes again; true when an earlier token's experts changed in any of
  // `trials` tries.
  bool LeaksByIntervention(int trials) const;

 private:
  int32_t TruePool(size_t row) const;
  std::vector<std::vector<uint8_t>> Assignment(const RouterBatch& batch) const;

  RoutingSpec spec_;
  RouterBatch batch_;              // rows in queue order
  std::vector<int64_t> sequence_;  // of each queue row
  std::vector<int64_t> position_;
  int64_t capacity_ = 0;
  RouterResult result_;
};

// A random spec of this policy: shapes, dtypes, pools, orders, padding, ties.
RoutingSpec RandomSpec(RouterPolicy policy, uint64_t seed);

}  // namespace plumbline::rules::testing
