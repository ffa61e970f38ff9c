// A tensor that the caller owns: its address, element type and strides.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace plumbline {

// Non-owning, trivially copyable, valid only as long as `data`. Strides are in elements and may be
// zero or negative. A default view (data == nullptr, rank 0, dtype kUnspecified) means "absent".
struct TensorView {
  static constexpr int kMaxRank = 8;

  const void* data = nullptr;
  DType dtype = DType::kUnspecified;
  int rank = 0;
  std::array<int64_t, kMaxRank> shape{};
  std::array<int64_t, kMaxRank> stride{};
  int device = -1;  // CUDA ordinal; -1: host memory

  bool present() const { return dtype != DType::kUnspecified; }
  bool on_host() const { return device < 0; }

  int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= shape[static_cast<size_t>(i)];
    return n;
  }

  // Returns true if the elements are in C order without gaps (axes of extent 1 do not count).
  bool contiguous() const {
    int64_t expected = 1;
    for (int i = rank - 1; i >= 0; --i) {
      const auto a = static_cast<size_t>(i);
      if (shape[a] != 1 && stride[a] != expected) return false;
      expected *= shape[a];
    }
    return true;
  }

  // Returns a C-ordered view of `rank` axes.
  template <typename... Extents>
  static TensorView Dense(const void* data, DType dtype, Extents... extents) {
    static_assert(sizeof...(extents) <= kMaxRank);
    TensorView v;
    v.data = data;
    v.dtype = dtype;
    v.rank = static_cast<int>(sizeof...(extents));
    v.shape = {static_cast<int64_t>(extents)...};
    int64_t step = 1;
    for (int i = v.rank - 1; i >= 0; --i) {
      v.stride[static_cast<size_t>(i)] = step;
      // Absurd extents wrap here; the readers of the elements refuse them.
      step = static_cast<int64_t>(static_cast<uint64_t>(step) *
                                  static_cast<uint64_t>(v.shape[static_cast<size_t>(i)]));
    }
    return v;
  }
};

}  // namespace plumbline
