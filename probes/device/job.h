// The request to a device for one tensor or one update, and the places of its results. A job is
// planned on the caller's stack, then put, followed by its memory, into a record of the device's
// ring:
//
//   job | figures: its item, results | elements: items and indices, elements; or one row
//
// Plain data; nothing here allocates. Functions that return a status return InvalidArgument for a
// call that its probe's CheckCall has not passed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/core/batch_shape.h"
#include "kernels/sample/eager.h"
#include "kernels/tensor/batch.h"
#include "kernels/tensor/sample.h"
#include "kernels/update/batch.h"
#include "probes/calls/measure.h"
#include "probes/calls/tensor_call.h"
#include "probes/calls/update_call.h"

namespace plumbline::probes {

struct DeviceJob {
  BatchShape figures;     // of one item
  BatchShape gather;      // no items: none are gathered
  TensorView row;         // present: one row is kept, and copied
  TensorSample sample;    // of each of the call's tensors
  bool sampled = false;   // the step keeps elements
  bool left_out = false;  // and there was no space for them

  // Addresses in the record. Null if there are none: elements_at if no elements are kept.
  std::byte* figures_at = nullptr;
  std::byte* elements_at = nullptr;

  const std::byte* results() const { return figures_at + figures.results_at(); }
  // Returns the elements of all tensors, dense; each tensor begins at a multiple of 8 bytes.
  const std::byte* elements() const {
    return elements_at == nullptr ? nullptr : elements_at + gather.results_at();
  }
  // Returns the bytes of the elements in the record; 0: none are kept.
  size_t ElementBytes() const;
};

struct TensorJob : DeviceJob {
  TensorCall call;  // its tensor is only described: the trainer owns the memory
  TensorItem item{};
  char role[kMaxTextBytes] = {};  // the texts of the call, once it is put
  char replicas[kMaxTextBytes] = {};
};

struct UpdateJob : DeviceJob {
  UpdateCall call;
  UpdateItem item{};
  char optimizer[kMaxTextBytes] = {};
};

// Device memory for the launch of any job, and of as many jobs as the arguments of a launch hold,
// except f64. Each launch leaves the memory zeroed for the next launch.
inline constexpr uint64_t kJobWorkspace = uint64_t{96} << 10;

absl::Status PlanJob(const TensorCall& call, const MeasureOptions& options, TensorJob* job);
absl::Status PlanJob(const UpdateCall& call, const MeasureOptions& options, UpdateJob* job);

// Drops the elements: the ring has no space for them.
void LeaveOut(DeviceJob* job);

// Returns the size of a job with its memory, and puts it there, ready to be launched. `memory`:
// JobBytes bytes, aligned to 64.
size_t JobBytes(const TensorJob& job);
size_t JobBytes(const UpdateJob& job);
TensorJob* PutJob(const TensorJob& job, std::byte* memory);
UpdateJob* PutJob(const UpdateJob& job, std::byte* memory);

// Copies the call's texts into the job itself; a job that is not put yet does not own them.
void KeepTexts(TensorJob* job);
void KeepTexts(UpdateJob* job);

// The place of a job's gathers among others; each job advances it.
struct GatherPlace {
  std::byte* items;
  uint64_t* indices;
  int64_t span = 0;
  uint64_t result = 0;
};
// Puts the gathers of a job that has some, with its indices once for each of its tensors.
void PutGathers(const TensorJob& job, GatherPlace* place);
void PutGathers(const UpdateJob& job, GatherPlace* place);

// Sets the elements that the job's launch copies; the device sees them at `elements`. Returns false
// if there are none.
bool QueryElements(const DeviceJob& job, std::byte* elements, SampledPart* part);
// Does the same for at most kGraphGathers gathers. `at`: where they were put; `to`: where the
// device sees them.
void QueryGathers(const BatchShape& gathers, const std::byte* at, std::byte* to, SampledPart* part);

// Returns the update's sampled elements as tensors [m] of the host; absent where the update's
// tensors are absent.
UpdateInput ElementsOf(const UpdateJob& job);

}  // namespace plumbline::probes
