// Jobs of one kind that share a launch: how they wait for it, and the layout of their record in the
// ring:
//
//   JobBatch | the jobs with their tags | figures: items, results | gathers: items, indices,
//   elements
//
// Plain data; nothing here allocates except JobGroup's first use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/core/batch_shape.h"
#include "probes/device/item.h"
#include "probes/device/job.h"

namespace plumbline::probes {

class DeviceRing;

template <typename Job>
struct WaitingJob {
  DeviceTag tag;
  Job job;
};

// The number of jobs of a kind in the arguments of one launch.
template <typename Job>
inline constexpr int kJobsOfLaunch = kTensorsOfLaunch;
template <>
inline constexpr int kJobsOfLaunch<UpdateJob> = kUpdatesOfLaunch;

// The layout of a record, from its body's begin, and its launches.
struct JobBatch {
  uint32_t jobs = 0;
  BatchShape figures;
  BatchShape gather;  // no items: none are gathered
  uint64_t figures_at = 0;
  uint64_t gather_at = 0;
  uint64_t bytes = 0;
};

// Plans a batch. `jobs` are of one device, at least one, without rows.
template <typename Job>
JobBatch PlanBatch(std::span<const WaitingJob<Job>> jobs);
// Writes a batch. `memory`: batch.bytes bytes, aligned to 64. The jobs there look as if each had
// been put alone.
template <typename Job>
void PutBatch(const JobBatch& batch, std::span<const WaitingJob<Job>> jobs, std::byte* memory);
// Returns a job of a written batch.
template <typename Job>
const WaitingJob<Job>& JobAt(const std::byte* memory, uint32_t i);

// The jobs that wait for one launch on one stream.
template <typename Job>
struct JobGroup {
  JobGroup() = default;
  JobGroup(JobGroup&&) noexcept = default;  // a copy's texts would point to the original
  JobGroup& operator=(JobGroup&&) noexcept = default;

  DeviceRing* ring = nullptr;  // null: never used
  void* stream = nullptr;
  std::vector<WaitingJob<Job>> jobs;
  uint64_t result_bytes = 0;

  // Returns true if one more job fits into the launch's arguments and workspace.
  bool Fits(const Job& job) const {
    return static_cast<int>(jobs.size()) < kJobsOfLaunch<Job> &&
           kArrivedBytes + result_bytes + job.figures.result_bytes <= kJobWorkspace;
  }
  void Add(const DeviceTag& tag, const Job& job) {
    jobs.reserve(kJobsOfLaunch<Job>);  // they must not move, because of their texts
    jobs.push_back({tag, job});
    KeepTexts(&jobs.back().job);
    result_bytes += job.figures.result_bytes;
  }
  void Clear() {
    jobs.clear();
    result_bytes = 0;
  }
};

}  // namespace plumbline::probes
