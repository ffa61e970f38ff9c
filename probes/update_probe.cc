#include "probes/update_probe.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/load.h"
#include "kernels/evidence/tensor.h"
#include "kernels/evidence/update.h"
#include "probes/calls/call_slot.h"
#include "probes/calls/tensor_checks.h"

namespace plumbline::probes {
namespace {

constexpr std::array<const char*, kUpdateTensors> kNames = {
    "before", "after", "intended", "gradient", "moment_before", "moment_after"};

using Views = std::array<TensorView, kUpdateTensors>;

struct UpdateParts {
  explicit UpdateParts(const UpdateCall& call) : texts{call.optimizer} {
    const Views views = Tensors(call.input);
    std::copy(views.begin(), views.end(), tensors.begin());
    tensors.back() = call.offsets;
    all = {std::as_bytes(std::span(&call.fields, 1)), texts, tensors};
  }
  std::array<std::string_view, 1> texts;
  std::array<TensorView, kUpdateTensors + 1> tensors;
  CallParts all;
};

absl::Status CheckOffsets(const UpdateCall& call) {
  const TensorView& offsets = call.offsets;
  absl::Status s = CheckTensor("offsets", offsets, Content::kInteger, Place::kAny);
  if (s.ok() && !offsets.on_host())
    s = CheckSamePlace("offsets", offsets, "before", call.input.before.device);
  if (!s.ok()) return s;
  if (offsets.rank != 1 || offsets.shape[0] < 1 || offsets.shape[0] > kMaxSamples) {
    return Expected("offsets", offsets, "[m] with m from 1 to " + std::to_string(kMaxSamples));
  }
  if (!SameShape(call.input.before, offsets)) {
    return Expected("before", call.input.before, "the shape of offsets, " + Describe(offsets));
  }
  return absl::OkStatus();
}

absl::Status CheckRange(const UpdateCall& call) {
  const bool is_signed = call.offsets.dtype < DType::kU64;
  const auto count = static_cast<double>(call.fields.count);
  for (int64_t i = 0; i < call.offsets.shape[0]; ++i) {
    const double at = LoadDouble(call.offsets.data, call.offsets.dtype, i * call.offsets.stride[0]);
    if ((is_signed && at < 0) || (count != 0 && at >= count)) {
      return absl::InvalidArgumentError(
          "offsets: expected indices from 0 to below count, " + std::to_string(call.fields.count) +
          ", found " + std::to_string(static_cast<int64_t>(at)) + " at " + std::to_string(i));
    }
  }
  return absl::OkStatus();
}

void FillConfig(const UpdateCall& call, v1::UpdateConfig* out) {
  const UpdateCall::Fields& f = call.fields;
  out->set_optimizer(std::string(call.optimizer));
  out->set_lr(f.lr);
  out->set_beta2(f.beta2);
  out->set_eps(f.eps);
  out->set_decay(f.decay);
  out->set_eps_dtype(static_cast<v1::DType>(f.eps_dtype));
  out->set_dtype(static_cast<v1::DType>(call.input.before.dtype));
  const TensorView& moment =
      call.input.moment_after.present() ? call.input.moment_after : call.input.moment_before;
  if (moment.present()) out->set_moment_dtype(static_cast<v1::DType>(moment.dtype));
}

// Fills the elements that the caller passed.
absl::Status FillHanded(const UpdateCall& call, v1::UpdateSample* out) {
  if (absl::Status s = PackTensor(call.offsets, out->mutable_offsets()); !s.ok()) return s;
  v1::Tensor* (v1::UpdateSample::*const slots[kUpdateTensors])() = {
      &v1::UpdateSample::mutable_before,        &v1::UpdateSample::mutable_after,
      &v1::UpdateSample::mutable_intended,      &v1::UpdateSample::mutable_gradient,
      &v1::UpdateSample::mutable_moment_before, &v1::UpdateSample::mutable_moment_after};
  const Views views = Tensors(call.input);
  for (size_t i = 0; i < kUpdateTensors; ++i) {
    if (!views[i].present()) continue;
    // Separate from the call: otherwise g++ 12's bounds sanitizer loses the index.
    const auto slot = slots[i];
    if (absl::Status s = PackTensor(views[i], (out->*slot)()); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status MeasureHanded(const UpdateCall& call, const MeasureOptions& options,
                           v1::Evidence* out) {
  if (absl::Status s = CheckRange(call); !s.ok()) return s;
  out->set_sample_size(Elements(call.input.before));
  if (!options.sampled) return absl::OkStatus();
  return FillHanded(call, out->mutable_update()->mutable_sample());
}

void ReportWhetherExercised(v1::Evidence* out) {
  out->set_exercised(out->update().summary().intended() > 0 ? v1::EXERCISED_YES : v1::EXERCISED_NO);
}

absl::Status MeasureWhole(const UpdateCall& call, const MeasureOptions& options,
                          v1::Evidence* out) {
  UpdateOptions update;
  update.with_sample = options.sampled;
  update.key = options.key;
  update.max_samples = kUpdateSamples;
  out->set_sample_size(Elements(call.input.before));
  if (absl::Status s = FillUpdate(call.input, update, out->mutable_update()); !s.ok()) return s;
  ReportWhetherExercised(out);
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckCall(const UpdateCall& call) {
  const Views views = Tensors(call.input);
  for (size_t i = 0; i < kUpdateTensors; ++i) {
    if (!views[i].present()) {
      if (i >= kUpdateRequired) continue;
      return absl::InvalidArgumentError(std::string(kNames[i]) + ": required, absent");
    }
    absl::Status s = CheckTensor(kNames[i], views[i], Content::kFloating, Place::kAny);
    if (s.ok()) s = CheckSamePlace(kNames[i], views[i], "before", views[0].device);
    if (!s.ok()) return s;
    if (!SameShape(views[i], views[0])) {
      return Expected(kNames[i], views[i], "the shape of before, " + Describe(views[0]));
    }
  }
  if (views[1].dtype != views[0].dtype) {
    return Expected("after", views[1], std::string("before's type, ") + DTypeName(views[0].dtype));
  }
  if (absl::Status s = CheckText("optimizer", call.optimizer); !s.ok()) return s;
  if (absl::Status s = CheckDeclared("eps_dtype", call.fields.eps_dtype); !s.ok()) return s;
  if (call.offsets.present()) return CheckOffsets(call);
  const uint64_t count = call.fields.count;
  if (count == 0 || count == Elements(views[0])) return absl::OkStatus();
  return Expected("before", views[0], std::to_string(count) + " elements (count), or offsets");
}

absl::Status Carry(const UpdateCall& call, const MeasureOptions& options,
                   std::vector<CarriedCopy>* copies) {
  if (call.offsets.on_host()) {
    if (absl::Status s = CheckRange(call); !s.ok()) return s;
  }
  const UpdateParts parts(call);
  if (options.sampled) {
    CarryTensors(parts.all, copies);  // of one axis
  } else if (!call.offsets.on_host()) {
    copies->push_back({call.offsets, PlaceInSlot(parts.all, kUpdateTensors)});
  }
  return absl::OkStatus();
}

uint64_t SampleBytes(const UpdateCall& call) {
  const uint64_t most = call.offsets.present() ? kMaxSamples : kUpdateSamples;
  uint64_t size = 8;  // an offset
  for (const TensorView& v : Tensors(call.input)) size += DTypeSize(v.dtype);
  return std::min(Elements(call.input.before), most) * size;
}

uint64_t SummaryBytes(const UpdateCall& call) {
  constexpr uint64_t kConfig = 80;
  constexpr uint64_t kSummary = 100;
  return (call.offsets.present() ? kConfig : kConfig + kSummary) + call.optimizer.size();
}

size_t SlotBytes(const UpdateCall& call) { return CallBytes(UpdateParts(call).all); }

void StoreCall(const UpdateCall& call, std::byte* slot) { StoreCall(UpdateParts(call).all, slot); }

UpdateCall LoadUpdateCall(const std::byte* slot) {
  CallReader reader(slot);
  UpdateCall call;
  call.fields = reader.fields<UpdateCall::Fields>();
  call.optimizer = reader.NextText();
  UpdateInput& in = call.input;
  for (TensorView* view : {&in.before, &in.after, &in.intended, &in.gradient, &in.moment_before,
                           &in.moment_after, &call.offsets}) {
    *view = reader.NextTensor();
  }
  return call;
}

absl::Status Measure(const UpdateCall& call, const MeasureOptions& options, v1::Evidence* out) {
  absl::Status measured =
      call.offsets.present() ? MeasureHanded(call, options, out) : MeasureWhole(call, options, out);
  if (measured.ok()) FillConfig(call, out->mutable_update()->mutable_config());
  return measured;
}

absl::Status Measure(const UpdateJob& job, v1::Evidence* out) {
  v1::Update* update = out->mutable_update();
  out->set_sample_size(Elements(job.call.input.before));
  FillUpdateFigures(job.call.input, FinishItem(job.item, job.results()), update);
  ReportWhetherExercised(out);
  FillConfig(job.call, update->mutable_config());
  if (job.left_out) update->set_no_sample_reason(NoRoom(SampleBytes(job.call)));
  if (!job.sampled || job.left_out) return absl::OkStatus();
  return FillUpdateSample(ElementsOf(job), job.sample, update);
}

}  // namespace plumbline::probes
