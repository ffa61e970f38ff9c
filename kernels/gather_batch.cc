#include "kernels/gather_batch.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace plumbline {

absl::StatusOr<GatherBatch> GatherBatch::Plan(std::span<const GatherRequest> requests) {
  GatherBatch batch;
  batch.items_.reserve(requests.size());
  for (const GatherRequest& request : requests) {
    const std::string name = absl::StrCat("tensor ", batch.items_.size());
    int64_t count = 0;
    if (absl::Status status = CheckTensor(request.tensor, name, &count); !status.ok()) {
      return status;
    }
    if (batch.items_.empty()) batch.device_ = request.tensor.device;
    if (request.tensor.device != batch.device_) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": expected device ", batch.device_,
                                                     " as of the first, found ",
                                                     request.tensor.device));
    }
    for (const uint64_t index : request.indices) {
      if (index < static_cast<uint64_t>(count)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": expected indices less than ", count, ", found ", index));
    }
    GatherItem item{};
    item.data = request.tensor.data;
    item.axes = AxesOf(request.tensor);
    item.samples = static_cast<int64_t>(request.indices.size());
    item.first_span = batch.samples();
    item.result = batch.result_bytes_;
    item.size = static_cast<uint32_t>(DTypeSize(request.tensor.dtype));
    batch.items_.push_back(item);
    batch.indices_.insert(batch.indices_.end(), request.indices.begin(), request.indices.end());
    // Every tensor's elements begin aligned to any element.
    batch.result_bytes_ += (request.indices.size() * item.size + 7) / 8 * 8;
  }
  return batch;
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
