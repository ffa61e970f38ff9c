// What a device is asked of one tensor or of one update, and where it leaves it. A job is planned
// on the caller's stack, then put, its memory behind it, into a record of the device's ring:
//
//   job | figures: its item, results | elements: items and indices, elements; or one row
//
// Plain data; nothing here allocates. Functions that return a status fail with InvalidArgument for
// a call that its probe's CheckCall has not passed.
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
  bool left_out = false;  // and there was no room for them

  // Of the record. Null where there are none: elements_at, where none are kept.
  std::byte* figures_at = nullptr;
  std::byte* elements_at = nullptr;

  const std::byte* results() const { return figures_at + figures.results_at(); }
  // Of all tensors, dense, each begun at a multiple of 8 bytes.
  const std::byte* elements() const {
    return elements_at == nullptr ? nullptr : elements_at + gather.results_at();
  }
  // What the elements take in the record; 0: none are kept.
  size_t ElementBytes() const;
};

struct TensorJob : DeviceJob {
  TensorCall call;  // its tensor is only described: the memory is the trainer's
  TensorItem item{};
  char role[kMaxTextBytes] = {};  // what the call's texts point to, once put
  char replicas[kMaxTextBytes] = {};
};

struct UpdateJob : DeviceJob {
  UpdateCall call;
  UpdateItem item{};
  char optimizer[kMaxTextBytes] = {};
};

// Device memory that any job's launch fits into, and one of as many jobs as its arguments hold, but
// of f64; each launch leaves it as zeros for the next.
inline constexpr uint64_t kJobWorkspace = uint64_t{96} << 10;

absl::Status PlanJob(const TensorCall& call, const MeasureOptions& options, TensorJob* job);
absl::Status PlanJob(const UpdateCall& call, const MeasureOptions& options, UpdateJob* job);

// Gives the elements up: the ring has no room for them.
void LeaveOut(DeviceJob* job);

// A job with its memory, and the job as it lies there, ready to be launched. `memory`: JobBytes
// bytes, aligned to 64.
size_t JobBytes(const TensorJob& job);
size_t JobBytes(const UpdateJob& job);
TensorJob* PutJob(const TensorJob& job, std::byte* memory);
UpdateJob* PutJob(const UpdateJob& job, std::byte* memory);

// Copies the call's texts, as a job that is not put yet does not, into the job itself.
void KeepTexts(TensorJob* job);
void KeepTexts(UpdateJob* job);

// Where a job's gathers go among others': each moves on by what the job puts.
struct GatherPlace {
  std::byte* items;
  uint64_t* indices;
  int64_t span = 0;
  uint64_t result = 0;
};
// The gathers of a job that has some, its indices once for each of its tensors.
void PutGathers(const TensorJob& job, GatherPlace* place);
void PutGathers(const UpdateJob& job, GatherPlace* place);

// What the job's launch copies of its elements, which the device sees at `elements`. False: none.
bool AskElements(const DeviceJob& job, std::byte* elements, SampledPart* part);
// The same of gathers, at most kGraphGathers: `at`, as they were put; the device sees them at `to`.
void AskGathers(const BatchShape& gathers, const std::byte* at, std::byte* to, SampledPart* part);

// The update's sampled elements as tensors [m] of the host; absent where its own are.
UpdateInput ElementsOf(const UpdateJob& job);

}  // namespace plumbline::probes
