#include "kernels/core/strided.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace plumbline {
namespace {

template <size_t Size>
std::byte* CopyStrided(const std::byte* from, int64_t stride, int64_t count, std::byte* out) {
  const int64_t step = stride * static_cast<int64_t>(Size);
  for (int64_t i = 0; i < count; ++i, from += step, out += Size) std::memcpy(out, from, Size);
  return out;
}

std::byte* CopyRun(const std::byte* from, size_t size, int64_t stride, int64_t count,
                   std::byte* out) {
  if (stride == 1) {
    const size_t bytes = static_cast<size_t>(count) * size;
    std::memcpy(out, from, bytes);
    return out + bytes;
  }
  switch (size) {
    case 1:
      return CopyStrided<1>(from, stride, count, out);
    case 2:
      return CopyStrided<2>(from, stride, count, out);
    case 4:
      return CopyStrided<4>(from, stride, count, out);
    default:
      return CopyStrided<8>(from, stride, count, out);
  }
}

}  // namespace

absl::Status CheckTensor(const TensorView& view, std::string_view name, int64_t* count) {
  const auto fail = [&](const auto&... parts) {
    return absl::InvalidArgumentError(
        absl::StrCat(absl::string_view(name.data(), name.size()), ": expected ", parts...));
  };
  *count = 0;
  if (DTypeSize(view.dtype) == 0) return fail("a tensor of a known dtype, found none");
  if (view.rank < 0 || view.rank > TensorView::kMaxRank) {
    return fail("0 to ", TensorView::kMaxRank, " axes, found ", view.rank);
  }
  bool empty = false;
  for (int i = 0; i < view.rank; ++i) {
    const int64_t extent = view.shape[static_cast<size_t>(i)];
    if (extent < 0) return fail("extents >= 0, found ", extent, " in axis ", i);
    empty |= extent == 0;
  }
  if (empty) return absl::OkStatus();
  int64_t elements = 1;
  for (int i = 0; i < view.rank; ++i) {
    if (__builtin_mul_overflow(elements, view.shape[static_cast<size_t>(i)], &elements) ||
        elements >= kMaxElements) {
      return fail("fewer than 2^48 elements, found more");
    }
  }
  if (view.data == nullptr) return fail("data, found none");
  *count = elements;
  return absl::OkStatus();
}

absl::Status CheckHostTensor(const TensorView& view, std::string_view name, int64_t* count) {
  if (absl::Status status = CheckTensor(view, name, count); !status.ok()) return status;
  if (view.on_host()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(absl::string_view(name.data(), name.size()),
                                                 ": expected a host tensor, found one on device ",
                                                 view.device));
}

StridedAxes AxesOf(const TensorView& view) {
  StridedAxes axes;
  axes.shape[0] = 1;
  int last = -1;  // the axis to which others are joined
  for (int i = 0; i < view.rank; ++i) {
    const int64_t extent = view.shape[static_cast<size_t>(i)];
    const int64_t stride = view.stride[static_cast<size_t>(i)];
    if (extent == 1) continue;
    if (last >= 0 && axes.stride[last] == extent * stride) {
      axes.shape[last] *= extent;
    } else {
      axes.shape[++last] = extent;
    }
    axes.stride[last] = stride;
  }
  axes.rank = last < 0 ? 1 : last + 1;
  return axes;
}

RunReader::RunReader(const TensorView& view)
    : data_(static_cast<const std::byte*>(view.data)),
      size_(DTypeSize(view.dtype)),
      axes_(AxesOf(view)) {}

const std::byte* RunReader::Read(int64_t first, int64_t count, std::byte* buffer) const {
  if (axes_.dense()) return data_ + first * static_cast<int64_t>(size_);
  Gather(first, count, buffer);
  return buffer;
}

void RunReader::Gather(int64_t first, int64_t count, std::byte* out) const {
  const int inner = axes_.rank - 1;
  int64_t place = first % axes_.shape[inner];
  while (count > 0) {
    const int64_t run = std::min(count, axes_.shape[inner] - place);
    const std::byte* from = data_ + axes_.Offset(first) * static_cast<int64_t>(size_);
    out = CopyRun(from, size_, axes_.stride[inner], run, out);
    first += run;
    count -= run;
    place = 0;
  }
}

}  // namespace plumbline
