// Routing measurements in flight: slots of pinned memory that a device fills on the trainer's own
// stream, and that a drain thread empties in the order of the calls.
//
//   trainer's thread   Observe: takes a slot, enqueues the kernels and an event. No
//   synchronisation,
//                      no allocation, no lock; a full ring loses the call and counts it
//   drain thread       Drain: hands on what the device has finished, frees the slots
//
// One thread of each kind (of several trainers' threads, each has a ring of its own). A slot has
// its own workspace, so that calls may come on any streams.
//
// `Device` is CudaRoutingDevice (cuda_routing_device.h), or a stand-in in tests:
//   Status Allocate(size_t workspace_bytes, Slot*)     Slot: workspace, result, event
//   size_t WorkspaceBytes(int64_t tokens, int experts)
//   void Free(Slot*)
//   Status Launch(const RoutingInput&, const Slot&, size_t workspace_bytes, void* stream,
//                 RoutingPlan*)                        the kernels, then the event
//   StatusOr<bool> Done(const Slot&)                   has the event passed?
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/routing_plan.h"

namespace plumbline {

template <typename Device, typename Tag>
class RoutingRing {
 public:
  struct Limits {
    uint32_t slots = 16;
    int64_t tokens = int64_t{1} << 20;
    int experts = kMaxExperts;
  };

  // Allocates everything. `device` is borrowed. The device's own error where memory is short.
  static absl::StatusOr<std::unique_ptr<RoutingRing>> Create(Device* device, const Limits& limits) {
    auto ring = std::unique_ptr<RoutingRing>(new RoutingRing(device, limits));
    for (Entry& entry : ring->entries_) {
      if (absl::Status s = device->Allocate(ring->workspace_bytes_, &entry.slot); !s.ok()) return s;
      entry.allocated = true;
    }
    return ring;
  }

  // What the device has not finished is not freed: it would be written to later.
  ~RoutingRing() {
    for (uint64_t i = taken_.load(); i != given_.load(); ++i) {
      Entry& entry = At(i);
      const absl::StatusOr<bool> done = device_->Done(entry.slot);
      entry.allocated = done.ok() && *done;
    }
    for (Entry& entry : entries_) {
      if (entry.allocated) device_->Free(&entry.slot);
    }
  }
  RoutingRing(const RoutingRing&) = delete;
  RoutingRing& operator=(const RoutingRing&) = delete;

  // OK: the measurement is under way, and `in`'s tensors must live until the stream has passed.
  // ResourceExhausted: no slot is free; OutOfRange: larger than the limits; Unavailable: the device
  // has failed before (all three are counted as lost). Otherwise as LaunchRouting.
  absl::Status Observe(const RoutingInput& in, void* stream, const Tag& tag) {
    if (broken_.load(std::memory_order_relaxed)) {
      lost_.fetch_add(1, std::memory_order_relaxed);
      return absl::UnavailableError("the device has failed");
    }
    if (in.scores.rank == 2 &&
        (in.scores.shape[0] > limits_.tokens || in.scores.shape[1] > limits_.experts)) {
      lost_.fetch_add(1, std::memory_order_relaxed);
      return absl::OutOfRangeError("scores: larger than the ring's slots");
    }
    const uint64_t next = given_.load(std::memory_order_relaxed);
    if (next - taken_.load(std::memory_order_acquire) == entries_.size()) {
      lost_.fetch_add(1, std::memory_order_relaxed);
      return absl::ResourceExhaustedError("no slot is free");
    }
    Entry& entry = At(next);
    absl::Status status = device_->Launch(in, entry.slot, workspace_bytes_, stream, &entry.plan);
    if (!status.ok()) return status;
    entry.tag = tag;
    given_.store(next + 1, std::memory_order_release);
    return status;
  }

  // Calls f(tag, StatusOr<RoutingStats>&) for each measurement that has arrived, oldest first, up
  // to the first that has not; how many. A device error is passed on with the call it belongs to.
  template <typename F>
  int Drain(F f) {
    int drained = 0;
    const uint64_t end = given_.load(std::memory_order_acquire);
    for (uint64_t i = taken_.load(std::memory_order_relaxed); i != end; ++i, ++drained) {
      Entry& entry = At(i);
      const absl::StatusOr<bool> done = device_->Done(entry.slot);
      if (done.ok() && !*done) break;
      absl::StatusOr<RoutingStats> stats = RoutingStats();
      absl::Status status = done.status();
      if (!status.ok()) {  // whether the slot will still be written nobody can tell
        entry.allocated = false;
        broken_.store(true, std::memory_order_relaxed);
      } else {
        status = FinishRouting(entry.plan, *entry.slot.result, &*stats);
      }
      if (!status.ok()) stats = status;
      f(entry.tag, stats);
      taken_.store(i + 1, std::memory_order_release);
    }
    return drained;
  }

  // Calls that found no slot or did not fit one. Any thread.
  uint64_t lost() const { return lost_.load(std::memory_order_relaxed); }
  uint64_t in_flight() const { return given_.load() - taken_.load(); }

 private:
  struct Entry {
    typename Device::Slot slot{};
    bool allocated = false;
    RoutingPlan plan;
    Tag tag{};
  };

  RoutingRing(Device* device, const Limits& limits)
      : device_(device),
        limits_(limits),
        workspace_bytes_(device->WorkspaceBytes(limits.tokens, limits.experts)),
        entries_(limits.slots) {}

  Entry& At(uint64_t i) { return entries_[i % entries_.size()]; }

  Device* device_;
  Limits limits_;
  size_t workspace_bytes_;
  std::vector<Entry> entries_;
  alignas(64) std::atomic<uint64_t> given_{0};  // written by the trainer's thread
  alignas(64) std::atomic<uint64_t> taken_{0};  // written by the drain thread
  std::atomic<uint64_t> lost_{0};
  std::atomic<bool> broken_{false};
};

}  // namespace plumbline
