// One router call as the trainer declared it, and its form as bytes of a slot.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/routing/routing.h"

namespace plumbline::probes {

// Views and texts are borrowed. The enumerations hold values of v1::RoutingConfig's.
struct RoutingCall {
  RoutingInput input;
  int32_t capacity_kind = 0;
  int32_t capacity_source = 0;
  int32_t pool = 0;
  int32_t flatten = 0;
  int32_t bias_captured = 0;
  uint64_t capacity = 0;
  std::string_view randomness;
  std::string_view mode;
  std::string_view policy;
};

inline constexpr size_t kRoutingTensors = 11;

// Returns the call's tensors in a fixed order: scores, expert_bias, topk_indices, keep_mask,
// routing_map, probs, sequence_id, position, padding_mask, pool_id, region.
std::array<const TensorView*, kRoutingTensors> Tensors(const RoutingInput& in);
std::array<TensorView*, kRoutingTensors> Tensors(RoutingInput& in);
const char* TensorName(size_t index);

// Returns the bytes of the call's tensors when dense: the size of a sample.
uint64_t SampleBytes(const RoutingCall& call);

// A slot holds a description of the call, then, dense in C order, its tensors. Offsets within are
// aligned to 64 bytes if the slot is.
size_t SlotBytes(const RoutingCall& call);
// Stores a call of host tensors.
void StoreRoutingCall(const RoutingCall& call, std::byte* slot);

// Stores the description only; its tensors are left out, or other code writes them at these
// offsets.
enum class SlotRows { kLeftOut, kToFollow };
using SlotOffsets = std::array<uint64_t, kRoutingTensors>;  // 0: an absent tensor
size_t SlotHeadBytes(const RoutingCall& call);
SlotOffsets StoreRoutingHead(const RoutingCall& call, SlotRows rows, std::byte* slot);

// Reads a call. Views and texts point into the slot; views of tensors that were left out are null
// pointers.
RoutingCall LoadRoutingCall(const std::byte* slot);

}  // namespace plumbline::probes
