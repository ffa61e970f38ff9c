// What the device ring does with each kind of call, on the trainer's threads.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <string_view>

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

constexpr uint64_t AlignedTo(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

// One tensor's elements: a batch of its own, whose items are the tensor and its indices.
BatchShape BatchOf(const CarriedGather& gather, size_t indices) {
  BatchShape shape;
  shape.device = gather.from.device;
  shape.items = 1;
  shape.work = static_cast<int64_t>(indices);
  shape.item_bytes = sizeof(GatherItem) + indices * sizeof(uint64_t);
  shape.result_bytes = GatherBytes(gather.from.dtype, shape.work);
  return shape;
}

// The body, what is to be said of each gather, and their batches: from the body's begin.
struct CarriedLayout {
  uint64_t pieces_at, batches_at, bytes;

  explicit CarriedLayout(const CarriedCall& call)
      : pieces_at(AlignedTo(call.bytes, 64)), batches_at(pieces_at), bytes(call.bytes) {
    if (call.gathers.empty()) return;
    batches_at = AlignedTo(pieces_at + call.gathers.size() * 3 * sizeof(uint64_t), 64);
    bytes = batches_at;
    for (const CarriedGather& gather : call.gathers)
      bytes += AlignedTo(BatchOf(gather, call.indices.size()).bytes(), 64);
  }
};

}  // namespace

DeviceOutcome DeviceRing::Observe(const CarriedCall& call, void* stream, const DeviceTag& tag,
                                  bool* prepared, DeviceError* error) {
  *prepared = false;
  if (failed()) return Failure(error);
  const CarriedLayout layout(call);
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
  const DeviceStatus launched = Launch(call, record, stream, error);
  return Seal(record, launched, stream, error) ? DeviceOutcome::kTaken : DeviceOutcome::kFailed;
}

DeviceStatus DeviceRing::Launch(const CarriedCall& call, Record* record, void* stream,
                                DeviceError* error) {
  std::byte* body = Body(record);
  DeviceStatus launched = kDeviceOk;
  for (const CarriedCopy& copy : call.copies) {
    if (launched == kDeviceOk)
      launched = table_->copy(device_, &copy.from, Alias(body + copy.to), stream, error);
  }
  uint64_t at = CarriedLayout(call).batches_at;
  static_assert(sizeof(CarriedPiece) == 3 * sizeof(uint64_t));
  for (const CarriedGather& gather : call.gathers) {
    if (launched != kDeviceOk) break;
    auto* piece =
        new (body + record->pieces_at + record->gathered++ * sizeof(CarriedPiece)) CarriedPiece{};
    launched = Gather(gather, call.indices, piece, body, at, stream, error);
    at += AlignedTo(BatchOf(gather, call.indices.size()).bytes(), 64);
  }
  return launched;
}

// The batch lies `staging` bytes from the body's begin.
DeviceStatus DeviceRing::Gather(const CarriedGather& gather, std::span<const uint64_t> indices,
                                CarriedPiece* piece, std::byte* body, uint64_t staging,
                                void* stream, DeviceError* error) {
  const BatchShape shape = BatchOf(gather, indices.size());
  const GatherItem item = PlanItem(gather.from, shape.work);
  std::memcpy(body + staging, &item, sizeof(item));
  std::memcpy(body + staging + sizeof(item), indices.data(), indices.size_bytes());
  *piece = {staging + shape.results_at(), gather.to, indices.size() * DTypeSize(gather.from.dtype)};
  const BatchMemory memory{body + staging, Alias(body + staging)};
  return table_->gather(device_, &shape, &memory, nullptr, stream, error);
}

// ---- tensors and updates -----------------------------------------------------------------------

DeviceOutcome DeviceRing::Observe(const TensorCall& call, const MeasureOptions& options,
                                  void* stream, const DeviceTag& tag, bool* prepared,
                                  DeviceError* error) {
  return ObserveJob<TensorJob>(call, options, Kind::kTensor, stream, tag, prepared, error);
}

DeviceOutcome DeviceRing::Observe(const UpdateCall& call, const MeasureOptions& options,
                                  void* stream, const DeviceTag& tag, bool* prepared,
                                  DeviceError* error) {
  return ObserveJob<UpdateJob>(call, options, Kind::kUpdate, stream, tag, prepared, error);
}

template <typename Job, typename Call>
DeviceOutcome DeviceRing::ObserveJob(const Call& call, const MeasureOptions& options, Kind kind,
                                     void* stream, const DeviceTag& tag, bool* prepared,
                                     DeviceError* error) {
  *prepared = false;
  if (failed()) return Failure(error);
  Job job;
  if (const absl::Status s = PlanJob(call, options, &job); !s.ok()) return Refuse(s, error);
  Claim claim;
  const DeviceOutcome got = Acquire(WidthOfJobs(), stream, &claim, prepared, error);
  if (got != DeviceOutcome::kTaken) return got;

  std::byte* memory = Reserve(JobBytes(job));
  if (memory == nullptr && job.ElementBytes() > 0) {
    LeaveOut(&job);
    memory = Reserve(JobBytes(job));
  }
  if (memory == nullptr) return DeviceOutcome::kRingFull;
  Record* record = Begin(memory, kind, tag, &claim, stream);
  const Job& put = *PutJob(job, Body(record));
  const DeviceBatchCall figures =
      kind == Kind::kTensor ? table_->measure_tensors : table_->check_updates;
  const DeviceStatus launched = Launch(put, figures, claim, stream, error);
  if (!Seal(record, launched, stream, error)) return DeviceOutcome::kFailed;
  return job.left_out ? DeviceOutcome::kTakenWithoutRows : DeviceOutcome::kTaken;
}

// One launch: it takes the trainer's elements with it.
DeviceStatus DeviceRing::Launch(const DeviceJob& job, DeviceBatchCall figures, const Claim& claim,
                                void* stream, DeviceError* error) {
  const BatchMemory memory{job.figures_at, Alias(job.figures_at), claim.workspace->memory,
                           claim.workspace_bytes};
  if (job.elements_at == nullptr)
    return figures(device_, &job.figures, &memory, nullptr, stream, error);
  SampledPart sampled;
  AskElements(job, Alias(job.elements_at), &sampled);
  return figures(device_, &job.figures, &memory, &sampled, stream, error);
}

}  // namespace plumbline::probes
