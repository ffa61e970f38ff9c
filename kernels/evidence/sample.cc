#include "kernels/evidence/sample.h"

#include <cstring>

#include "kernels/sample/gather.h"

namespace plumbline {

void PackIndices(std::span<const uint64_t> indices, v1::Tensor* out) {
  out->Clear();
  out->set_dtype(v1::DTYPE_U64);
  out->add_shape(static_cast<int64_t>(indices.size()));
  if (!indices.empty()) out->set_data(indices.data(), indices.size_bytes());
}

absl::Status PackSamples(const TensorView& tensor, std::span<const uint64_t> indices,
                         v1::Tensor* out) {
  out->Clear();
  std::string data(indices.size() * DTypeSize(tensor.dtype), '\0');
  absl::Status status = GatherSamples(tensor, indices, reinterpret_cast<std::byte*>(data.data()));
  if (!status.ok()) return status;
  out->set_dtype(static_cast<v1::DType>(tensor.dtype));
  out->add_shape(static_cast<int64_t>(indices.size()));
  out->set_data(std::move(data));
  return absl::OkStatus();
}

}  // namespace plumbline
