// The data after a record's head in a device's ring, or after a section's in a graph's record: the
// call, and the places for the device's measurements. Plain data in pinned memory.
#pragma once

#include <cstddef>

#include "kernels/routing/plan.h"
#include "probes/calls/matmul_call.h"
#include "probes/calls/routing_call.h"

namespace plumbline::probes {

constexpr size_t AlignedTo64(size_t n) { return (n + 63) & ~size_t{63}; }
// Returns the bytes of a part: the next part is aligned to 64 again.
template <typename Part>
constexpr size_t PartBytes() {
  return AlignedTo64(sizeof(Part));
}

// The call's head and rows follow (routing_call.h).
struct RoutingSlot {
  RoutingPlan plan;
  alignas(64) RoutingRaw raw;  // written by the device
};

// A product's call and its texts; the gathered data follow.
struct ProductSlot {
  MatmulCall call;
  char input_format[16];
  char library[257];
};

// Puts the call with its texts. Its tensors are the data that the device will write after it, at
// the returned address. If the plan has no elements, puts the call without a sample.
std::byte* PutProduct(const MatmulCall& call, const ProductPlan& plan, std::byte* memory);

}  // namespace plumbline::probes
