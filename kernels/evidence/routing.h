// Converts the routing measurement to a message and back: used by the probes and by the readers of
// dumps.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/routing/routing.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline {

// Default limit of a sample. Of a larger call, only a part is packed.
inline constexpr uint64_t kMaxSampleBytes = 8u << 20;

// Fills the configuration from RoutingInput: top_k, experts, score function, groups and the dtype
// of the scores. Leaves the fields that only a recorder knows (capacity, pool, flatten, mode, ...)
// unchanged.
void FillRoutingConfig(const RoutingInput& in, v1::RoutingConfig* out);

void FillRoutingSummary(const RoutingStats& stats, v1::RoutingSummary* out);

// Packs dense copies of every tensor of the call (host tensors). If they exceed `max_bytes`, sets
// no sample and gives the reason in no_sample_reason; that is no error. Returns InvalidArgument
// with the bad tensor.
absl::Status FillRoutingSample(const RoutingInput& in, uint64_t max_bytes, v1::Routing* out);

// Fills all three parts of the message of one observed call. `with_sample` false: configuration and
// summary only.
absl::Status FillRouting(const RoutingInput& in, const RoutingStats& stats, bool with_sample,
                         uint64_t max_bytes, v1::Routing* out);

// Returns whether a capacity had an effect: YES if a choice was dropped, NO if the recorder
// declares that there is none, else UNKNOWN.
v1::Exercised RoutingExercised(const v1::Routing& routing);

// Returns views of a message's sample and configuration, valid as long as the message is unchanged.
// Returns InvalidArgument with the tensor that does not fit its own bytes; SummariseRouting checks
// the shapes against each other. Returns NotFound if there is no sample.
absl::StatusOr<RoutingInput> ViewRouting(const v1::Routing& routing);

}  // namespace plumbline
