// Measures the error of a stored tensor in block-scaled formats.
#pragma once

#include "absl/status/status.h"
#include "audit/readers/checkpoint/scan.h"
#include "audit/readers/checkpoint/stored_tensor.h"
#include "audit/readers/input/file.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::audit {

// Adds block_fits to `out`. Measures groups of whole rows that fit in memory
// (kernels/evidence/block_fit.h). For NVFP4, each group then has its own tensor scale. If a row has
// more than 2^20 elements, adds nothing.
absl::Status MeasureBlocks(const InputFile& file, const StoredTensor& tensor, TensorScan* scan,
                           v1::TensorState* out);

}  // namespace plumbline::audit
