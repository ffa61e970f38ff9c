#include "audit/readers/checkpoint/element_sample.h"

#include <algorithm>

#include "kernels/core/sample_index.h"
#include "kernels/evidence/sample.h"

namespace plumbline::audit {
namespace {

// Neither run nor step nor name has a part in it: tensors of one size have one sample.
constexpr uint64_t kKey = SampleKey("", 0, "", "checkpoint");

}  // namespace

ElementSample::ElementSample(const StoredTensor& tensor)
    : dtype_(tensor.dtype), width_(DTypeSize(tensor.dtype)) {
  const auto count = static_cast<uint64_t>(tensor.elements());
  indices_.resize(static_cast<size_t>(std::min(count, kMostElements)));
  for (size_t i = 0; i < indices_.size(); ++i) indices_[i] = SampleIndex(kKey, count, i);
  std::sort(indices_.begin(), indices_.end());
  values_.reserve(indices_.size() * width_);
}

void ElementSample::Add(const std::byte* data, size_t size) {
  const uint64_t end = at_ + size / width_;
  for (; next_ < indices_.size() && indices_[next_] < end; ++next_) {
    const std::byte* from = data + (indices_[next_] - at_) * width_;
    values_.insert(values_.end(), from, from + width_);
  }
  at_ = end;
}

void ElementSample::Fill(v1::TensorSample* out) const {
  PackIndices(std::span(indices_).first(next_), out->mutable_offsets());
  out->mutable_values()->set_dtype(static_cast<v1::DType>(dtype_));
  out->mutable_values()->add_shape(static_cast<int64_t>(next_));
  out->mutable_values()->set_data(values_.data(), values_.size());
}

}  // namespace plumbline::audit
