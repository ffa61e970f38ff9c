// The device ring's functions for each kind of call, on the trainer's threads.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"
#include "kernels/sample/batch.h"
#include "probes/device/ring.h"

namespace plumbline::probes {
namespace {

DeviceOutcome Refuse(const absl::Status& why, DeviceError* error) {
  std::snprintf(error->text, sizeof(error->text), "%s", std::string(why.message()).c_str());
  return DeviceOutcome::kRefused;
}

}  // namespace

// ---- router calls ------------------------------------------------------------------------------

DeviceOutcome DeviceRing::Observe(const RoutingCall& call, void* stream, const DeviceTag& tag,
                                  bool* prepared, DeviceError* error) {
  *prepared = false;
  if (failed()) return Failure(error);
  RoutingPlan plan;
  if (const absl::Status s = PlanRouting(call.input, &plan); !s.ok()) return Refuse(s, error);
  if (plan.tokens > kMaxDeviceTokens) {
    return Refuse(
        absl::InvalidArgumentError("scores: expected at most 4194304 rows on a device, found more"),
        error);
  }
  Claim claim;
  const DeviceOutcome got = Acquire(WidthFor(plan.rule.experts), stream, &claim, prepared, error);
  if (got != DeviceOutcome::kTaken) return got;
  return Enqueue(call, plan, stream, tag, &claim, error);
}

DeviceOutcome DeviceRing::Enqueue(const RoutingCall& call, const RoutingPlan& plan, void* stream,
                                  const DeviceTag& tag, Claim* claim, DeviceError* error) {
  const bool wanted = tag.sampled && SampleBytes(call) <= limits_.sample_max_bytes;
  std::byte* memory = wanted ? Reserve(PartBytes<RoutingSlot>() + SlotBytes(call)) : nullptr;
  const SlotRows rows = memory != nullptr ? SlotRows::kToFollow : SlotRows::kLeftOut;
  if (memory == nullptr) memory = Reserve(PartBytes<RoutingSlot>() + SlotHeadBytes(call));
  if (memory == nullptr) return DeviceOutcome::kRingFull;

  Record* record = Begin(memory, Kind::kRouting, tag, claim, stream);
  auto* slot = new (Body(record)) RoutingSlot;
  slot->plan = plan;
  const SlotOffsets offsets = StoreRoutingHead(call, rows, Body(record) + PartBytes<RoutingSlot>());
  const DeviceStatus launched = Launch(call, offsets, slot, *claim, stream, error);
  if (!Seal(record, launched, stream, error)) return DeviceOutcome::kFailed;
  return wanted && rows == SlotRows::kLeftOut ? DeviceOutcome::kTakenWithoutRows
                                              : DeviceOutcome::kTaken;
}

DeviceStatus DeviceRing::Launch(const RoutingCall& call, const SlotOffsets& offsets,
                                RoutingSlot* slot, const Claim& claim, void* stream,
                                DeviceError* error) {
  auto* raw = reinterpret_cast<RoutingRaw*>(Alias(reinterpret_cast<std::byte*>(&slot->raw)));
  DeviceStatus s = table_->measure(device_, &slot->plan, claim.workspace->memory,
                                   claim.workspace_bytes, raw, stream, error);
  const std::byte* rows = reinterpret_cast<std::byte*>(slot) + PartBytes<RoutingSlot>();
  const auto tensors = Tensors(call.input);
  for (size_t i = 0; s == kDeviceOk && i < kRoutingTensors; ++i) {
    if (offsets[i] == 0) continue;
    s = table_->copy(device_, tensors[i], Alias(rows + offsets[i]), stream, error);
  }
  return s;
}

// ---- products ----------------------------------------------------------------------------------

DeviceOutcome DeviceRing::Observe(const MatmulCall& call, const ProductPlan& plan, void* stream,
                                  const DeviceTag& tag, DeviceError* error) {
  if (failed()) return Failure(error);
  Claim claim;
  bool prepared = false;
  const DeviceOutcome got = Acquire(nullptr, stream, &claim, &prepared, error);
  if (got != DeviceOutcome::kTaken) return got;
  std::byte* memory = Reserve(PartBytes<ProductSlot>() + plan.bytes);
  if (memory == nullptr) return DeviceOutcome::kRingFull;
  Record* record = Begin(memory, Kind::kProduct, tag, &claim, stream);
  std::byte* gathered = PutProduct(call, plan, Body(record));
  const DeviceStatus launched =
      table_->gather_product(device_, &plan, Alias(gathered), stream, error);
  return Seal(record, launched, stream, error) ? DeviceOutcome::kTaken : DeviceOutcome::kFailed;
}

// ---- calls that are measured on the host -------------------------------------------------------

namespace {

// Returns the elements of all tensors as one batch: its items are the tensors, then the indices
// once for each of them.
BatchShape BatchOf(const CarriedCall& call) {
  BatchShape shape;
  const auto n = static_cast<int64_t>(call.indices.size());
  for (const CarriedGather& gather : call.gathers) {
    shape.device = gather.from.device;
    ++shape.items;
    shape.work += n;
    shape.item_bytes += sizeof(GatherItem) + call.indices.size_bytes();
    shape.result_bytes += GatherBytes(gather.from.dtype, n);
  }
  return shape;
}

// The body, the data of each gather, and their batch, from the body's begin.
struct CarriedLayout {
  uint64_t pieces_at, batch_at, bytes;

  CarriedLayout(const CarriedCall& call, const BatchShape& batch)
      : pieces_at(AlignedTo64(call.bytes)), batch_at(pieces_at), bytes(call.bytes) {
    if (batch.items == 0) return;
    batch_at = AlignedTo64(pieces_at + call.gathers.size() * 3 * sizeof(uint64_t));
    bytes = batch_at + batch.bytes();
  }
};

}  // namespace

DeviceOutcome DeviceRing::Observe(const CarriedCall& call, void* stream, const DeviceTag& tag,
                                  bool* prepared, DeviceError* error) {
  *prepared = false;
  if (failed()) return Failure(error);
  const BatchShape batch = BatchOf(call);
  const CarriedLayout layout(call, batch);
  if (call.indices.size() > kMaxSamples)
    return Refuse(absl::InvalidArgumentError("expected at most 4096 elements of a tensor"), error);
  Claim claim;
  const DeviceOutcome got = Acquire(nullptr, stream, &claim, prepared, error);
  if (got != DeviceOutcome::kTaken) return got;
  std::byte* memory = Reserve(layout.bytes);
  if (memory == nullptr) return DeviceOutcome::kRingFull;
  Record* record = Begin(memory, Kind::kCarried, tag, &claim, stream);
  record->pieces_at = layout.pieces_at;
  call.store(call.call, Body(record));
  const DeviceStatus launched = Launch(call, batch, record, layout.batch_at, stream, error);
  return Seal(record, launched, stream, error) ? DeviceOutcome::kTaken : DeviceOutcome::kFailed;
}

DeviceStatus DeviceRing::Launch(const CarriedCall& call, const BatchShape& batch, Record* record,
                                uint64_t batch_at, void* stream, DeviceError* error) {
  std::byte* body = Body(record);
  for (const CarriedCopy& copy : call.copies) {
    const DeviceStatus s = table_->copy(device_, &copy.from, Alias(body + copy.to), stream, error);
    if (s != kDeviceOk) return s;
  }
  if (batch.items == 0) return kDeviceOk;

  static_assert(sizeof(CarriedPiece) == 3 * sizeof(uint64_t));
  std::byte* const staging = body + batch_at;
  auto* pieces = reinterpret_cast<CarriedPiece*>(body + record->pieces_at);
  std::byte* indices = staging + call.gathers.size() * sizeof(GatherItem);
  int64_t span = 0;
  uint64_t result = 0;
  for (const CarriedGather& gather : call.gathers) {
    GatherItem item = PlanItem(gather.from, static_cast<int64_t>(call.indices.size()));
    item.first_span = span;
    item.result = result;
    std::memcpy(staging + record->gathered * sizeof(item), &item, sizeof(item));
    if (!call.indices.empty()) std::memcpy(indices, call.indices.data(), call.indices.size_bytes());
    new (pieces + record->gathered++)
        CarriedPiece{batch_at + batch.results_at() + result, gather.to,
                     call.indices.size() * DTypeSize(gather.from.dtype)};
    indices += call.indices.size_bytes();
    span += item.samples;
    result += GatherBytes(gather.from.dtype, item.samples);
  }
  const BatchMemory memory{staging, Alias(staging)};
  return table_->gather(device_, &batch, &memory, nullptr, stream, error);
}

// ---- tensors and updates -----------------------------------------------------------------------

template <>
DeviceBatchCall DeviceRing::CallOf<TensorJob>() const {
  return table_->measure_tensors;
}
template <>
DeviceBatchCall DeviceRing::CallOf<UpdateJob>() const {
  return table_->check_updates;
}

DeviceOutcome DeviceRing::Observe(const TensorCall& call, const MeasureOptions& options,
                                  void* stream, const DeviceTag& tag, bool* prepared,
                                  DeviceError* error) {
  return ObserveCall<TensorJob>(call, options, stream, tag, prepared, error);
}

DeviceOutcome DeviceRing::Observe(const UpdateCall& call, const MeasureOptions& options,
                                  void* stream, const DeviceTag& tag, bool* prepared,
                                  DeviceError* error) {
  return ObserveCall<UpdateJob>(call, options, stream, tag, prepared, error);
}

template <typename Job, typename Call>
DeviceOutcome DeviceRing::ObserveCall(const Call& call, const MeasureOptions& options, void* stream,
                                      const DeviceTag& tag, bool* prepared, DeviceError* error) {
  *prepared = false;
  if (failed()) return Failure(error);
  Job job;
  if (const absl::Status s = PlanJob(call, options, &job); !s.ok()) return Refuse(s, error);
  return ObserveJob(job, stream, tag, prepared, error);
}

template <typename Job>
DeviceOutcome DeviceRing::ObserveJob(const Job& planned, void* stream, const DeviceTag& tag,
                                     bool* prepared, DeviceError* error) {
  Claim claim;
  const DeviceOutcome got = Acquire(WidthOfJobs(), stream, &claim, prepared, error);
  if (got != DeviceOutcome::kTaken) return got;

  Job job = planned;
  std::byte* memory = Reserve(JobBytes(job));
  if (memory == nullptr && job.ElementBytes() > 0) {
    LeaveOut(&job);
    memory = Reserve(JobBytes(job));
  }
  if (memory == nullptr) return DeviceOutcome::kRingFull;
  constexpr Kind kKind = std::is_same_v<Job, TensorJob> ? Kind::kTensor : Kind::kUpdate;
  Record* record = Begin(memory, kKind, tag, &claim, stream);
  const Job& put = *PutJob(job, Body(record));
  const DeviceStatus launched = Launch(put, CallOf<Job>(), claim, stream, error);
  if (!Seal(record, launched, stream, error)) return DeviceOutcome::kFailed;
  return job.left_out ? DeviceOutcome::kTakenWithoutRows : DeviceOutcome::kTaken;
}

template <typename Call, typename Job>
DeviceOutcome DeviceRing::Plan(const Call& call, const MeasureOptions& options, void* stream,
                               bool* prepared, Job* job, DeviceError* error) {
  *prepared = false;
  if (failed()) return Failure(error);
  if (const absl::Status s = PlanJob(call, options, job); !s.ok()) return Refuse(s, error);
  uint64_t id = 0;
  const DeviceOutcome usable = CheckStream(stream, &id, error);
  Width* width = WidthOfJobs();
  if (usable != DeviceOutcome::kTaken || width->state.load(std::memory_order_acquire) == kReady)
    return usable;
  const DeviceOutcome got = Prepare(width, error);
  *prepared = got == DeviceOutcome::kTaken;
  return got;
}

template DeviceOutcome DeviceRing::ObserveJob(const TensorJob&, void*, const DeviceTag&, bool*,
                                              DeviceError*);
template DeviceOutcome DeviceRing::ObserveJob(const UpdateJob&, void*, const DeviceTag&, bool*,
                                              DeviceError*);
template DeviceOutcome DeviceRing::Plan(const TensorCall&, const MeasureOptions&, void*, bool*,
                                        TensorJob*, DeviceError*);
template DeviceOutcome DeviceRing::Plan(const UpdateCall&, const MeasureOptions&, void*, bool*,
                                        UpdateJob*, DeviceError*);

// One launch, which also copies the trainer's elements.
DeviceStatus DeviceRing::Launch(const DeviceJob& job, DeviceBatchCall figures, const Claim& claim,
                                void* stream, DeviceError* error) {
  const BatchMemory memory{job.figures_at, Alias(job.figures_at), claim.workspace->memory,
                           claim.workspace_bytes};
  if (job.elements_at == nullptr)
    return figures(device_, &job.figures, &memory, nullptr, stream, error);
  SampledPart sampled;
  QueryElements(job, Alias(job.elements_at), &sampled);
  return figures(device_, &job.figures, &memory, &sampled, stream, error);
}

}  // namespace plumbline::probes
