#include "audit/readers/checkpoint/element_sample.h"

#include <algorithm>
#include <span>
#include <utility>

#include "kernels/core/sample_index.h"
#include "kernels/evidence/sample.h"

namespace plumbline::audit {
namespace {

// The key ignores run, step and name: tensors of one size have the same sample.
constexpr uint64_t kKey = SampleKey("", 0, "", "checkpoint");

}  // namespace

uint64_t SampledElements::MostOf(size_t tensors) {
  constexpr uint64_t kOfAll = uint64_t{1} << 22, kFewest = 64;
  uint64_t most = kMostElements;
  while (most > kFewest && most * tensors > kOfAll) most /= 2;
  return most;
}

std::shared_ptr<const std::vector<uint64_t>> SampledElements::Of(const std::vector<int64_t>& shape,
                                                                 uint64_t count, uint64_t most) {
  constexpr size_t kMostKept = 64;
  if (known_.size() >= kMostKept) known_.clear();
  const bool square = shape.size() == 2 && shape[0] == shape[1] && count > most;
  const auto [at, is_new] = known_.try_emplace({count, most, square});
  if (!is_new) return at->second;
  std::vector<uint64_t> indices(static_cast<size_t>(std::min(count, square ? most / 2 : most)));
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = SampleIndex(kKey, count, i);
  if (square) {
    const auto side = static_cast<uint64_t>(shape[0]);
    for (size_t i = 0; i < static_cast<size_t>(most / 2); ++i)
      indices.push_back(indices[i] % side * side + indices[i] / side);
  }
  std::sort(indices.begin(), indices.end());
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  return at->second = std::make_shared<const std::vector<uint64_t>>(std::move(indices));
}

ElementSample::ElementSample(const StoredTensor& tensor,
                             std::shared_ptr<const std::vector<uint64_t>> indices)
    : dtype_(tensor.dtype), width_(DTypeSize(tensor.dtype)), indices_(std::move(indices)) {
  values_.reserve(indices_->size() * width_);
}

void ElementSample::Add(const std::byte* data, size_t size) {
  const uint64_t end = at_ + size / width_;
  for (; next_ < indices_->size() && (*indices_)[next_] < end; ++next_) {
    const std::byte* from = data + ((*indices_)[next_] - at_) * width_;
    values_.insert(values_.end(), from, from + width_);
  }
  at_ = end;
}

void ElementSample::Fill(v1::TensorSample* out) const {
  PackIndices(std::span(*indices_).first(next_), out->mutable_offsets());
  out->mutable_values()->set_dtype(static_cast<v1::DType>(dtype_));
  out->mutable_values()->add_shape(static_cast<int64_t>(next_));
  out->mutable_values()->set_data(values_.data(), values_.size());
}

}  // namespace plumbline::audit
