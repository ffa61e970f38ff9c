// The routing probe: takes one router call off the trainer's thread and turns it into evidence.
//
// On the caller's thread the call's tensors are copied, densely, into one slot of bytes, and
// nothing of the trainer's is referenced afterwards. On the drain thread the slot is read back,
// summarised by the host twin, and on sampled steps its rows become the sample. Copying costs the
// trainer a few per cent of what the summary does (bench/agent); a call too large for a slot is
// summarised where it is, on the caller's thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "kernels/routing.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::probes {

// One router call as the trainer declared it. Views and texts are borrowed. The enumerations hold
// values of v1::RoutingConfig's.
struct RoutingCall {
  RoutingInput input;
  int32_t capacity_kind = 0;
  int32_t pool = 0;
  int32_t flatten = 0;
  int32_t bias_captured = 0;
  uint64_t capacity = 0;
  std::string_view randomness;
  std::string_view mode;
};

inline constexpr size_t kRoutingTensors = 10;

// The call's tensors in a fixed order: scores, expert_bias, topk_indices, keep_mask, routing_map,
// probs, sequence_id, position, padding_mask, pool_id.
std::array<const TensorView*, kRoutingTensors> Tensors(const RoutingInput& in);
std::array<TensorView*, kRoutingTensors> Tensors(RoutingInput& in);
const char* TensorName(size_t index);

// Why a call cannot be measured at all, found from shapes and types alone: InvalidArgument names
// the tensor, what it is and what was expected. Unavailable: a tensor lives on a device and the
// device kernels are not loaded. Nothing is allocated when the call is fine.
absl::Status CheckRoutingCall(const RoutingCall& call);

// Bytes of the call's tensors when dense: what a sample of it takes.
uint64_t SampleBytes(const RoutingCall& call);

// Upper estimate of a summary's bytes in evidence, from the shape alone.
uint64_t SummaryBytes(const RoutingCall& call);

// The slot that holds the call. Offsets within are aligned to 64 bytes if the slot is.
size_t SlotBytes(const RoutingCall& call);
void StoreRoutingCall(const RoutingCall& call, std::byte* slot);
// Views and texts point into the slot.
RoutingCall LoadRoutingCall(const std::byte* slot);

// Fills `out`: configuration and summary, and the sample too when `sample` is set and its bytes do
// not exceed `sample_max_bytes` (otherwise no_sample_reason). A call whose values contradict each
// other (an index out of range) is InvalidArgument; NaN and infinity are data.
absl::Status MeasureRouting(const RoutingCall& call, bool sample, uint64_t sample_max_bytes,
                            v1::Routing* out);

}  // namespace plumbline::probes
