// Observations of tensors, reductions, updates, products and logits, on the trainer's threads.
#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "agent/core/calls/dlpack.h"
#include "agent/core/calls/text.h"
#include "agent/core/run/run.h"
#include "agent/core/shared/error.h"
#include "base/clock.h"
#include "probes/logit_probe.h"
#include "probes/matmul_probe.h"
#include "probes/reduction_probe.h"
#include "probes/tensor_probe.h"
#include "probes/update_probe.h"

namespace plumbline::agent {
namespace {

struct NamedTensor {
  const DLTensor* given;
  const char* name;
  TensorView* view;
};

absl::Status ViewsOf(std::initializer_list<NamedTensor> tensors) {
  for (const NamedTensor& t : tensors) {
    if (absl::Status s = ViewOf(t.given, t.name, t.view); !s.ok()) return s;
  }
  return absl::OkStatus();
}

// ---- from the C structs to a probe's call, which views the caller's tensors --------------------
absl::Status CallOf(const plumbline_tensor_t& given, probes::TensorCall* call) {
  call->role = TextOf(given.role);
  call->replicas = TextOf(given.replicas);
  call->target_format = given.target_format;
  return ViewOf(given.values, "values", &call->values);
}

absl::Status CallOf(const plumbline_reduction_t& given, probes::ReductionCall* call) {
  probes::ReductionCall::Fields& f = call->fields;
  f.sequence = given.sequence;
  f.count = given.count;
  f.chunk = given.chunk;
  f.prescale = given.prescale;
  f.postscale = given.postscale;
  f.op = given.op;
  f.wire_dtype = given.wire_dtype;
  f.group_size = given.group_size;
  f.group_rank = given.group_rank;
  f.channels = given.channels;
  f.root = given.root;
  f.sequence_known = given.sequence_known != 0;
  f.variable_count = given.variable_count != 0;
  call->group = TextOf(given.group);
  call->algorithm = TextOf(given.algorithm);
  call->transport = TextOf(given.transport);
  if (given.ring_order != nullptr && given.ring_size != 0) {
    call->ring_order = TensorView::Dense(given.ring_order, DType::kU32, given.ring_size);
  }
  return ViewsOf({{given.input, "input", &call->input},
                  {given.output, "output", &call->output},
                  {given.offsets, "offsets", &call->offsets}});
}

absl::Status CallOf(const plumbline_update_t& given, probes::UpdateCall* call) {
  call->optimizer = TextOf(given.optimizer);
  call->fields = {given.lr, given.beta2, given.eps, given.decay, given.count, given.eps_dtype};
  UpdateInput& in = call->input;
  return ViewsOf({{given.before, "before", &in.before},
                  {given.after, "after", &in.after},
                  {given.intended, "intended", &in.intended},
                  {given.gradient, "gradient", &in.gradient},
                  {given.moment_before, "moment_before", &in.moment_before},
                  {given.moment_after, "moment_after", &in.moment_after},
                  {given.offsets, "offsets", &call->offsets}});
}

// Finds the text's index in a list of known texts; absent: 0.
absl::Status PlaceOf(const char* name, const char* text, std::span<const std::string_view> known,
                     int32_t* place) {
  const auto found = std::find(known.begin(), known.end(), TextOf(text));
  *place = static_cast<int32_t>(found - known.begin());
  if (found != known.end()) return absl::OkStatus();
  std::string words;
  for (const std::string_view word : known.subspan(1)) words += std::string(word) + ", ";
  return absl::InvalidArgumentError(std::string(name) + ": expected " + words +
                                    "or nothing, found \"" + text + "\"");
}

absl::Status CallOf(const plumbline_matmul_t& given, probes::MatmulCall* call) {
  probes::MatmulCall::Fields& f = call->fields;
  f.declared = given.declared_accumulator;
  f.scale = given.scale;
  absl::Status s =
      PlaceOf("scale_format", given.scale_format, probes::kScaleFormats, &f.scale_format);
  if (s.ok())
    s = PlaceOf("output_rounding", given.output_rounding, probes::kOutputRoundings,
                &f.output_rounding);
  if (!s.ok()) return s;
  call->input_format = TextOf(given.input_format);
  call->library = TextOf(given.library);
  ProductInput& in = call->input;
  // The check of the call refuses numbers that are impossible for a matrix.
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  in.block = static_cast<int64_t>(std::min(given.block, kMost));
  in.a_tile = given.a_tile;
  in.b_tile = given.b_tile;
  return ViewsOf({{given.a, "a", &in.a},
                  {given.b, "b", &in.b},
                  {given.d, "d", &in.d},
                  {given.c, "c", &in.c},
                  {given.a_scale, "a_scale", &in.a_scale},
                  {given.b_scale, "b_scale", &in.b_scale}});
}

absl::Status CallOf(const plumbline_logits_t& given, probes::LogitsCall* call) {
  call->fields.mode = given.mode;
  call->fields.temperature = given.temperature;
  LogitInput& in = call->input;
  return ViewsOf({{given.train, "train", &in.train},
                  {given.rollout, "rollout", &in.rollout},
                  {given.tokens, "tokens", &in.tokens},
                  {given.allowed, "allowed", &in.allowed}});
}

probes::MeasureOptions OptionsOf(const RunState& state, const SlotHead& head) {
  return state.OptionsOf(*head.site, head.step, head.sampled);
}

}  // namespace

// ---- where a call is measured ----------------------------------------------------------------

// Copies a small call into the ring: the drain thread measures it.
template <typename Call>
plumbline_status_t Run::StoreInRing(const SlotHead& head, const Call& call) {
  std::byte* record = Reserve(probes::SlotBytes(call), ByteRing::Keep::kLeave);
  if (record == nullptr) {
    state_->CountLoss(LossCause::kRingFull, head.site, head.step);
    return PLUMBLINE_DROPPED;
  }
  std::memcpy(record, &head, sizeof(head));
  probes::StoreCall(call, record + sizeof(head));
  state_->ring.Commit(record);
  return PLUMBLINE_OK;
}

// Keeps a host call: a small tensor is copied and measured later; a large one is measured at once
// on the caller's thread, and only its evidence is kept.
template <typename Call>
plumbline_status_t Run::KeepCall(SlotHead head, const Call& call, absl::Status* why) {
  if (head.step == kCaptureStep) return PLUMBLINE_NOT_DUE;  // no replay would read the tensor again
  const uint64_t bytes = probes::SlotBytes(call);
  const uint64_t most = state_->ring.max_record() - sizeof(SlotHead);
  if (bytes <= std::min(probes::kCopyBytes, most)) return StoreInRing(head, call);
  v1::Evidence evidence;
  *why = probes::Measure(call, OptionsOf(*state_, head), &evidence);
  if (!why->ok()) return PLUMBLINE_INVALID_ARGUMENT;
  const std::string body = evidence.SerializeAsString();
  head.kind = SlotKind::kEvidence;
  head.bytes = body.size();
  return Put(head, body.data(), body.size());
}

// Passes the call to its device; the drain thread fetches the results.
template <typename Call>
plumbline_status_t Run::KeepOnDevice(const char* name, const SlotHead& head, const Call& call,
                                     int device, void* stream, bool* prepared,
                                     plumbline_error_t* error) {
  probes::DeviceReply reply;
  if (head.step == kCaptureStep) {
    Capture(head, call, device, stream, &reply);
  } else {
    const probes::MeasureOptions options = OptionsOf(*state_, head);
    const bool waits =
        together_->mine() && together_->Observe(call, options, stream, TagOf(head), &reply);
    if (!waits) state_->devices->Observe(call, options, stream, TagOf(head), &reply);
  }
  *prepared = reply.prepared;
  return Taken(name, head, reply, device, error);
}

// If no kernel measures the tensors, copies them off the device, in the caller's stream; the drain
// thread measures the copies like host tensors.
template <typename Call>
plumbline_status_t Run::CarryFromDevice(const char* name, const SlotHead& head, const Call& call,
                                        std::span<const probes::CarriedCopy> copies, int device,
                                        void* stream, bool* prepared, plumbline_error_t* error,
                                        std::span<const probes::CarriedGather> gathers,
                                        std::span<const uint64_t> indices) {
  const auto store = [](const void* what, std::byte* body) {
    probes::StoreCall(*static_cast<const Call*>(what), body);
  };
  const probes::CarriedCall carried{
      probes::SlotBytes(call), copies, gathers, indices, store, &call};
  if (carried.bytes > state_->options.sample_max_bytes) {
    state_->CountLoss(LossCause::kHostOnly, head.site, head.step);
    return PLUMBLINE_DROPPED;
  }
  probes::DeviceReply reply;
  state_->devices->Observe(carried, device, stream, TagOf(head), &reply);
  *prepared = reply.prepared;
  return Taken(name, head, reply, device, error);
}

template plumbline_status_t Run::CarryFromDevice(const char*, const SlotHead&,
                                                 const probes::CarriedLogprobs&,
                                                 std::span<const probes::CarriedCopy>, int, void*,
                                                 bool*, plumbline_error_t*,
                                                 std::span<const probes::CarriedGather>,
                                                 std::span<const uint64_t>);

// Common part of all kinds: counts drops and refusals, and charges the time to the site.
template <typename Body>
plumbline_status_t Run::ObserveOne(const char* name, Site* site, int64_t step,
                                   plumbline_error_t* error, Body body) {
  const uint64_t begin = MonotonicNs();
  const SlotHead head = HeadOf(SlotKind::kCall, site, step);
  absl::Status why;
  bool prepared = false;  // a device was prepared: the time is not the site's usual cost
  plumbline_status_t status = body(head, &why, &prepared);
  if (absl::IsUnavailable(why) && step == kCaptureStep) {
    status = PLUMBLINE_NOT_DUE;
  } else if (absl::IsUnavailable(why)) {
    state_->CountLoss(LossCause::kHostOnly, site, step);
    status = PLUMBLINE_DROPPED;
  } else if (!why.ok()) {
    state_->CountLoss(LossCause::kInvalid, site, step);
    status = Fail(error, PLUMBLINE_INVALID_ARGUMENT,
                  std::string(name) + " \"" + site->layer + "\": " + std::string(why.message()));
  }
  if (!prepared) state_->governor.Charge(site->cost.Clip(MonotonicNs() - begin));
  return status;
}

// ---- one function per kind: checks, notes the bytes, draws the sample, keeps the call --------

plumbline_status_t Run::ObserveTensor(Site* site, int64_t step, const plumbline_tensor_t& tensor,
                                      plumbline_error_t* error) {
  constexpr const char* kName = "observe_tensor";
  return ObserveOne(
      kName, site, step, error,
      [&](const SlotHead& head, absl::Status* why, bool* prepared) -> plumbline_status_t {
        probes::TensorCall call;
        *why = CallOf(tensor, &call);
        if (why->ok()) *why = probes::CheckCall(call);
        if (!why->ok()) return PLUMBLINE_INVALID_ARGUMENT;
        NoteBytes(head, call);
        if (call.values.on_host()) return KeepCall(head, call, why);
        // Kernels measure floats; integers are copied to the host.
        const int device = call.values.device;
        if (IsFloating(call.values.dtype))
          return KeepOnDevice(kName, head, call, device, tensor.cuda_stream, prepared, error);
        if (step == kCaptureStep) return PLUMBLINE_NOT_DUE;
        std::vector<probes::CarriedCopy> copies;
        if (!probes::Carry(call, &copies)) {
          *why = absl::UnavailableError(
              "the values are on a device from which the agent cannot copy them");
          return PLUMBLINE_DROPPED;
        }
        return CarryFromDevice(kName, head, call, copies, device, tensor.cuda_stream, prepared,
                               error);
      });
}

plumbline_status_t Run::ObserveReduction(Site* site, int64_t step,
                                         const plumbline_reduction_t& reduction,
                                         plumbline_error_t* error) {
  constexpr const char* kName = "observe_reduction";
  thread_local probes::ReductionScratch scratch;  // keeps its memory from call to call
  return ObserveOne(
      kName, site, step, error,
      [&](const SlotHead& head, absl::Status* why, bool* prepared) -> plumbline_status_t {
        probes::ReductionCall call;
        *why = CallOf(reduction, &call);
        if (why->ok()) *why = probes::CheckCall(call);
        if (!why->ok()) return PLUMBLINE_INVALID_ARGUMENT;
        probes::Complete(&call);
        NoteBytes(head, call);
        const TensorView input = call.input;
        if (!input.present() || input.on_host()) {
          *why = probes::Sample(OptionsOf(*state_, head), &scratch, &call);
          return why->ok() ? KeepCall(head, call, why) : PLUMBLINE_INVALID_ARGUMENT;
        }
        // On a device only the sampled elements are read, and none in other steps.
        if (step == kCaptureStep) return PLUMBLINE_NOT_DUE;
        probes::ReductionCarry carry;
        *why = probes::Carry(OptionsOf(*state_, head), &scratch, &call, &carry);
        if (!why->ok()) return PLUMBLINE_INVALID_ARGUMENT;
        if (carry.empty()) return KeepCall(head, call, why);
        return CarryFromDevice(kName, head, call, carry.copies, input.device, reduction.cuda_stream,
                               prepared, error, carry.gathers, scratch.offsets);
      });
}

plumbline_status_t Run::ObserveUpdate(Site* site, int64_t step, const plumbline_update_t& update,
                                      plumbline_error_t* error) {
  constexpr const char* kName = "observe_update";
  return ObserveOne(
      kName, site, step, error,
      [&](const SlotHead& head, absl::Status* why, bool* prepared) -> plumbline_status_t {
        probes::UpdateCall call;
        *why = CallOf(update, &call);
        if (why->ok()) *why = probes::CheckCall(call);
        if (!why->ok()) return PLUMBLINE_INVALID_ARGUMENT;
        NoteBytes(head, call);
        const TensorView& before = call.input.before;
        if (before.on_host()) return KeepCall(head, call, why);
        if (!call.offsets.present())
          return KeepOnDevice(kName, head, call, before.device, update.cuda_stream, prepared,
                              error);
        // Passed elements are copied to the host.
        if (step == kCaptureStep) return PLUMBLINE_NOT_DUE;
        std::vector<probes::CarriedCopy> copies;
        *why = probes::Carry(call, OptionsOf(*state_, head), &copies);
        if (!why->ok()) return PLUMBLINE_INVALID_ARGUMENT;
        if (copies.empty()) return KeepCall(head, call, why);
        return CarryFromDevice(kName, head, call, copies, before.device, update.cuda_stream,
                               prepared, error);
      });
}

plumbline_status_t Run::ObserveMatmul(Site* site, int64_t step, const plumbline_matmul_t& matmul,
                                      plumbline_error_t* error) {
  thread_local std::vector<std::byte> memory;  // kept from call to call
  return ObserveOne(
      "observe_matmul", site, step, error,
      [&](const SlotHead& head, absl::Status* why, bool* prepared) -> plumbline_status_t {
        probes::MatmulCall call;
        *why = CallOf(matmul, &call);
        if (why->ok()) *why = probes::CheckCall(call);
        if (!why->ok()) return PLUMBLINE_INVALID_ARGUMENT;
        probes::Complete(&call);
        NoteBytes(head, call);
        const probes::MeasureOptions options = OptionsOf(*state_, head);
        // On a device only the sampled elements are computed, and none in other steps.
        if (!call.input.a.on_host() && step == kCaptureStep)
          return KeepOnDevice(head, call, ProductPlan{}, matmul.cuda_stream, prepared, error);
        if (!call.input.a.on_host() && head.sampled) {
          const ProductPlan plan = probes::PlanSample(call, options);
          if (plan.elements > 0)
            return KeepOnDevice(head, call, plan, matmul.cuda_stream, prepared, error);
        }
        probes::Sample(options, &memory, &call);
        return KeepCall(head, call, why);
      });
}

plumbline_status_t Run::ObserveLogits(Site* site, int64_t step, const plumbline_logits_t& logits,
                                      plumbline_error_t* error) {
  constexpr const char* kName = "observe_logits";
  thread_local probes::LogitScratch scratch;  // keeps its memory from call to call
  return ObserveOne(
      kName, site, step, error,
      [&](const SlotHead& head, absl::Status* why, bool* prepared) -> plumbline_status_t {
        probes::LogitsCall call;
        *why = CallOf(logits, &call);
        if (why->ok()) *why = probes::CheckCall(call);
        if (!why->ok()) return PLUMBLINE_INVALID_ARGUMENT;
        NoteBytes(head, call);
        const TensorView train = call.input.train;
        if (!train.on_host()) {
          if (step == kCaptureStep) return PLUMBLINE_NOT_DUE;
          std::vector<probes::CarriedCopy> copies;
          probes::Carry(OptionsOf(*state_, head), &scratch, &call, &copies);
          if (copies.empty()) return KeepCall(head, call, why);
          return CarryFromDevice(kName, head, call, copies, train.device, logits.cuda_stream,
                                 prepared, error);
        }
        probes::Sample(OptionsOf(*state_, head), &scratch, &call);
        return KeepCall(head, call, why);
      });
}

}  // namespace plumbline::agent
