// What a stored tensor would lose in the formats that have a scale a block.
#pragma once

#include "absl/status/status.h"
#include "audit/readers/checkpoint/scan.h"
#include "audit/readers/checkpoint/stored_tensor.h"
#include "audit/readers/input/file.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::audit {

// Adds block_fits to `out`, by groups of whole rows that fit in memory (kernels/evidence/
// block_fit.h measures each; the tensor's own scale of NVFP4 is then that of the group). A tensor
// with a row of more than 2^20 elements gets none.
absl::Status MeasureBlocks(const InputFile& file, const StoredTensor& tensor, TensorScan* scan,
                           v1::TensorState* out);

}  // namespace plumbline::audit
