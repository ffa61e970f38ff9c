#include "kernels/evidence/tensor.h"

#include <cstring>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace plumbline {
namespace {

constexpr uint64_t kTooMany = std::numeric_limits<uint64_t>::max();

// Copies the axes from `axis` on, advancing `out`. The innermost dense run is one memcpy.
class Packer {
 public:
  Packer(const TensorView& v, char* out) : v_(v), out_(out), size_(DTypeSize(v.dtype)) {
    // dense_[a]: elements of axes a.. that are in C order without gaps, or 0.
    int64_t run = 1;
    for (int a = v.rank - 1; a >= 0; --a) {
      const auto i = static_cast<size_t>(a);
      if (run > 0 && v.shape[i] != 1 && v.stride[i] != run) run = 0;
      run *= v.shape[i];
      dense_[i] = run;
    }
    dense_[static_cast<size_t>(v.rank)] = 1;
  }

  void Copy(int axis, const char* from) {
    const auto a = static_cast<size_t>(axis);
    if (dense_[a] > 0) {
      const size_t bytes = static_cast<size_t>(dense_[a]) * size_;
      std::memcpy(out_, from, bytes);
      out_ += bytes;
      return;
    }
    const int64_t step = v_.stride[a] * static_cast<int64_t>(size_);
    for (int64_t i = 0; i < v_.shape[a]; ++i) Copy(axis + 1, from + i * step);
  }

 private:
  const TensorView& v_;
  char* out_;
  size_t size_;
  std::array<int64_t, TensorView::kMaxRank + 1> dense_{};
};

}  // namespace

void CopyDense(const TensorView& view, void* out) {
  if (view.elements() == 0) return;
  Packer(view, static_cast<char*>(out)).Copy(0, static_cast<const char*>(view.data));
}

uint64_t PackedBytes(const TensorView& view) {
  if (!view.present()) return 0;
  uint64_t bytes = DTypeSize(view.dtype);
  for (int i = 0; i < view.rank; ++i) {
    const int64_t extent = view.shape[static_cast<size_t>(i)];
    if (extent <= 0) return 0;
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes)) return kTooMany;
  }
  return bytes;
}

absl::Status PackTensor(const TensorView& view, v1::Tensor* out) {
  out->Clear();
  if (DTypeSize(view.dtype) == 0) {
    return absl::InvalidArgumentError("expected a tensor of a known dtype, found none");
  }
  if (!view.on_host()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a host tensor, found one on device ", view.device));
  }
  for (int i = 0; i < view.rank; ++i) {
    const int64_t extent = view.shape[static_cast<size_t>(i)];
    if (extent < 0) {
      out->Clear();
      return absl::InvalidArgumentError(
          absl::StrCat("expected extents >= 0, found ", extent, " in axis ", i));
    }
    out->add_shape(extent);
  }
  out->set_dtype(static_cast<v1::DType>(view.dtype));
  const uint64_t bytes = PackedBytes(view);
  if (bytes == 0) return absl::OkStatus();
  std::string* data = out->mutable_data();
  data->resize(bytes);
  Packer(view, data->data()).Copy(0, static_cast<const char*>(view.data));
  return absl::OkStatus();
}

absl::StatusOr<TensorView> ViewTensor(const v1::Tensor& tensor, std::string_view name) {
  const auto fail = [&](const auto&... parts) {
    return absl::InvalidArgumentError(
        absl::StrCat(absl::string_view(name.data(), name.size()), ": expected ", parts...));
  };
  TensorView view;
  const int dtype = tensor.dtype();
  if (dtype <= 0 || dtype > static_cast<int>(DType::kBool)) {
    return fail("a known dtype, found ", dtype);
  }
  view.dtype = static_cast<DType>(dtype);
  if (tensor.shape_size() > TensorView::kMaxRank) {
    return fail("at most ", TensorView::kMaxRank, " axes, found ", tensor.shape_size());
  }
  view.rank = tensor.shape_size();
  uint64_t bytes = DTypeSize(view.dtype);
  bool overflow = false;
  int64_t stride = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    const int64_t extent = tensor.shape(i);
    if (extent < 0) return fail("extents >= 0, found ", extent, " in axis ", i);
    view.shape[static_cast<size_t>(i)] = extent;
    view.stride[static_cast<size_t>(i)] = stride;
    overflow |= __builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes);
    overflow |= __builtin_mul_overflow(stride, extent, &stride);
  }
  if (overflow) return fail("a size in 64 bits, found more");
  if (bytes != tensor.data().size()) {
    return fail(bytes, " bytes of data, found ", tensor.data().size());
  }
  view.data = tensor.data().data();
  return view;
}

}  // namespace plumbline
