// What is measured of a checkpoint's tensors: small ones several at a time, large ones by several
// threads each.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "audit/readers/checkpoint/element_sample.h"
#include "audit/readers/checkpoint/row_digests.h"
#include "audit/readers/checkpoint/scan.h"
#include "audit/readers/checkpoint/whole_checkpoint.h"

namespace plumbline::audit {

struct MeasuredTensor {
  absl::Status status;
  TensorStats stats;
  std::optional<RowDigests> rows;       // of weights with rows long enough
  std::optional<ElementSample> sample;  // of weights, averages and moments
};

// Of one checkpoint after the other. Not thread-safe; uses several threads.
class TensorMeasurer {
 public:
  // The tensors of the checkpoint that is read now; it outlives the calls of Take.
  void Open(const WholeCheckpoint* whole);
  // Of a tensor of a dtype that is read; each once, in ascending order.
  MeasuredTensor Take(size_t tensor);
  // For what is read besides, between two calls.
  TensorScan& scan() { return scan_; }

 private:
  static constexpr uint64_t kSmall = uint64_t{2} << 20;      // bytes
  static constexpr uint64_t kTogether = uint64_t{16} << 20;  // bytes of small ones at a time
  static constexpr size_t kMostTogether = 64;

  MeasuredTensor Prepare(size_t tensor);
  void Measure(size_t tensor, TensorScan* scan, MeasuredTensor* out) const;
  void Ahead(size_t first);

  const WholeCheckpoint* whole_ = nullptr;
  uint64_t most_sampled_ = 0;  // elements of a tensor
  TensorScan scan_;
  std::vector<TensorScan> scans_;  // one a thread
  SampledElements elements_;
  std::map<size_t, MeasuredTensor> ahead_;
};

}  // namespace plumbline::audit
