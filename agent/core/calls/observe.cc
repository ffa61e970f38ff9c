// Run's observations of tensors: from DLTensors to a record of the ring that the drain thread
// reads.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "agent/core/calls/dlpack.h"
#include "agent/core/calls/text.h"
#include "agent/core/run/run.h"
#include "agent/core/shared/error.h"
#include "base/clock.h"
#include "probes/routing_probe.h"

namespace plumbline::agent {
namespace {

// Fills views of the caller's tensors; copies nothing. Numbers are cut to the range of the call's
// fields; CheckRoutingCall decides whether they are valid.
absl::Status CallOf(const plumbline_routing_t& r, probes::RoutingCall* call) {
  const DLTensor* given[probes::kRoutingTensors] = {
      r.scores,      r.expert_bias, r.topk_indices, r.keep_mask, r.routing_map, r.probs,
      r.sequence_id, r.position,    r.padding_mask, r.pool_id,   r.region};
  const auto views = probes::Tensors(call->input);
  for (size_t i = 0; i < probes::kRoutingTensors; ++i) {
    if (absl::Status s = ViewOf(given[i], probes::TensorName(i), views[i]); !s.ok()) return s;
  }
  constexpr uint32_t kMost = 1u << 30;  // anything above is out of range anyway
  call->input.scores_are_logits = r.scores_are_logits != 0;
  call->input.top_k = static_cast<int>(std::min(r.top_k, kMost));
  call->input.score_function = static_cast<ScoreFunction>(std::clamp(r.score_function, -1, 255));
  call->input.group_score = static_cast<GroupScore>(std::clamp(r.group_score, -1, 255));
  call->input.groups = static_cast<int>(std::min(r.groups, kMost));
  call->input.top_groups = static_cast<int>(std::min(r.top_groups, kMost));
  call->capacity_kind = r.capacity_kind;
  call->capacity = r.capacity;
  call->pool = r.pool;
  call->flatten = r.flatten;
  call->bias_captured = r.bias_captured;
  call->capacity_source = r.capacity_source;
  call->policy = TextOf(r.policy);
  call->randomness = TextOf(r.randomness);
  call->mode = TextOf(r.mode);
  return absl::OkStatus();
}

}  // namespace

plumbline_status_t Run::ObserveRouting(Site* site, int64_t step, const plumbline_routing_t& routing,
                                       plumbline_error_t* error) {
  const uint64_t begin = MonotonicNs();
  bool prepared = false;
  const plumbline_status_t status = Observe(site, step, routing, &prepared, error);
  // Preparing a device happens once: its time is not the site's usual cost.
  if (!prepared && !site->reports_loads())
    state_->governor.Charge(site->cost.Clip(MonotonicNs() - begin));
  return status;
}

// Host tensors go to the ring (Keep); device tensors are measured on their device (KeepOnDevice).
plumbline_status_t Run::Observe(Site* site, int64_t step, const plumbline_routing_t& routing,
                                bool* prepared, plumbline_error_t* error) {
  const SlotHead head = HeadOf(SlotKind::kCall, site, step);
  probes::RoutingCall call;
  absl::Status fine = CallOf(routing, &call);
  if (fine.ok()) fine = probes::CheckRoutingCall(call);
  if (!fine.ok()) return Invalid("observe_routing", head, std::string(fine.message()), error);
  if (!site->reports_loads()) NoteBytes(head, call);
  if (call.input.scores.on_host()) return Keep(head, call, error);
  return KeepOnDevice(head, call, routing.cuda_stream, prepared, error);
}

// Returns the head of a record of the ring: site, step, call, and whether the call is sampled.
SlotHead Run::HeadOf(SlotKind kind, Site* site, int64_t step) {
  SlotHead head;
  head.kind = kind;
  head.site = site;
  head.step = step;
  if (step == kCaptureStep)
    return head;  // the replays of the graph get the numbers and the
                  // sampling
  head.call = site->NextCall(step);
  head.order = state_->NextOrder(step);
  head.sampled = !site->reports_loads() && state_->SampleDue(*site, step);
  return head;
}

plumbline_status_t Run::Invalid(const char* name, const SlotHead& head, const std::string& why,
                                plumbline_error_t* error) {
  state_->CountLoss(LossCause::kInvalid, head.site, head.step);
  return Fail(error, PLUMBLINE_INVALID_ARGUMENT,
              std::string(name) + " \"" + head.site->layer + "\": " + why);
}

// Copies the call into the ring, where the drain thread measures it. A full ring drops it, counted:
// the trainer never waits.
plumbline_status_t Run::Keep(const SlotHead& head, const probes::RoutingCall& call,
                             plumbline_error_t* error) {
  if (head.step == kCaptureStep) return PLUMBLINE_NOT_DUE;  // no replay would read the tensor again
  const size_t bytes = probes::SlotBytes(call);
  if (sizeof(SlotHead) + bytes > state_->ring.max_record()) return KeepMeasured(head, call, error);
  std::byte* record = Reserve(bytes, ByteRing::Keep::kLeave);
  if (record == nullptr) {
    state_->CountLoss(LossCause::kRingFull, head.site, head.step);
    return PLUMBLINE_DROPPED;
  }
  std::memcpy(record, &head, sizeof(head));
  probes::StoreRoutingCall(call, record + sizeof(head));
  state_->ring.Commit(record);
  return PLUMBLINE_OK;
}

// Handles a call that is too large for the ring: measures it on the caller's thread, without its
// raw rows.
plumbline_status_t Run::KeepMeasured(const SlotHead& raw, const probes::RoutingCall& call,
                                     plumbline_error_t* error) {
  SlotHead head = raw;
  const uint64_t most = std::min(state_->options.sample_max_bytes, state_->ring.max_record() / 2);
  v1::Routing routing;
  const absl::Status measured = probes::MeasureRouting(call, head.sampled, most, &routing);
  if (!measured.ok())
    return Invalid("observe_routing", head, std::string(measured.message()), error);
  const std::string body = routing.SerializeAsString();
  head.kind = SlotKind::kRoutingMessage;
  head.bytes = body.size();
  head.rows = static_cast<uint64_t>(call.input.scores.shape[0]);
  return Put(head, body.data(), body.size());
}

// Passes the call to its device; the drain thread fetches finished results.
plumbline_status_t Run::KeepOnDevice(const SlotHead& head, const probes::RoutingCall& call,
                                     void* stream, bool* prepared, plumbline_error_t* error) {
  probes::DeviceReply reply;
  if (head.step == kCaptureStep) {
    Capture(head, call, call.input.scores.device, stream, &reply);
  } else {
    state_->devices->Observe(call, stream, TagOf(head), &reply);
  }
  *prepared = reply.prepared;
  return Taken("observe_routing", head, reply, call.input.scores.device, error);
}

plumbline_status_t Run::KeepOnDevice(const SlotHead& head, const probes::MatmulCall& call,
                                     const ProductPlan& plan, void* stream, bool* prepared,
                                     plumbline_error_t* error) {
  probes::DeviceReply reply;
  if (head.step == kCaptureStep) {
    Capture(head, call, call.input.a.device, stream, &reply);
  } else {
    state_->devices->Observe(call, plan, stream, TagOf(head), &reply);
  }
  *prepared = reply.prepared;
  return Taken("observe_matmul", head, reply, call.input.a.device, error);
}

// Handles a device's outcome of a call: counts losses, reports faults.
plumbline_status_t Run::Taken(const char* name, const SlotHead& head,
                              const probes::DeviceReply& reply, int device,
                              plumbline_error_t* error) {
  if (reply.crowded && !state_->rung.load(std::memory_order_relaxed)) state_->Ring();
  if (reply.outcome == probes::DeviceOutcome::kTaken) return PLUMBLINE_OK;
  if (reply.outcome == probes::DeviceOutcome::kRefused) {
    return Invalid(name, head, reply.error.text, error);
  }
  state_->CountLoss(LossOf(reply.outcome), head.site, head.step);
  if (reply.outcome == probes::DeviceOutcome::kTakenWithoutRows) return PLUMBLINE_OK;
  if (reply.outcome == probes::DeviceOutcome::kFailed) {
    ReportDevice(&state_->reported_failed, reply.error);
  }
  if (reply.outcome != probes::DeviceOutcome::kNotLoaded) return PLUMBLINE_DROPPED;
  ReportDevice(&state_->reported_not_loaded, reply.error);
  return Fail(error, PLUMBLINE_UNAVAILABLE,
              std::string(name) + " \"" + head.site->layer + "\": the tensors are on CUDA device " +
                  std::to_string(device) + ", which the agent cannot use: " + reply.error.text);
}

}  // namespace plumbline::agent
