// What the device ring does with each kind of call, on the trainer's threads.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <string_view>

#include "absl/status/status.h"
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

DeviceOutcome DeviceRing::Observe(const CarriedCall& call, void* stream, const DeviceTag& tag,
                                  DeviceError* error) {
  if (failed()) return Failure(error);
  Claim claim;
  bool prepared = false;
  const DeviceOutcome got = Acquire(nullptr, stream, &claim, &prepared, error);
  if (got != DeviceOutcome::kTaken) return got;
  std::byte* memory = Reserve(call.bytes);
  if (memory == nullptr) return DeviceOutcome::kRingFull;
  Record* record = Begin(memory, Kind::kCarried, tag, &claim, stream);
  std::byte* body = Body(record);
  call.store(call.call, body);
  DeviceStatus launched = kDeviceOk;
  for (const CarriedCopy& copy : call.copies) {
    if (launched == kDeviceOk)
      launched = table_->copy(device_, &copy.from, Alias(body + copy.to), stream, error);
  }
  return Seal(record, launched, stream, error) ? DeviceOutcome::kTaken : DeviceOutcome::kFailed;
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

// One after the other on the stream, so that both may use the same workspace.
DeviceStatus DeviceRing::Launch(const DeviceJob& job, DeviceBatchCall figures, const Claim& claim,
                                void* stream, DeviceError* error) {
  void* workspace = claim.workspace->memory;
  const DeviceStatus s = figures(device_, &job.figures, Alias(job.figures_at), workspace,
                                 claim.workspace_bytes, stream, error);
  if (s != kDeviceOk || job.elements_at == nullptr) return s;
  if (job.row.present()) {
    return table_->copy(device_, &job.row, Alias(job.elements_at), stream, error);
  }
  return table_->gather(device_, &job.gather, Alias(job.elements_at), workspace,
                        claim.workspace_bytes, stream, error);
}

}  // namespace plumbline::probes
