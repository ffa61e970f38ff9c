// The routing measurement as a message, and back: used by the probes and by the readers of dumps.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/routing/routing.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline {

// Largest sample by default: of larger calls a part is packed.
inline constexpr uint64_t kMaxSampleBytes = 8u << 20;

// What RoutingInput says of the configuration: top_k, experts, score function, groups
// and the dtype of the scores. The
// fields that only a recorder knows (capacity, pool, flatten, mode, ...) are left as they are.
void FillRoutingConfig(const RoutingInput& in, v1::RoutingConfig* out);

void FillRoutingSummary(const RoutingStats& stats, v1::RoutingSummary* out);

// Dense copies of every tensor of the call (host tensors). When they exceed `max_bytes` no sample
// is set and no_sample_reason says so; that is no error. InvalidArgument names a bad tensor.
absl::Status FillRoutingSample(const RoutingInput& in, uint64_t max_bytes, v1::Routing* out);

// All three: what one observed call becomes. `with_sample` false: configuration and summary alone.
absl::Status FillRouting(const RoutingInput& in, const RoutingStats& stats, bool with_sample,
                         uint64_t max_bytes, v1::Routing* out);

// Was a capacity at work? YES when something was dropped, NO when the recorder says that there is
// none, else UNKNOWN.
v1::Exercised RoutingExercised(const v1::Routing& routing);

// Views of a message's sample and configuration, valid as long as the message is unchanged.
// InvalidArgument names the tensor that does not fit its own bytes; shapes against each other are
// checked by SummariseRouting. NotFound when there is no sample.
absl::StatusOr<RoutingInput> ViewRouting(const v1::Routing& routing);

}  // namespace plumbline
