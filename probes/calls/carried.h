// A call that no device measures: its tensors, small or few rows of large ones, come to the host as
// they are, and the drain thread measures them as it does calls of the host's ring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/tensor_view.h"

namespace plumbline::probes {

// What of a device goes where: dense, `to` bytes from the body's begin. Of rank 1 or 2.
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
  std::span<const uint64_t> indices;  // of every gather: in C order, at most 4,096
  // Writes all of the body but what the copies bring.
  void (*store)(const void* call, std::byte* body) = nullptr;
  const void* call = nullptr;
};

}  // namespace plumbline::probes
