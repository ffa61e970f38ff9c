// What follows a record's head in a device's ring, or a section's in a graph's record: the call,
// and where the device puts what it measured. Plain data in pinned memory.
#pragma once

#include <cstddef>

#include "kernels/routing/plan.h"
#include "probes/calls/matmul_call.h"
#include "probes/calls/routing_call.h"

namespace plumbline::probes {

constexpr size_t AlignedTo64(size_t n) { return (n + 63) & ~size_t{63}; }
// Bytes of a part: what follows it is aligned to 64 again.
template <typename Part>
constexpr size_t PartBytes() {
  return AlignedTo64(sizeof(Part));
}

// The call's head and rows follow (routing_call.h).
struct RoutingSlot {
  RoutingPlan plan;
  alignas(64) RoutingRaw raw;  // the device's
};

// A product's call, its texts, and after it what was gathered.
struct ProductSlot {
  MatmulCall call;
  char input_format[16];
  char library[257];
};

// Puts the call with its texts, and as its tensors what the device will put behind it: at the
// place that is returned. A plan of no elements: the call without a sample.
std::byte* PutProduct(const MatmulCall& call, const ProductPlan& plan, std::byte* memory);

}  // namespace plumbline::probes
