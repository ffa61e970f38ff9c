#include "kernels/sample/batch.h"

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"

namespace plumbline {

GatherItem PlanItem(const TensorView& tensor, int64_t samples) {
  GatherItem item{};
  item.data = tensor.data;
  item.axes = AxesOf(tensor);
  item.samples = samples;
  item.size = static_cast<uint32_t>(DTypeSize(tensor.dtype));
  return item;
}

absl::StatusOr<GatherBatch> GatherBatch::Plan(std::span<const GatherRequest> requests) {
  GatherBatch batch;
  BatchShape& shape = batch.shape_;
  batch.items_.reserve(requests.size());
  for (const GatherRequest& request : requests) {
    const std::string name = absl::StrCat("tensor ", batch.items_.size());
    int64_t count = 0;
    if (absl::Status status = CheckTensor(request.tensor, name, &count); !status.ok()) {
      return status;
    }
    if (batch.items_.empty()) shape.device = request.tensor.device;
    if (request.tensor.device != shape.device) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": expected device ", shape.device,
                                                     " as of the first, found ",
                                                     request.tensor.device));
    }
    for (const uint64_t index : request.indices) {
      if (index < static_cast<uint64_t>(count)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": expected indices less than ", count, ", found ", index));
    }
    GatherItem item = PlanItem(request.tensor, static_cast<int64_t>(request.indices.size()));
    item.first_span = shape.work;
    item.result = shape.result_bytes;
    batch.items_.push_back(item);
    batch.indices_.insert(batch.indices_.end(), request.indices.begin(), request.indices.end());
    shape.work += item.samples;
    shape.result_bytes += GatherBytes(request.tensor.dtype, item.samples);
  }
  shape.items = static_cast<int32_t>(batch.items_.size());
  shape.item_bytes =
      batch.items_.size() * sizeof(GatherItem) + batch.indices_.size() * sizeof(uint64_t);
  return batch;
}

void GatherBatch::Put(std::byte* staging) const {
  const size_t table = items_.size() * sizeof(GatherItem);
  if (table != 0) std::memcpy(staging, items_.data(), table);
  if (!indices_.empty()) {
    std::memcpy(staging + table, indices_.data(), indices_.size() * sizeof(uint64_t));
  }
}

std::vector<std::vector<std::byte>> GatherBatch::Finish(const std::byte* results) const {
  std::vector<std::vector<std::byte>> out;
  out.reserve(items_.size());
  for (const GatherItem& item : items_) {
    const std::byte* from = results + item.result;
    out.emplace_back(from, from + item.samples * static_cast<int64_t>(item.size));
  }
  return out;
}

}  // namespace plumbline
