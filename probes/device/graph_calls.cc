#include "probes/device/graph_calls.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "probes/device/captured_calls.h"
#include "probes/device/slots.h"

namespace plumbline::probes {
namespace {

DeviceOutcome RefuseCapture(const absl::Status& why, DeviceError* error) {
  std::snprintf(error->text, sizeof(error->text), "%s", std::string(why.message()).c_str());
  return DeviceOutcome::kRefused;
}

DeviceOutcome OutcomeOf(DeviceStatus status) {
  if (status == kDeviceOk) return DeviceOutcome::kTaken;
  // no memory was allocated meanwhile
  if (status == kDeviceCapturing) return DeviceOutcome::kCapturing;
  return status == kDeviceRefused ? DeviceOutcome::kRefused : DeviceOutcome::kFailed;
}

template <typename T>
T* At(std::byte* record, uint64_t at) {
  return reinterpret_cast<T*>(record + at);
}
template <typename T>
const T* At(const GraphRecord* record, uint64_t at) {
  return std::launder(reinterpret_cast<const T*>(reinterpret_cast<const std::byte*>(record) + at));
}

}  // namespace

// ---- a record, read back -----------------------------------------------------------------------

const GraphEntry* GraphRecord::entry(uint32_t i) const {
  return At<GraphEntry>(this, PartBytes<GraphRecord>()) + i;
}

const GraphCounts& GraphRecord::tally(uint32_t i) const {
  return At<GraphCounts>(this, tallies_at)[i];
}

const GraphWork& GraphRecord::work(uint32_t e, uint32_t replay) const {
  return *At<GraphWork>(this, entry(e)->SectionAt(replay));
}

bool GraphRecord::Ordered() const {
  for (uint32_t e = 0; e < entries; ++e) {
    const uint64_t ended = std::min<uint64_t>(tally(e).replays, replays);
    for (uint32_t r = 0; r < replays; ++r) {
      const GraphWork& of_replay = work(e, r);
      if (of_replay.begun != of_replay.done || (of_replay.done != 0) != (r < ended)) return false;
    }
  }
  return true;
}

bool GraphRecord::AnySampled() const {
  return std::any_of(entry(0), entry(entries), [](const GraphEntry& e) { return e.tag.sampled; });
}

uint64_t GraphRecord::MostReplays() const {
  uint64_t most = 0;
  for (uint32_t e = 0; e < entries; ++e) most = std::max(most, tally(e).replays);
  return most;
}

// ---- capturing ---------------------------------------------------------------------------------

DeviceStatus GraphCalls::NewMemory(CapturedGraph* graph, const std::vector<std::byte>& content,
                                   void** memory, DeviceError* error) {
  const DeviceStatus s = graphs_.Take(graph, content.size(), memory, error);
  if (s != kDeviceOk) return s;
  return table_->write_memory(device_, *memory, content.data(), content.size(), error);
}

DeviceStatus GraphCalls::MakeSlots(DeviceError* error) {
  if (slots_ != nullptr) return kDeviceOk;
  const std::vector<std::byte> zeros(kMaxCaptured *
                                     (sizeof(GraphSlot) + 2 * sizeof(uint64_t) + sizeof(uint32_t)));
  DeviceStatus s = kDeviceOk;
  if (slots_memory_ == nullptr) s = table_->allocate(device_, zeros.size(), &slots_memory_, error);
  if (s == kDeviceOk)
    s = table_->write_memory(device_, slots_memory_, zeros.data(), zeros.size(), error);
  if (s != kDeviceOk) return s;
  slots_ = static_cast<GraphSlot*>(slots_memory_);
  sections_ = reinterpret_cast<uint64_t*>(slots_ + kMaxCaptured);
  reported_ = sections_ + kMaxCaptured;
  arrived_ = reinterpret_cast<uint32_t*>(reported_ + kMaxCaptured);
  return s;
}

template <typename Prepare, typename Launch>
DeviceOutcome GraphCalls::Add(std::unique_ptr<CapturedCall> call, void* stream, void* replays_on,
                              void* site, DeviceError* error, bool* broken, Prepare prepare,
                              Launch launch) {
  const MutexLock lock(capturing_);
  if (named_ && replays_on != replays_on_) {
    return RefuseCapture(
        absl::InvalidArgumentError("replay_stream: expected the one that the device's "
                                   "first captured call was given"),
        error);
  }
  DeviceStatus s = graphs_.Of(stream, &call->graph, error);
  if (s != kDeviceOk) return OutcomeOf(s);
  call->site = site;
  call->place = FreeSlot();
  if (call->place == kMaxCaptured) return DeviceOutcome::kTooManyCaptured;
  void* memory = nullptr;
  s = MakeSlots(error);
  if (s == kDeviceOk) s = prepare(call->graph.get(), &memory);
  if (s != kDeviceOk) return OutcomeOf(s);
  const uint32_t at = call->place;
  s = launch(memory, GraphCall{slots_ + at, sections_ + at, arrived_ + at, reported_ + at});
  *broken = s == kDeviceFailed;
  if (s != kDeviceOk) return OutcomeOf(s);
  Publish(std::move(call), replays_on);
  return DeviceOutcome::kTaken;
}

uint32_t GraphCalls::FreeSlot() {
  const MutexLock lock(calls_mutex_);
  Sweep();
  const auto found = std::find(slot_taken_.begin(), slot_taken_.end(), false);
  return static_cast<uint32_t>(found - slot_taken_.begin());
}

void GraphCalls::Publish(std::unique_ptr<CapturedCall> call, void* replays_on) {
  const MutexLock lock(calls_mutex_);
  call->first = call.get();
  for (const auto& other : calls_) {
    if (other->site != call->site) continue;
    call->first = other->first;
    ++call->number;
  }
  slot_taken_[call->place] = true;
  calls_.push_back(std::move(call));
  if (!named_) replays_on_ = replays_on;  // published together with the first size
  named_ = true;
  size_.store(static_cast<uint32_t>(calls_.size()), std::memory_order_release);
}

// Links the calls of one site, in their order. Calls of an open step keep their links: only later
// calls of their sites change.
void GraphCalls::Link() {
  std::unordered_map<void*, std::pair<CapturedCall*, uint32_t>> of_sites;
  for (const auto& call : calls_) {
    auto& [first, number] = of_sites.try_emplace(call->site, call.get(), 0).first->second;
    if (call->first != first) call->first = first;
    if (call->number != number) call->number = number;
    ++number;
  }
}

void GraphCalls::Sweep() {
  graphs_.Sweep();
  std::erase_if(gone_, [&](const Gone& g) { return ring_->passed(g.mark); });
  bool any = false;
  for (auto& call : calls_) {
    if (call->in_step || !call->graph->gone()) continue;
    slot_taken_[call->place] = false;
    gone_.push_back({std::move(call), ring_->position()});
    any = true;
  }
  if (!any) return;
  std::erase(calls_, nullptr);
  Link();
  size_.store(static_cast<uint32_t>(calls_.size()), std::memory_order_release);
}

void GraphCalls::Free() {
  if (graphs_.Free() && slots_memory_ != nullptr) table_->free_memory(device_, slots_memory_);
}

DeviceOutcome GraphCalls::Capture(const RoutingCall& call, void* stream, void* replays_on,
                                  void* site, DeviceError* error, bool* broken) {
  RoutingPlan plan;
  if (const absl::Status s = PlanRouting(call.input, &plan); !s.ok())
    return RefuseCapture(s, error);
  const uint64_t bytes = table_->workspace_bytes(plan.tokens, plan.rule.experts);
  const auto prepare = [&](CapturedGraph* graph, void** memory) {
    return graphs_.TakeShared(graph, bytes, stream, memory, error);
  };
  const auto launch = [&](void* memory, const GraphCall& device_call) {
    return table_->capture_routing(device_, &plan, memory, bytes, &device_call, stream, error);
  };
  return Add(std::make_unique<CapturedRouting>(call, plan), stream, replays_on, site, error, broken,
             prepare, launch);
}

DeviceOutcome GraphCalls::Capture(const MatmulCall& call, void* stream, void* replays_on,
                                  void* site, DeviceError* error, bool* broken) {
  auto captured = std::make_unique<CapturedProduct>(call);
  const int64_t threads = captured->MostThreads();
  const auto prepare = [](CapturedGraph*, void**) { return kDeviceOk; };
  const auto launch = [&](void*, const GraphCall& device_call) {
    return table_->capture_product(device_, threads, &device_call, stream, error);
  };
  return Add(std::move(captured), stream, replays_on, site, error, broken, prepare, launch);
}

template <typename Captured, typename Call>
DeviceOutcome GraphCalls::AddJob(const Call& call, DeviceGraphBatchCall capture, void* stream,
                                 void* replays_on, void* site, DeviceError* error, bool* broken) {
  auto captured = std::make_unique<Captured>(call);
  BatchShape shape;
  std::vector<std::byte> content;
  if (const absl::Status s = captured->Figures(&shape, &content); !s.ok())
    return RefuseCapture(s, error);
  const auto prepare = [&](CapturedGraph* graph, void** memory) {
    return NewMemory(graph, content, memory, error);
  };
  const auto launch = [&](void* memory, const GraphCall& device_call) {
    return capture(device_, &shape, memory, &device_call, stream, error);
  };
  return Add(std::move(captured), stream, replays_on, site, error, broken, prepare, launch);
}

DeviceOutcome GraphCalls::Capture(const TensorCall& call, void* stream, void* replays_on,
                                  void* site, DeviceError* error, bool* broken) {
  return AddJob<CapturedTensor>(call, table_->capture_tensor, stream, replays_on, site, error,
                                broken);
}

DeviceOutcome GraphCalls::Capture(const UpdateCall& call, void* stream, void* replays_on,
                                  void* site, DeviceError* error, bool* broken) {
  return AddJob<CapturedUpdate>(call, table_->capture_update, stream, replays_on, site, error,
                                broken);
}

// ---- a step ------------------------------------------------------------------------------------

// Queries each site once, even if it has many calls: they are due together.
bool GraphCalls::Query(GraphOwner* owner) {
  const MutexLock lock(calls_mutex_);
  Sweep();
  wanted_.clear();
  requested_ = 0;
  for (const auto& held : calls_) {
    CapturedCall* call = held.get();
    CapturedCall* first = call->first;
    if (first == call) {
      first->wish = owner->Wish(first->site);
      first->of_site = 0;
    }
    ++first->of_site;
    requested_ = std::max(requested_, call->place + 1);
    call->in_step = first->wish.due;
    if (call->in_step) wanted_.push_back({call, 0, 0});
  }
  return !wanted_.empty();
}

void GraphCalls::Close() {
  const MutexLock lock(calls_mutex_);
  for (const auto& call : calls_) call->in_step = false;
}

size_t GraphCalls::RecordBytes(uint32_t replays, bool elements) {
  size_t bytes = PartBytes<GraphRecord>() + AlignedTo64(wanted_.size() * sizeof(GraphEntry)) +
                 AlignedTo64(requested_ * sizeof(GraphSlot)) +
                 AlignedTo64(wanted_.size() * sizeof(GraphCounts));
  for (Wanted& w : wanted_) {
    MeasureOptions later = w.options();
    later.sampled = false;
    w.first_bytes = PartBytes<GraphWork>() + AlignedTo64(w.call->Bytes(w.options(), elements));
    w.later_bytes = PartBytes<GraphWork>() + AlignedTo64(w.call->Bytes(later, false));
    bytes += w.first_bytes + (replays - 1) * w.later_bytes;
  }
  return bytes;
}

GraphRecord* GraphCalls::Put(int64_t step, uint32_t replays, uint32_t expected, bool elements,
                             GraphOwner* owner, std::byte* memory, const std::byte* alias) const {
  const auto count = static_cast<uint32_t>(wanted_.size());
  auto* record = new (memory) GraphRecord{count, replays, 0, 0, requested_};
  const uint64_t entries_at = PartBytes<GraphRecord>();
  record->slots_at = entries_at + AlignedTo64(count * sizeof(GraphEntry));
  record->tallies_at = record->slots_at + AlignedTo64(requested_ * sizeof(GraphSlot));
  uint64_t at = record->tallies_at + AlignedTo64(count * sizeof(GraphCounts));
  const auto on_device = [&](uint64_t place) { return reinterpret_cast<uint64_t>(alias + place); };

  auto* slots = At<GraphSlot>(memory, record->slots_at);
  for (uint32_t i = 0; i < requested_; ++i) new (&slots[i]) GraphSlot;
  const uint64_t order = owner->ReserveOrders(uint64_t{count} * replays);
  for (uint32_t e = 0; e < count; ++e) {
    const Wanted& w = wanted_[e];
    CapturedCall* first = w.call->first;
    if (first == w.call) {
      first->first_number = owner->Reserve(first->site, first->of_site, replays, expected);
    }
    auto* entry = new (At<GraphEntry>(memory, entries_at) + e) GraphEntry;
    entry->call = w.call;
    entry->tag = {w.call->site, step, first->first_number + w.call->number, w.options().sampled,
                  order + e};
    entry->per_replay = first->of_site;
    entry->sections = at;
    entry->first_bytes = w.first_bytes;
    entry->later_bytes = w.later_bytes;
    new (At<GraphCounts>(memory, record->tallies_at) + e) GraphCounts;
    GraphSlot& slot = slots[w.call->place];
    slot.section = on_device(at);
    slot.tally = on_device(record->tallies_at + e * sizeof(GraphCounts));
    slot.left = replays;
    slot.stride = w.first_bytes;
    slot.later_stride = w.later_bytes;
    MeasureOptions options = w.options();
    for (uint32_t r = 0; r < replays; ++r) {
      std::byte* section = memory + entry->SectionAt(r);
      auto* work = new (section) GraphWork;
      w.call->Put(options, elements && r == 0, section + PartBytes<GraphWork>(), work);
      options.sampled = false;
    }
    at += w.first_bytes + (replays - 1) * w.later_bytes;
  }
  return record;
}

}  // namespace plumbline::probes
