// The device ring's functions for calls in CUDA graphs.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <new>
#include <utility>

#include "probes/device/ring.h"

namespace plumbline::probes {

// ---- trainer's threads -------------------------------------------------------------------------

template <typename Call>
DeviceOutcome DeviceRing::Capture(const Call& call, void* stream, void* replays_on, void* site,
                                  DeviceError* error) {
  if (failed()) return Failure(error);
  // Checked now, because an error can be returned here; at a step's begin it would only be counted.
  if (replays_on == kPerThreadStream) {
    std::snprintf(error->text, sizeof(error->text),
                  "replay_stream: expected a stream that is every thread's");
    return DeviceOutcome::kRefused;
  }
  uint64_t id = 0;
  const DeviceOutcome usable = CheckStream(replays_on, &id, error);
  if (usable != DeviceOutcome::kTaken && usable != DeviceOutcome::kCapturing) return usable;
  bool broken = false;
  const DeviceOutcome outcome = graph_.Capture(call, stream, replays_on, site, error, &broken);
  if (broken) Break(Broken::kRefusing, *error);
  return outcome;
}

template DeviceOutcome DeviceRing::Capture(const RoutingCall&, void*, void*, void*, DeviceError*);
template DeviceOutcome DeviceRing::Capture(const MatmulCall&, void*, void*, void*, DeviceError*);
template DeviceOutcome DeviceRing::Capture(const TensorCall&, void*, void*, void*, DeviceError*);
template DeviceOutcome DeviceRing::Capture(const UpdateCall&, void*, void*, void*, DeviceError*);

// Reserves a record for the requested calls, with space for twice the replays that any step has
// shown. If there is no space, tries fewer: that number of replays, then no elements, then fewer
// replays.
std::byte* DeviceRing::ReserveGraph(uint32_t* replays, bool* elements) {
  const uint32_t seen = most_replays_.load(std::memory_order_relaxed);
  const uint32_t shown = std::max(seen, 1u);
  const uint32_t likely = seen == 0 ? kFirstReplays : 2 * std::bit_ceil(shown);
  const auto reserve = [&](uint32_t of_each, bool with) {
    *replays = of_each;
    *elements = with;
    return Reserve(graph_.RecordBytes(of_each, with));
  };
  std::byte* memory = nullptr;
  for (const bool with : {true, false}) {
    for (const uint32_t of_each : {likely, shown}) {
      if (memory == nullptr) memory = reserve(of_each, with);
    }
  }
  for (uint32_t of_each = shown / 2; memory == nullptr && of_each > 0; of_each /= 2) {
    memory = reserve(of_each, false);
  }
  return memory;
}

DeviceOutcome DeviceRing::BeginStep(int64_t step, GraphOwner* owner, DeviceError* error) {
  if (step_open()) EndStep(error);
  if (failed()) return Failure(error);
  if (!graph_.Query(owner)) return DeviceOutcome::kTaken;
  const DeviceOutcome begun = OpenStep(step, owner, error);
  if (!step_open()) graph_.Close();
  return begun;
}

// Gives the requested calls their record and their slots.
DeviceOutcome DeviceRing::OpenStep(int64_t step, GraphOwner* owner, DeviceError* error) {
  void* stream = graph_.replays_on();
  Claim claim;
  bool prepared = false;
  const DeviceOutcome got = Acquire(nullptr, stream, &claim, &prepared, error);
  if (got != DeviceOutcome::kTaken) return got;
  uint32_t replays = 0;
  bool elements = false;
  open_at_.store(ring_.position(), std::memory_order_release);
  std::byte* memory = ReserveGraph(&replays, &elements);
  if (memory == nullptr) {
    open_at_.store(kNothingOpen, std::memory_order_release);
    return DeviceOutcome::kRingFull;
  }
  Record* record = Begin(memory, Kind::kGraph, {nullptr, step, 0, false, 0}, &claim, stream);
  std::byte* body = Body(record);
  const GraphRecord& put =
      *graph_.Put(step, replays, std::max(most_replays_.load(std::memory_order_relaxed), 1u),
                  elements, owner, body, Alias(body));
  const auto* slots = reinterpret_cast<const GraphSlot*>(Alias(body + put.slots_at));
  const DeviceStatus opened =
      table_->set_slots(device_, graph_.slots(), slots, put.slots, stream, error);
  if (opened != kDeviceOk) {
    // It is unknown whether the slots are open, so the memory to which they point is never used
    // again.
    Break(Broken::kGone, *error);
    Seal(record, opened, stream, error);
    open_at_.store(kNothingOpen, std::memory_order_release);
    return DeviceOutcome::kFailed;
  }
  const bool rows_left_out = !elements && put.AnySampled();
  open_on_ = stream;
  // from here on, the thread that ends the step owns it
  open_.store(record, std::memory_order_release);
  return rows_left_out ? DeviceOutcome::kTakenWithoutRows : DeviceOutcome::kTaken;
}

DeviceOutcome DeviceRing::EndStep(DeviceError* error) {
  Record* record = open_.exchange(nullptr, std::memory_order_acq_rel);
  if (record == nullptr) return DeviceOutcome::kTaken;
  const auto* graph = std::launder(reinterpret_cast<const GraphRecord*>(Body(record)));
  uint64_t id = 0;
  DeviceStatus closed = table_->stream_id(device_, open_on_, &id, error);
  if (closed == kDeviceOk) {
    closed = table_->set_slots(device_, graph_.slots(), nullptr, graph->slots, open_on_, error);
  } else if (closed == kDeviceCapturing) {
    std::snprintf(error->text, sizeof(error->text),
                  "the stream on which graphs are replayed was being captured at the step's end");
    closed = kDeviceFailed;
  } else if (closed == kDeviceOtherContext) {
    std::snprintf(
        error->text, sizeof(error->text),
        "the stream on which graphs are replayed is of another context at the step's end");
    closed = kDeviceFailed;
  }
  bool taken = false;
  if (closed == kDeviceOk) {
    taken = Seal(record, closed, open_on_, error);
  } else {
    Break(Broken::kGone, *error);  // later replays may still write there
    record->launched = false;
    ring_.Commit(reinterpret_cast<std::byte*>(record));
  }
  graph_.Close();
  open_at_.store(kNothingOpen, std::memory_order_release);
  return taken ? DeviceOutcome::kTaken : DeviceOutcome::kFailed;
}

// ---- the drain thread --------------------------------------------------------------------------

bool DeviceRing::ShowReplay(const Record& record, bool measured, DeviceItem* item) {
  const std::byte* body = reinterpret_cast<const std::byte*>(&record) + PartBytes<Record>();
  const auto& graph = *std::launder(reinterpret_cast<const GraphRecord*>(body));
  if (!at_.begun && measured) {
    if (!graph.Ordered()) {
      DeviceError error;
      std::snprintf(
          error.text, sizeof(error.text),
          "a graph was replayed concurrently with its step or with itself: on a stream that did "
          "not wait for the one given when it was captured, or that one for it");
      Break(Broken::kGone, error);
    }
    const auto most = static_cast<uint32_t>(std::min<uint64_t>(graph.MostReplays(), kMaxReplays));
    if (most > most_replays_.load(std::memory_order_relaxed)) {
      most_replays_.store(most, std::memory_order_relaxed);
    }
  }
  at_.begun = true;
  measured = measured && broken_.load(std::memory_order_acquire) != Broken::kGone;
  for (; at_.entry < graph.entries; ++at_.entry, at_.replay = 0) {
    const GraphEntry& entry = *graph.entry(at_.entry);
    item->tag = entry.tag;
    if (!measured) {  // once per entry, at any progress
      if (std::exchange(at_.reported, !at_.reported)) continue;
      Unmeasured(item);
      return true;
    }
    const uint64_t ended = graph.tally(at_.entry).replays;
    const uint64_t kept = std::min<uint64_t>(ended, graph.replays);
    item->tag.call += at_.replay * entry.per_replay;
    item->tag.order += uint64_t{at_.replay} * graph.entries;
    item->tag.sampled = entry.tag.sampled && at_.replay == 0;
    if (at_.replay < kept) {
      const GraphWork& work = graph.work(at_.entry, at_.replay);
      item->gpu_ns = work.ended_ns > work.began_ns ? work.ended_ns - work.began_ns : 1;
      entry.call->Show(body + entry.SectionAt(at_.replay) + PartBytes<GraphWork>(), item);
      return true;
    }
    if (at_.replay == kept && ended > kept) {
      item->measured = false;
      item->unkept = ended - kept;
      return true;
    }
  }
  return false;
}

}  // namespace plumbline::probes
