// A call that no device measures: its tensors, small or few rows of large ones, are copied to the
// host, and the drain thread measures them like calls of the host's ring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/tensor_view.h"

namespace plumbline::probes {

// A dense copy from a device to `to` bytes from the body's begin. Rank 1 or 2.
struct CarriedCopy {
  TensorView from;
  uint64_t to = 0;
};

// The elements of a tensor of any strides at a call's indices, in their order.
struct CarriedGather {
  TensorView from;
  uint64_t to = 0;
};

struct CarriedCall {
  size_t bytes = 0;  // of the body, which is aligned to 64
  std::span<const CarriedCopy> copies;
  std::span<const CarriedGather> gathers;
  std::span<const uint64_t> indices;  // the indices of every gather: in C order, at most 4,096
  // Writes all of the body except the parts that the copies bring.
  void (*store)(const void* call, std::byte* body) = nullptr;
  const void* call = nullptr;
};

}  // namespace plumbline::probes
