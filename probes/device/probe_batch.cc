// Passes the calls of a batch to the rings of their devices.
#include <algorithm>
#include <array>
#include <cstdio>
#include <span>
#include <vector>

#include "probes/device/probe.h"

namespace plumbline::probes {
namespace {

constexpr size_t kMostGroups = 4;  // per kind: streams of one batch

// Returns the stream's group, or an empty one; null: all belong to other streams.
template <typename Job>
JobGroup<Job>* GroupOf(std::vector<JobGroup<Job>>* groups, DeviceRing* ring, void* stream) {
  JobGroup<Job>* free = nullptr;
  for (JobGroup<Job>& group : *groups) {
    if (group.ring == ring && group.stream == stream) return &group;
    if (group.jobs.empty()) free = &group;
  }
  if (free == nullptr && groups->size() < kMostGroups) free = &groups->emplace_back();
  if (free == nullptr) return nullptr;
  free->ring = ring;
  free->stream = stream;
  return free;
}

}  // namespace

bool DeviceBatch::empty() const {
  const auto none = [](const auto& group) { return group.jobs.empty(); };
  return std::all_of(tensors.begin(), tensors.end(), none) &&
         std::all_of(updates.begin(), updates.end(), none);
}

void DeviceProbe::Observe(const TensorCall& call, const MeasureOptions& options, void* stream,
                          const DeviceTag& tag, DeviceBatch* batch, DeviceReply* reply) {
  Gather<TensorJob>(call.values.device, call, options, stream, tag, &batch->tensors, batch, reply);
}

void DeviceProbe::Observe(const UpdateCall& call, const MeasureOptions& options, void* stream,
                          const DeviceTag& tag, DeviceBatch* batch, DeviceReply* reply) {
  Gather<UpdateJob>(call.input.before.device, call, options, stream, tag, &batch->updates, batch,
                    reply);
}

template <typename Job, typename Call>
void DeviceProbe::Gather(int ordinal, const Call& call, const MeasureOptions& options, void* stream,
                         const DeviceTag& tag, std::vector<JobGroup<Job>>* groups,
                         DeviceBatch* batch, DeviceReply* reply) {
  DeviceRing* ring = RingOf(ordinal, reply);
  if (ring == nullptr) return;
  Job job;
  bool prepared = false;
  reply->outcome = ring->Plan(call, options, stream, &prepared, &job, &reply->error);
  reply->prepared |= prepared;
  reply->crowded = ring->crowded();
  if (reply->outcome != DeviceOutcome::kTaken) return;

  // A row needs a separate launch, and no other thread may launch on a per-thread stream. Waiting
  // calls are launched first: calls of one site stay in their order.
  if (job.row.present() || stream == kPerThreadStream) {
    reply->crowded |= Launch(batch);
    reply->outcome = ring->ObserveJob(job, stream, tag, &prepared, &reply->error);
    return;
  }
  JobGroup<Job>* group = GroupOf(groups, ring, stream);
  if (group == nullptr) {
    reply->crowded |= Launch(batch);
    group = GroupOf(groups, ring, stream);
  }
  if (!group->Fits(job)) reply->crowded |= LaunchGroup(*batch, group);
  group->Add(tag, job);
}

bool DeviceProbe::Launch(DeviceBatch* batch) {
  bool crowded = false;
  for (JobGroup<TensorJob>& group : batch->tensors) crowded |= LaunchGroup(*batch, &group);
  for (JobGroup<UpdateJob>& group : batch->updates) crowded |= LaunchGroup(*batch, &group);
  return crowded;
}

template <typename Job>
bool DeviceProbe::LaunchGroup(const DeviceBatch& batch, JobGroup<Job>* group) {
  if (group->jobs.empty()) return false;
  const std::span<const WaitingJob<Job>> jobs = group->jobs;
  std::array<DeviceOutcome, kJobsOfLaunch<Job>> outcomes;
  DeviceError error{};
  if (leaving_.load(std::memory_order_acquire)) {
    outcomes.fill(DeviceOutcome::kFailed);
    std::snprintf(error.text, sizeof(error.text), "the process is ending");
  } else {
    group->ring->ObserveAll(jobs, group->stream, outcomes, &error);
  }
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (outcomes[i] != DeviceOutcome::kTaken) batch.lost(jobs[i].tag, outcomes[i], error);
  }
  const bool crowded = group->ring->crowded();
  group->Clear();
  return crowded;
}

}  // namespace plumbline::probes
