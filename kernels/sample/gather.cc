#include "kernels/sample/gather.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/core/strided.h"

namespace plumbline {

absl::Status GatherSamples(const TensorView& tensor, std::span<const uint64_t> indices,
                           std::byte* out) {
  int64_t count = 0;
  if (absl::Status status = CheckHostTensor(tensor, "tensor", &count); !status.ok()) return status;
  const StridedAxes axes = AxesOf(tensor);
  const size_t size = DTypeSize(tensor.dtype);
  const auto* data = static_cast<const std::byte*>(tensor.data);
  for (const uint64_t index : indices) {
    if (index >= static_cast<uint64_t>(count)) {
      return absl::InvalidArgumentError(
          absl::StrCat("index: expected less than ", count, ", found ", index));
    }
    const int64_t offset = axes.Offset(static_cast<int64_t>(index));
    std::memcpy(out, data + offset * static_cast<int64_t>(size), size);
    out += size;
  }
  return absl::OkStatus();
}

void DrawIndices(uint64_t key, uint64_t count, std::span<uint64_t> out) {
  const bool all = out.size() == count;
  for (uint64_t i = 0; i < out.size(); ++i) out[i] = all ? i : SampleIndex(key, count, i);
  std::sort(out.begin(), out.end());
}

std::vector<uint64_t> SampleIndices(uint64_t key, uint64_t count, uint32_t most) {
  std::vector<uint64_t> indices(std::min<uint64_t>(count, most));
  DrawIndices(key, count, indices);
  return indices;
}

}  // namespace plumbline
