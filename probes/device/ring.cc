#include "probes/device/ring.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <new>
#include <tuple>

namespace plumbline::probes {
namespace {

constexpr uint64_t kLeastRing = 64 << 10;
constexpr int kWidths[] = {64, 128, 256, kMaxExperts};
constexpr uint64_t kNoStream = ~uint64_t{0};

void Report(DeviceError* error, const char* text) {
  std::snprintf(error->text, sizeof(error->text), "%s", text);
}

// Allocates pages itself, not through the runtime: they outlive the device's context, so the drain
// thread never reads memory that was freed at the end of the process. DONTFORK: after a fork the
// parent's next write to such a page would go to a copy that the device does not know.
std::byte* MapPages(uint64_t bytes) {
  void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return nullptr;
  madvise(pages, bytes, MADV_DONTFORK);
  return static_cast<std::byte*>(pages);
}

}  // namespace

DeviceRing::Claim::~Claim() {
  if (workspace != nullptr) workspace->held.store(false, std::memory_order_release);
  if (!committed && events != nullptr) events->Give(event);
}

// ---- opening and freeing -----------------------------------------------------------------------

std::unique_ptr<DeviceRing> DeviceRing::Open(const DeviceTable* table, int ordinal,
                                             const DeviceLimits& limits, DeviceError* error,
                                             bool* later) {
  // Returns true on success; sets *later if a capture prevented it.
  const auto done = [later](DeviceStatus status) {
    if (later != nullptr) *later = status == kDeviceCapturing;
    return status == kDeviceOk;
  };
  const uint64_t bytes = std::bit_ceil(std::max(limits.ring_bytes, kLeastRing));
  void* device = nullptr;
  if (!done(table->open(ordinal, &device, error))) return nullptr;
  std::byte* pages = MapPages(bytes);
  void* alias = nullptr;
  if (pages == nullptr || !done(table->pin(device, pages, bytes, &alias, error))) {
    if (pages == nullptr) {
      Report(error, "no memory for the ring");
    } else {
      munmap(pages, bytes);
    }
    table->close(device);
    return nullptr;
  }
  std::unique_ptr<DeviceRing> ring(
      new DeviceRing(table, device, limits, pages, bytes, static_cast<std::byte*>(alias)));
  for (uint32_t i = 0; i < limits.events; ++i) {
    void* event = nullptr;
    if (!done(table->make_event(device, &event, error))) return nullptr;
    ring->events_.at(i) = event;
  }
  for (uint32_t i = 0; i < limits.timers; ++i) {
    if (!done(table->make_timer(device, &ring->timers_.at(i), error))) return nullptr;
  }
  return ring;
}

DeviceRing::DeviceRing(const DeviceTable* table, void* device, const DeviceLimits& limits,
                       std::byte* pages, uint64_t bytes, std::byte* alias)
    : table_(table),
      device_(device),
      limits_(limits),
      pages_(pages),
      bytes_(bytes),
      alias_(alias),
      ring_(pages, bytes),
      events_(limits.events),
      timers_(limits.timers),
      graph_(table, device, &ring_) {
  static_assert(std::size(kWidths) + 1 == std::tuple_size_v<decltype(widths_)>);
  for (size_t i = 0; i < std::size(kWidths); ++i) {
    widths_[i].experts = kWidths[i];
    widths_[i].bytes = table->workspace_bytes(kMaxDeviceTokens, kWidths[i]);
  }
  WidthOfJobs()->bytes = kJobWorkspace;
}

DeviceRing::~DeviceRing() {
  // Work in progress would still be written, and after a fault its state is unknown.
  if (!empty() || broken_.load() == Broken::kGone) return;
  for (uint32_t i = 0; i < limits_.events; ++i) {
    if (events_.at(i) != nullptr) table_->destroy_event(device_, events_.at(i));
  }
  for (uint32_t i = 0; i < limits_.timers; ++i) {
    if (timers_.at(i) != nullptr) table_->destroy_timer(device_, timers_.at(i));
  }
  for (Width& width : widths_) {
    for (Workspace& w : width.workspaces) {
      if (w.memory != nullptr) table_->free_memory(device_, w.memory);
    }
  }
  graph_.Free();
  table_->unpin(device_, pages_);
  munmap(pages_, bytes_);
  table_->close(device_);
}

// ---- trainer's threads: what all calls share ---------------------------------------------------

DeviceOutcome DeviceRing::Acquire(Width* width, void* stream, Claim* claim, bool* prepared,
                                  DeviceError* error) {
  uint64_t stream_id = 0;
  const DeviceOutcome usable = CheckStream(stream, &stream_id, error);
  if (usable != DeviceOutcome::kTaken) return usable;
  if (width != nullptr) {
    if (width->state.load(std::memory_order_acquire) != kReady) {
      const DeviceOutcome outcome = Prepare(width, error);
      if (outcome != DeviceOutcome::kTaken) return outcome;
      *prepared = true;
    }
    claim->workspace = Hold(width, stream_id);
    claim->workspace_bytes = width->bytes;
    if (claim->workspace == nullptr) return DeviceOutcome::kTooManyStreams;
  }
  if (!events_.Take(&claim->event)) return DeviceOutcome::kRingFull;
  claim->events = &events_;
  return DeviceOutcome::kTaken;
}

DeviceOutcome DeviceRing::CheckStream(void* stream, uint64_t* id, DeviceError* error) {
  switch (table_->stream_id(device_, stream, id, error)) {
    case kDeviceOk:
      return DeviceOutcome::kTaken;
    case kDeviceCapturing:
      return DeviceOutcome::kCapturing;
    case kDeviceOtherContext:
      return DeviceOutcome::kOtherContext;
    case kDeviceRefused:
      return DeviceOutcome::kRefused;
    default:
      Break(Broken::kRefusing, *error);
      return DeviceOutcome::kFailed;
  }
}

// The GPU's time is measured for sampled calls: they are few, and the most expensive.
DeviceRing::Record* DeviceRing::Begin(std::byte* memory, Kind kind, const DeviceTag& tag,
                                      Claim* claim, void* stream) {
  auto* record = new (memory) Record{tag, kind, false, claim->event, claim->workspace};
  if (claim->workspace != nullptr) {
    claim->workspace->in_flight.fetch_add(1, std::memory_order_relaxed);
  }
  claim->committed = true;
  if (!tag.sampled || !timers_.Take(&record->timer)) {
    record->timer = kNoTimer;
    return record;
  }
  DeviceError ignored;  // the next call reports the same error
  record->timed =
      table_->mark_timer(device_, timers_.at(record->timer), 0, stream, &ignored) == kDeviceOk;
  return record;
}

// Passes the record to the drain thread; returns false if it will not be measured.
bool DeviceRing::Seal(Record* record, DeviceStatus launched, void* stream, DeviceError* error) {
  if (launched != kDeviceOk) Break(Broken::kRefusing, *error);
  record->launched = launched == kDeviceOk;
  if (record->timed) {
    DeviceError ignored;
    record->timed =
        table_->mark_timer(device_, timers_.at(record->timer), 1, stream, &ignored) == kDeviceOk;
  }
  // The event follows a failed launch too: part of it may be in progress, and the record is free
  // only after that.
  DeviceError late;
  const DeviceStatus marked =
      table_->record_event(device_, events_.at(record->event), stream, &late);
  if (marked != kDeviceOk) {
    record->launched = false;
    Break(Broken::kGone, late);
    if (launched == kDeviceOk) *error = late;
  }
  const bool taken = record->launched;
  ring_.Commit(reinterpret_cast<std::byte*>(record));  // owned by the drain thread from here on
  return taken;
}

DeviceRing::Width* DeviceRing::WidthFor(int experts) {
  return std::find_if(widths_.begin(), widths_.end() - 2,
                      [&](const Width& w) { return experts <= w.experts; });
}

// The first call of a width, or of all jobs, pays for its memory, as the first call of all pays for
// loading the agent. If the drain thread prepared the memory, those calls would be lost.
DeviceOutcome DeviceRing::Prepare(Width* width, DeviceError* error) {
  int seen = kAbsent;
  if (!width->state.compare_exchange_strong(seen, kUnderWay, std::memory_order_acquire)) {
    if (seen == kReady) return DeviceOutcome::kTaken;
    if (seen == kUnderWay) return DeviceOutcome::kStarting;
    *error = width->error;
    return DeviceOutcome::kFailed;
  }
  bool any = false;
  for (Workspace& w : width->workspaces) {
    w.stream.store(kNoStream, std::memory_order_relaxed);
    void* memory = nullptr;
    const DeviceStatus s = table_->allocate(device_, width->bytes, &memory, error);
    if (s == kDeviceCapturing && !any) {  // try again later
      width->state.store(kAbsent, std::memory_order_release);
      return DeviceOutcome::kCapturing;
    }
    if (s == kDeviceOk) {
      w.memory = memory;
      any = true;
    } else {
      w.in_flight.store(1, std::memory_order_relaxed);  // never free: there are fewer workspaces
    }
  }
  if (!any) width->error = *error;
  width->state.store(any ? kReady : kUnusable, std::memory_order_release);
  return any ? DeviceOutcome::kTaken : DeviceOutcome::kFailed;
}

// Returns the stream's workspace, or an unused one, held. Does not wait for another thread that
// launches on the same stream: that thread has the stream's workspace, and this call gets another.
DeviceRing::Workspace* DeviceRing::Hold(Width* width, uint64_t stream) {
  const auto hold = [&](Workspace& w, auto fits) {
    if (!fits(w) || w.held.exchange(true, std::memory_order_acquire)) return false;
    if (fits(w)) return true;
    w.held.store(false, std::memory_order_release);
    return false;
  };
  for (Workspace& w : width->workspaces) {
    if (hold(w, [&](Workspace& x) { return x.stream.load(std::memory_order_relaxed) == stream; })) {
      return &w;
    }
  }
  for (Workspace& w : width->workspaces) {
    // The acquire orders the next stream's kernels after the work that the drain thread saw
    // finished.
    if (hold(w, [](Workspace& x) { return x.in_flight.load(std::memory_order_acquire) == 0; })) {
      w.stream.store(stream, std::memory_order_relaxed);
      return &w;
    }
  }
  return nullptr;
}

void DeviceRing::Break(Broken how, const DeviceError& error) {
  Broken seen = Broken::kNo;
  if (broken_.compare_exchange_strong(seen, Broken::kBeingReported, std::memory_order_acq_rel)) {
    failure_ = error;
    broken_.store(how, std::memory_order_release);
  } else if (how == Broken::kGone) {
    while (seen == Broken::kBeingReported) seen = broken_.load(std::memory_order_acquire);
    broken_.store(Broken::kGone, std::memory_order_release);
  }
}

DeviceOutcome DeviceRing::Failure(DeviceError* error) const {
  if (broken_.load(std::memory_order_acquire) == Broken::kBeingReported) {
    Report(error, "the device has just failed");
  } else {
    *error = failure_;
  }
  return DeviceOutcome::kFailed;
}

// ---- the drain thread --------------------------------------------------------------------------

DeviceRing::Record* DeviceRing::FrontRecord() {
  const std::byte* memory = ring_.Front();  // in our own pages
  return memory == nullptr ? nullptr
                           : std::launder(reinterpret_cast<Record*>(pages_ + (memory - pages_)));
}

void DeviceRing::Show(Record* record, DeviceItem* item) {
  std::byte* body = Body(record);
  switch (record->kind) {
    case Kind::kRouting: {
      const auto* slot = std::launder(reinterpret_cast<const RoutingSlot*>(body));
      item->call = LoadRoutingCall(body + PartBytes<RoutingSlot>());
      item->plan = &slot->plan;
      item->raw = &slot->raw;
      break;
    }
    case Kind::kProduct:
      item->product = &std::launder(reinterpret_cast<const ProductSlot*>(body))->call;
      break;
    case Kind::kTensor:
      item->tensor = std::launder(reinterpret_cast<const TensorJob*>(body));
      break;
    case Kind::kUpdate:
      item->update = std::launder(reinterpret_cast<const UpdateJob*>(body));
      break;
    case Kind::kCarried: {
      // Gathered parts are after the body and must be moved into it.
      const auto* pieces =
          std::launder(reinterpret_cast<const CarriedPiece*>(body + record->pieces_at));
      for (uint32_t i = 0; i < record->gathered; ++i)
        std::memcpy(body + pieces[i].to, body + pieces[i].from, pieces[i].bytes);
      item->carried = body;
      break;
    }
    case Kind::kGraph:
    case Kind::kTensors:
    case Kind::kUpdates:
      break;
  }
}

bool DeviceRing::Front(DeviceItem* item) {
  for (Record* record = FrontRecord(); record != nullptr; PopRecord(), record = FrontRecord()) {
    const DeviceStatus passed = Passed(*record);
    if (passed == kDeviceNotYet) return false;
    if (!record->launched) continue;  // Observe has reported it
    *item = DeviceItem{};
    item->tag = record->tag;
    item->measured = passed == kDeviceOk;
    if (IsOfMany(record->kind)) {
      if (!ShowNext(*record, item->measured, item)) continue;
    } else if (item->measured) {
      Show(record, item);
      item->gpu_ns = GpuTime(*record);
    } else {
      Unmeasured(item);
    }
    return true;
  }
  return false;
}

uint64_t DeviceRing::GpuTime(const Record& record) {
  DeviceError ignored;
  uint64_t ns = 0;
  const bool known = record.timed && table_->read_timer(device_, timers_.at(record.timer), &ns,
                                                        &ignored) == kDeviceOk;
  return known ? ns : 0;
}

void DeviceRing::Unmeasured(DeviceItem* item) const {
  item->measured = false;
  item->abandoned = abandoned_.load(std::memory_order_acquire);
  Failure(&item->why);
}

DeviceStatus DeviceRing::Passed(const Record& record) {
  if (broken_.load(std::memory_order_acquire) == Broken::kGone) return kDeviceFailed;
  DeviceError error;
  const DeviceStatus passed = table_->event_passed(device_, events_.at(record.event), &error);
  if (passed < 0) Break(Broken::kGone, error);
  return passed;
}

void DeviceRing::Pop() {
  if (at_.begun) {
    ++at_.replay;
  } else {
    PopRecord();
  }
}

void DeviceRing::PopRecord() {
  const Record* record = FrontRecord();
  at_ = {};
  if (record->workspace != nullptr)
    record->workspace->in_flight.fetch_sub(1, std::memory_order_release);
  events_.Give(record->event);
  if (record->timer != kNoTimer) timers_.Give(record->timer);
  ring_.Pop();
}

void DeviceRing::Abandon(const char* why) {
  abandoned_.store(true, std::memory_order_release);
  DeviceError error;
  Report(&error, why);
  Break(Broken::kGone, error);
}

}  // namespace plumbline::probes
