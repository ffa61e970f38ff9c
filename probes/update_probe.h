// The update probe: one update in place. Small tensors are copied on the caller's thread and
// checked on the drain thread, larger ones are checked on the caller's, those on a device there. Of
// a call that hands over sampled elements alone nothing is said of the rest; on a device they are
// copied off it, as they are few.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "plumbline/v1/evidence.pb.h"
#include "probes/calls/carried.h"
#include "probes/calls/measure.h"
#include "probes/calls/update_call.h"
#include "probes/device/job.h"

namespace plumbline::probes {

// Why the call cannot be measured, from shapes and types alone.
absl::Status CheckCall(const UpdateCall& call);

// Of a call that hands elements over which lie on a device: what its slot needs from there. In a
// step that keeps none that is the offsets, if they lie there too: they are looked at when the call
// is measured. CheckCall was OK. InvalidArgument: an offset of the host's beyond count.
absl::Status Carry(const UpdateCall& call, const MeasureOptions& options,
                   std::vector<CarriedCopy>* copies);

uint64_t SampleBytes(const UpdateCall& call);
uint64_t SummaryBytes(const UpdateCall& call);

size_t SlotBytes(const UpdateCall& call);
void StoreCall(const UpdateCall& call, std::byte* slot);
UpdateCall LoadUpdateCall(const std::byte* slot);

// Fills update, sample_size and exercised. Sampled elements handed over at a step that keeps none
// are left out. InvalidArgument: an offset beyond count.
absl::Status Measure(const UpdateCall& call, const MeasureOptions& options, v1::Evidence* out);
// The same bytes, of what a device left behind.
absl::Status Measure(const UpdateJob& job, v1::Evidence* out);

}  // namespace plumbline::probes
