// Measures a checkpoint's tensors: several small ones in parallel, and large ones with several
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
  std::optional<RowDigests> rows;       // set for weights with rows that are long enough
  std::optional<ElementSample> sample;  // set for weights, averages and moments
};

// Measures one checkpoint after another. Not thread-safe; uses several threads.
class TensorMeasurer {
 public:
  // Sets the checkpoint to read. `whole` must outlive the calls of Take.
  void Open(const WholeCheckpoint* whole);
  // Measures a tensor of a supported dtype. Call once for each, in ascending order.
  MeasuredTensor Take(size_t tensor);
  // Returns a scan for other reads, between two calls of Take.
  TensorScan& scan() { return scan_; }

 private:
  static constexpr uint64_t kSmall = uint64_t{2} << 20;      // bytes of a small tensor, at most
  static constexpr uint64_t kTogether = uint64_t{16} << 20;  // bytes of small tensors measured at a
                                                             // time
  static constexpr size_t kMostTogether = 64;

  MeasuredTensor Prepare(size_t tensor);
  void Measure(size_t tensor, TensorScan* scan, MeasuredTensor* out) const;
  void Ahead(size_t first);

  const WholeCheckpoint* whole_ = nullptr;
  uint64_t most_sampled_ = 0;  // elements per tensor
  TensorScan scan_;
  std::vector<TensorScan> scans_;  // one per thread
  SampledElements elements_;
  std::map<size_t, MeasuredTensor> ahead_;
};

}  // namespace plumbline::audit
