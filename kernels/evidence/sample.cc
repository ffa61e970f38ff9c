#include "kernels/evidence/sample.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/load.h"
#include "kernels/evidence/tensor.h"
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

absl::StatusOr<std::vector<uint64_t>> IndicesOf(const v1::Tensor& offsets) {
  const absl::StatusOr<TensorView> view = ViewTensor(offsets, "offsets");
  if (!view.ok()) return view.status();
  if (!IsInteger(view->dtype) || view->dtype == DType::kBool || view->rank != 1) {
    return absl::InvalidArgumentError(absl::StrCat("offsets: expected [m] integers, found rank ",
                                                   view->rank, " of ", DTypeName(view->dtype)));
  }
  std::vector<uint64_t> indices(static_cast<size_t>(view->shape[0]));
  for (size_t i = 0; i < indices.size(); ++i) {
    const int64_t index = Int64At(*view, static_cast<int64_t>(i));
    if (index < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("offsets: expected indices >= 0, found ", index));
    }
    indices[i] = static_cast<uint64_t>(index);
  }
  return indices;
}

}  // namespace plumbline
