// Tensors and updates that share a launch: one record, one launch for their figures. A small number
// of sampled elements needs no further launch.
#include <algorithm>
#include <new>
#include <span>
#include <type_traits>

#include "probes/device/graph_calls.h"
#include "probes/device/job_batch.h"
#include "probes/device/ring.h"

namespace plumbline::probes {
namespace {

const JobBatch& BatchAt(const std::byte* body) {
  return *std::launder(reinterpret_cast<const JobBatch*>(body));
}

void ShowJob(const TensorJob& job, DeviceItem* item) { item->tensor = &job; }
void ShowJob(const UpdateJob& job, DeviceItem* item) { item->update = &job; }

// Returns each job's part of the time, by its work: spans have equal size. 0: it was not timed.
uint64_t PartOf(uint64_t ns, int64_t work, int64_t all) {
  if (ns == 0 || all == 0) return ns;
  const double part = static_cast<double>(ns) * static_cast<double>(work);
  return std::max<uint64_t>(static_cast<uint64_t>(part / static_cast<double>(all)), 1);
}

}  // namespace

// ---- trainer's threads -------------------------------------------------------------------------

template <typename Job>
void DeviceRing::ObserveAll(std::span<const WaitingJob<Job>> jobs, void* stream,
                            std::span<DeviceOutcome> outcomes, DeviceError* error) {
  if (failed()) {
    std::fill_n(outcomes.begin(), jobs.size(), Failure(error));
    return;
  }
  if (jobs.size() > 1) {
    const DeviceOutcome together = ObserveTogether(jobs, stream, error);
    if (together != DeviceOutcome::kRingFull) {
      std::fill_n(outcomes.begin(), jobs.size(), together);
      return;
    }
  }
  // If there is one job, or no space for all of them, puts jobs singly: they may still find space,
  // or drop their elements.
  bool prepared = false;
  for (size_t i = 0; i < jobs.size(); ++i) {
    outcomes[i] =
        failed() ? Failure(error) : ObserveJob(jobs[i].job, stream, jobs[i].tag, &prepared, error);
  }
}

template <typename Job>
DeviceOutcome DeviceRing::ObserveTogether(std::span<const WaitingJob<Job>> jobs, void* stream,
                                          DeviceError* error) {
  Claim claim;
  bool prepared = false;
  const DeviceOutcome got = Acquire(WidthOfJobs(), stream, &claim, &prepared, error);
  if (got != DeviceOutcome::kTaken) return got;
  const JobBatch batch = PlanBatch(jobs);
  std::byte* memory = Reserve(batch.bytes);
  if (memory == nullptr) return DeviceOutcome::kRingFull;

  // Timed if one of them is sampled.
  DeviceTag tag = jobs[0].tag;
  tag.sampled = std::any_of(jobs.begin(), jobs.end(), [](const auto& w) { return w.tag.sampled; });
  constexpr Kind kKind = std::is_same_v<Job, TensorJob> ? Kind::kTensors : Kind::kUpdates;
  Record* record = Begin(memory, kKind, tag, &claim, stream);
  PutBatch(batch, jobs, Body(record));
  const DeviceStatus launched = Launch(batch, Body(record), CallOf<Job>(), claim, stream, error);
  return Seal(record, launched, stream, error) ? DeviceOutcome::kTaken : DeviceOutcome::kFailed;
}

// Few elements are copied with the figures; more of them are gathered by a separate launch.
DeviceStatus DeviceRing::Launch(const JobBatch& batch, std::byte* body, DeviceBatchCall figures,
                                const Claim& claim, void* stream, DeviceError* error) {
  std::byte* const elements = body + batch.gather_at;
  const bool few = batch.gather.items <= static_cast<int32_t>(kGraphGathers);
  SampledPart sampled;
  if (batch.gather.items > 0 && few)
    QueryGathers(batch.gather, elements, Alias(elements), &sampled);
  std::byte* const staging = body + batch.figures_at;
  const BatchMemory memory{staging, Alias(staging), claim.workspace->memory, claim.workspace_bytes};
  const DeviceStatus measured = figures(device_, &batch.figures, &memory,
                                        sampled.gathers > 0 ? &sampled : nullptr, stream, error);
  if (measured != kDeviceOk || few) return measured;
  const BatchMemory gathered{elements, Alias(elements)};
  return table_->gather(device_, &batch.gather, &gathered, nullptr, stream, error);
}

template void DeviceRing::ObserveAll(std::span<const WaitingJob<TensorJob>>, void*,
                                     std::span<DeviceOutcome>, DeviceError*);
template void DeviceRing::ObserveAll(std::span<const WaitingJob<UpdateJob>>, void*,
                                     std::span<DeviceOutcome>, DeviceError*);

// ---- the drain thread --------------------------------------------------------------------------

// Shows the next call of the record at the front, a replay or a job of a batch; returns false if
// there is none.
bool DeviceRing::ShowNext(const Record& record, bool measured, DeviceItem* item) {
  if (record.kind == Kind::kGraph) return ShowReplay(record, measured, item);
  const std::byte* body = reinterpret_cast<const std::byte*>(&record) + PartBytes<Record>();
  const JobBatch& batch = BatchAt(body);
  at_.begun = true;
  if (at_.replay >= batch.jobs) return false;
  const auto show = [&](const auto& waiting) {
    item->tag = waiting.tag;
    if (!measured) return Unmeasured(item);
    ShowJob(waiting.job, item);
    item->gpu_ns = PartOf(GpuTime(record), waiting.job.figures.work, batch.figures.work);
  };
  if (record.kind == Kind::kTensors) {
    show(JobAt<TensorJob>(body, at_.replay));
  } else {
    show(JobAt<UpdateJob>(body, at_.replay));
  }
  return true;
}

}  // namespace plumbline::probes
