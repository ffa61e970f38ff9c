// Collects records in one batch of evidence: one item per step, role and site.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "audit/readers/rollout/sequence.h"
#include "plumbline/v1/batch.pb.h"

namespace plumbline::audit {

// (step, role, layer) -> number of the next call. The numbers continue over the batches of a step.
using RolloutCalls = std::map<std::tuple<int64_t, int, std::string>, uint32_t>;

// Not thread-safe.
class RolloutBatch {
 public:
  RolloutBatch(v1::Batch* batch, RolloutCalls* calls) : batch_(batch), calls_(calls) {}

  // Adds a checked record. Returns its approximate size as evidence, in bytes.
  uint64_t Add(int64_t step, const std::string& default_id, const RolloutColumns& columns,
               const SequenceShape& shape);
  uint64_t bytes() const { return bytes_; }

 private:
  using Key = std::tuple<int64_t, int, std::string, int64_t>;  // step, role, layer, choices

  v1::Evidence& Item(int64_t step, v1::Role role, const std::string& layer, const char* op,
                     int64_t choices);
  void AddRouting(RolloutColumn column, v1::Role role, int64_t step, int64_t sequence,
                  const RolloutColumns& columns, const SequenceShape& shape);

  v1::Batch* batch_;
  RolloutCalls* calls_;
  std::map<Key, int> items_;
  uint64_t bytes_ = 0;
};

// Returns the index of the role in batch.sources, which lists trainer and rollout.
inline uint32_t SourceIndex(v1::Role role) { return role == v1::ROLE_ROLLOUT ? 1 : 0; }

}  // namespace plumbline::audit
