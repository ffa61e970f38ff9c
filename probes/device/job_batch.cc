#include "probes/device/job_batch.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <type_traits>

#include "kernels/sample/batch.h"
#include "probes/device/slots.h"

namespace plumbline::probes {
namespace {

template <typename Job>
constexpr size_t kPlaceBytes = AlignedTo64(sizeof(WaitingJob<Job>));

template <typename Job>
std::byte* PlaceOf(std::byte* memory, uint32_t i) {
  return memory + PartBytes<JobBatch>() + i * kPlaceBytes<Job>;
}

// Makes a job point to its part of the common results and elements, instead of its own.
void PointInto(const BatchShape& figures, std::byte* figures_at, DeviceJob* job, uint64_t result) {
  job->figures_at = figures_at + figures.results_at() + result - job->figures.results_at();
}

}  // namespace

template <typename Job>
JobBatch PlanBatch(std::span<const WaitingJob<Job>> jobs) {
  JobBatch batch;
  batch.jobs = static_cast<uint32_t>(jobs.size());
  batch.figures.device = batch.gather.device = jobs[0].job.figures.device;
  const auto add = [](const BatchShape& one, BatchShape* all) {
    all->items += one.items;
    all->work += one.work;
    all->item_bytes += one.item_bytes;
    all->result_bytes += one.result_bytes;
  };
  for (const auto& [tag, job] : jobs) {
    add(job.figures, &batch.figures);
    add(job.gather, &batch.gather);
  }
  batch.figures_at = PartBytes<JobBatch>() + batch.jobs * kPlaceBytes<Job>;
  batch.gather_at = AlignedTo64(batch.figures_at + batch.figures.bytes());
  batch.bytes = batch.gather_at + (batch.gather.items > 0 ? batch.gather.bytes() : 0);
  return batch;
}

template <typename Job>
void PutBatch(const JobBatch& batch, std::span<const WaitingJob<Job>> jobs, std::byte* memory) {
  new (memory) JobBatch(batch);
  std::byte* const figures_at = memory + batch.figures_at;
  std::byte* const gather_at = memory + batch.gather_at;
  std::byte* const indices_at =
      gather_at + static_cast<size_t>(batch.gather.items) * sizeof(GatherItem);
  GatherPlace place{gather_at, reinterpret_cast<uint64_t*>(indices_at)};
  int64_t span = 0;
  uint64_t result = 0;
  for (uint32_t i = 0; i < batch.jobs; ++i) {
    Job& job = (new (PlaceOf<Job>(memory, i)) WaitingJob<Job>(jobs[i]))->job;
    KeepTexts(&job);
    PointInto(batch.figures, figures_at, &job, result);
    // The item's position among the others; the item in the job stays as for a single job.
    auto item = job.item;
    item.first_span = span;
    item.result = result;
    std::memcpy(figures_at + i * sizeof(item), &item, sizeof(item));
    span += job.figures.work;
    result += job.figures.result_bytes;
    if (job.gather.items == 0) continue;
    job.elements_at =
        gather_at + batch.gather.results_at() + place.result - job.gather.results_at();
    PutGathers(job, &place);
  }
}

template <typename Job>
const WaitingJob<Job>& JobAt(const std::byte* memory, uint32_t i) {
  return *std::launder(
      reinterpret_cast<const WaitingJob<Job>*>(PlaceOf<Job>(const_cast<std::byte*>(memory), i)));
}

static_assert(std::is_trivially_copyable_v<WaitingJob<TensorJob>> &&
              std::is_trivially_copyable_v<WaitingJob<UpdateJob>>);

template JobBatch PlanBatch(std::span<const WaitingJob<TensorJob>>);
template JobBatch PlanBatch(std::span<const WaitingJob<UpdateJob>>);
template void PutBatch(const JobBatch&, std::span<const WaitingJob<TensorJob>>, std::byte*);
template void PutBatch(const JobBatch&, std::span<const WaitingJob<UpdateJob>>, std::byte*);
template const WaitingJob<TensorJob>& JobAt(const std::byte*, uint32_t);
template const WaitingJob<UpdateJob>& JobAt(const std::byte*, uint32_t);

}  // namespace plumbline::probes
