// The launches before and after a batch's kernel: between pinned memory and the device by kernels,
// which take the stream's turn alone. A copy engine's small copies, in the same stream, would wait
// behind whatever the trainer copies at the time. Defined in device/pack.cu.
#pragma once

#include "kernels/core/batch_shape.h"

namespace plumbline {

// Items from `staging`, pinned memory by its address on the device, to `workspace`, and zeros into
// the results there. 0, or a cudaError_t. Thread-safe.
int StageBatch(const BatchShape& batch, const void* staging, void* workspace, void* stream);
// The results from `workspace` to `staging`.
int ReturnBatch(const BatchShape& batch, const void* workspace, void* staging, void* stream);

}  // namespace plumbline
