// Observations of rollouts, on the caller's thread: keeps and copies only whole sequences of each
// call.
#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "agent/core/calls/dlpack.h"
#include "agent/core/run/run.h"
#include "agent/core/shared/error.h"
#include "base/clock.h"
#include "kernels/core/sample_index.h"
#include "probes/logprobs_probe.h"

namespace plumbline::agent {
namespace {

absl::Status CallOf(const plumbline_logprobs_t& g, probes::LogprobsCall* c) {
  // This field is after the end of the struct's first version: an older façade does not pass it.
  const bool whole =  // NOLINTNEXTLINE(bugprone-sizeof-expression): the pointer's size is meant
      g.size >= offsetof(plumbline_logprobs_t, behaviour) + sizeof(g.behaviour);
  c->fields = {g.temperature,   g.top_p, g.kept_share, g.rescore_k2, g.top_k,
               g.train_version, g.mode,  g.selection,  g.source};
  c->worker = g.worker == nullptr ? "" : g.worker;
  const struct {
    const DLTensor* given;
    const char* name;
    TensorView* view;
  } columns[] = {{g.tokens, "tokens", &c->tokens},
                 {g.sequence_id, "sequence_id", &c->sequence_id},
                 {g.position, "position", &c->position},
                 {g.mask, "mask", &c->mask},
                 {g.rollout, "rollout", &c->rollout},
                 {g.train, "train", &c->train},
                 {g.rollout_entropy, "rollout_entropy", &c->rollout_entropy},
                 {g.rollout_varentropy, "rollout_varentropy", &c->rollout_varentropy},
                 {g.train_entropy, "train_entropy", &c->train_entropy},
                 {g.train_varentropy, "train_varentropy", &c->train_varentropy},
                 {g.versions, "versions", &c->versions},
                 {g.advantages, "advantages", &c->advantages},
                 {g.turns, "turns", &c->turns},
                 {g.cached_tokens, "cached_tokens", &c->cached_tokens},
                 {g.t_start, "t_start", &c->t_start},
                 {g.t_end, "t_end", &c->t_end},
                 {whole ? g.behaviour : nullptr, "behaviour", &c->behaviour}};
  for (const auto& column : columns) {
    if (absl::Status s = ViewOf(column.given, column.name, column.view); !s.ok()) return s;
  }
  return probes::CheckCall(*c);
}

}  // namespace

plumbline_status_t Run::ObserveLogprobs(Site* site, int64_t step,
                                        const plumbline_logprobs_t& logprobs,
                                        plumbline_error_t* error) {
  if (step == kCaptureStep) return PLUMBLINE_NOT_DUE;
  const uint64_t begin = MonotonicNs();
  SlotHead head = HeadOf(SlotKind::kEvidence, site, step);
  head.sampled = false;  // this site has a separate budget
  probes::CarriedLogprobs carried;
  probes::LogprobsCall& call = carried.call;
  absl::Status why = CallOf(logprobs, &call);
  const int device = why.ok() ? probes::DeviceOf(call) : -1;
  std::vector<probes::CarriedCopy> copies;
  v1::Evidence evidence;
  if (why.ok()) {
    // The key leaves out the step: the halves of a sequence arrive at different steps.
    const uint64_t key = SampleKey(state_->options.run, 0, site->layer, site->op);
    const uint64_t bytes = probes::ColumnBytes(call);
    const uint64_t least =
        std::min(state_->options.sample_max_bytes, state_->ring.max_record() / 2);
    uint64_t threshold = site->rollout.Threshold(step, bytes, state_->options.traffic_bytes);
    if (bytes > least)
      threshold = std::min(threshold, static_cast<uint64_t>(static_cast<double>(least) /
                                                            static_cast<double>(bytes) * 0x1p64));
    carried.key = key;
    carried.threshold = threshold;
    if (device < 0) {
      why = probes::Measure(call, key, threshold, &evidence);
    } else if (!probes::Carry(carried, &copies)) {
      why = absl::UnavailableError("a column is on a device from which the agent cannot copy it");
    }
  }
  bool prepared = false;
  plumbline_status_t status = PLUMBLINE_OK;
  if (absl::IsUnavailable(why)) {
    state_->CountLoss(LossCause::kHostOnly, site, step);
    status = PLUMBLINE_DROPPED;
  } else if (!why.ok()) {
    status = Invalid("observe_logprobs", head, std::string(why.message()), error);
  } else if (device >= 0) {
    status = CarryFromDevice("observe_logprobs", head, carried, copies, device,
                             logprobs.cuda_stream, &prepared, error);
  } else {
    const std::string body = evidence.SerializeAsString();
    head.bytes = body.size();
    status = Put(head, body.data(), body.size());
  }
  if (!prepared) state_->governor.Charge(site->cost.Clip(MonotonicNs() - begin));
  return status;
}

}  // namespace plumbline::agent
