#include "probes/device/probe.h"

#include <algorithm>
#include <cstdio>
#include <thread>
#include <utility>

namespace plumbline::probes {

DeviceProbe::DeviceProbe(Loader loader, const DeviceLimits& limits, std::function<void()> ready)
    : loader_(std::move(loader)), limits_(limits), ready_(std::move(ready)) {}

void DeviceProbe::Observe(const RoutingCall& call, void* stream, const DeviceTag& tag,
                          DeviceReply* reply) {
  DeviceRing* ring = RingOf(call.input.scores.device, reply);
  if (ring == nullptr) return;
  bool prepared = false;
  reply->outcome = ring->Observe(call, stream, tag, &prepared, &reply->error);
  reply->prepared |= prepared;
  reply->crowded = ring->crowded();
}

void DeviceProbe::Observe(const MatmulCall& call, const ProductPlan& plan, void* stream,
                          const DeviceTag& tag, DeviceReply* reply) {
  DeviceRing* ring = RingOf(call.input.a.device, reply);
  if (ring == nullptr) return;
  reply->outcome = ring->Observe(call, plan, stream, tag, &reply->error);
  reply->crowded = ring->crowded();
}

void DeviceProbe::Observe(const TensorCall& call, const MeasureOptions& options, void* stream,
                          const DeviceTag& tag, DeviceReply* reply) {
  ObserveOn(call.values.device, call, options, stream, tag, reply);
}

void DeviceProbe::Observe(const UpdateCall& call, const MeasureOptions& options, void* stream,
                          const DeviceTag& tag, DeviceReply* reply) {
  ObserveOn(call.input.before.device, call, options, stream, tag, reply);
}

void DeviceProbe::Observe(const CarriedCall& call, int ordinal, void* stream, const DeviceTag& tag,
                          DeviceReply* reply) {
  DeviceRing* ring = RingOf(ordinal, reply);
  if (ring == nullptr) return;
  bool prepared = false;
  reply->outcome = ring->Observe(call, stream, tag, &prepared, &reply->error);
  reply->prepared |= prepared;
  reply->crowded = ring->crowded();
}

template <typename Call>
void DeviceProbe::ObserveOn(int ordinal, const Call& call, const MeasureOptions& options,
                            void* stream, const DeviceTag& tag, DeviceReply* reply) {
  DeviceRing* ring = RingOf(ordinal, reply);
  if (ring == nullptr) return;
  bool prepared = false;
  reply->outcome = ring->Observe(call, options, stream, tag, &prepared, &reply->error);
  reply->prepared |= prepared;
  reply->crowded = ring->crowded();
}

template <typename Call>
void DeviceProbe::Capture(const Call& call, int ordinal, void* stream, void* replays_on, void* site,
                          DeviceReply* reply) {
  DeviceRing* ring = RingOf(ordinal, reply);
  if (ring == nullptr) return;
  reply->prepared = true;  // memory was allocated: the time is not the site's usual cost
  reply->outcome = ring->Capture(call, stream, replays_on, site, &reply->error);
}

template void DeviceProbe::Capture(const RoutingCall&, int, void*, void*, void*, DeviceReply*);
template void DeviceProbe::Capture(const MatmulCall&, int, void*, void*, void*, DeviceReply*);
template void DeviceProbe::Capture(const TensorCall&, int, void*, void*, void*, DeviceReply*);
template void DeviceProbe::Capture(const UpdateCall&, int, void*, void*, void*, DeviceReply*);

template <typename F>
void DeviceProbe::ForGraphs(DeviceReply* reply, F f) {
  if (leaving_.load(std::memory_order_acquire)) return;
  for (Place& place : places_) {
    DeviceRing* ring = place.ready.load(std::memory_order_acquire);
    if (ring == nullptr || !ring->has_graphs()) continue;
    DeviceError error{};
    const DeviceOutcome outcome = f(ring, &error);
    if (outcome <= reply->outcome) continue;
    reply->outcome = outcome;
    reply->error = error;
  }
}

bool DeviceProbe::BeginStep(int64_t step, GraphOwner* owner, DeviceReply* reply) {
  bool due = false;
  ForGraphs(reply, [&](DeviceRing* ring, DeviceError* error) {
    const DeviceOutcome outcome = ring->BeginStep(step, owner, error);
    due |= ring->step_open();
    reply->crowded |= ring->crowded();
    return outcome;
  });
  return due;
}

void DeviceProbe::EndStep(DeviceReply* reply) {
  ForGraphs(reply, [](DeviceRing* ring, DeviceError* error) { return ring->EndStep(error); });
}

DeviceRing* DeviceProbe::RingOf(int ordinal, DeviceReply* reply) {
  if (leaving_.load(std::memory_order_acquire)) {
    reply->outcome = DeviceOutcome::kFailed;
    std::snprintf(reply->error.text, sizeof(reply->error.text), "the process is ending");
    return nullptr;
  }
  if (ordinal >= kMaxDevices) {
    reply->outcome = DeviceOutcome::kNotLoaded;
    std::snprintf(reply->error.text, sizeof(reply->error.text), "device %d: expected at most %d",
                  ordinal, kMaxDevices - 1);
    return nullptr;
  }
  Place& place = places_[static_cast<size_t>(ordinal)];
  if (DeviceRing* ring = place.ready.load(std::memory_order_acquire)) return ring;
  int seen = kClosed;
  if (!place.state.compare_exchange_strong(seen, kUnderWay, std::memory_order_acquire)) {
    if (seen == kOpen) return place.ready.load(std::memory_order_acquire);
    reply->outcome = seen == kUnderWay ? DeviceOutcome::kStarting : DeviceOutcome::kNotLoaded;
    if (seen == kUnusable) reply->error = place.error;
    return nullptr;
  }
  reply->prepared = true;
  bool later = false;
  if (const DeviceTable* table = loader_(&place.error)) {
    place.ring = DeviceRing::Open(table, ordinal, limits_, &place.error, &later);
  }
  if (place.ring == nullptr && later) {  // a capture is in progress: the next call tries again
    reply->outcome = DeviceOutcome::kCapturing;
    place.state.store(kClosed, std::memory_order_release);
    return nullptr;
  }
  if (place.ring == nullptr) {
    reply->outcome = DeviceOutcome::kNotLoaded;
    reply->error = place.error;
    place.state.store(kUnusable, std::memory_order_release);
    return nullptr;
  }
  if (ready_) ready_();
  place.ready.store(place.ring.get(), std::memory_order_release);
  place.state.store(kOpen, std::memory_order_release);
  return place.ring.get();
}

bool DeviceProbe::used() const {
  return std::any_of(places_.begin(), places_.end(), [](const Place& place) {
    return place.ready.load(std::memory_order_acquire) != nullptr;
  });
}

bool DeviceProbe::empty() const {
  for (const Place& place : places_) {
    const DeviceRing* ring = place.ready.load(std::memory_order_acquire);
    if (ring != nullptr && !ring->empty()) return false;
  }
  return true;
}

DeviceProbe::Mark DeviceProbe::Position() const {
  Mark mark{};
  for (size_t i = 0; i < places_.size(); ++i) {
    if (const DeviceRing* ring = places_[i].ready.load(std::memory_order_acquire)) {
      mark[i] = ring->position();
    }
  }
  return mark;
}

bool DeviceProbe::Passed(const Mark& mark) const {
  for (size_t i = 0; i < places_.size(); ++i) {
    const DeviceRing* ring = places_[i].ready.load(std::memory_order_acquire);
    if (ring != nullptr && !ring->passed(mark[i])) return false;
  }
  return true;
}

void DeviceProbe::Abandon(const char* why) {
  for (const Place& place : places_) {
    DeviceRing* ring = place.ready.load(std::memory_order_acquire);
    if (ring != nullptr && !ring->empty()) ring->Abandon(why);
  }
}

void DeviceProbe::Leave(Clock::time_point deadline) {
  leaving_.store(true, std::memory_order_release);
  for (bool late = false; !late;) {
    late = Clock::now() >= deadline;
    // The lock excludes Free; the drain thread holds the lock during calls of a device. If the lock
    // cannot be taken until the deadline, the drain thread is blocked in the driver. Then this
    // function returns without it.
    if (draining_.TryLock()) {
      const bool left = LeaveRings(late);
      draining_.Unlock();
      if (left) return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

bool DeviceProbe::LeaveRings(bool late) {
  EndOpenSteps();  // otherwise their records would be awaited in vain
  if (!late && !empty()) return false;
  for (const Place& place : places_) {
    if (DeviceRing* ring = place.ready.load(std::memory_order_acquire)) {
      ring->Abandon("the process is ending");
    }
  }
  return true;
}

void DeviceProbe::EndOpenSteps() {
  DeviceError ignored;
  for (Place& place : places_) {
    DeviceRing* ring = place.ready.load(std::memory_order_acquire);
    if (ring != nullptr && ring->step_open()) ring->EndStep(&ignored);
  }
}

void DeviceProbe::Free() {
  const MutexLock lock(draining_);
  for (Place& place : places_) {
    place.ready.store(nullptr, std::memory_order_release);
    place.ring.reset();
  }
}

}  // namespace plumbline::probes
