// Measures the error of a stored tensor in block-scaled formats.
#pragma once

#include "absl/status/status.h"
#include "audit/readers/checkpoint/scan.h"
#include "audit/readers/checkpoint/stored_tensor.h"
#include "audit/readers/input/file.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::audit {

// Adds block_fits to `out`. The tensor is measured in groups of whole rows that fit in memory
// (kernels/evidence/block_fit.h); for NVFP4, the tensor's own scale is then that of the group. If a
// row has more than 2^20 elements, adds none.
absl::Status MeasureBlocks(const InputFile& file, const StoredTensor& tensor, TensorScan* scan,
                           v1::TensorState* out);

}  // namespace plumbline::audit
