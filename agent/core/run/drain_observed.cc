// Turns tensors, reductions, updates, products and logits from the ring into evidence of a batch.
#include <algorithm>

#include "agent/core/run/drain.h"
#include "kernels/core/sample_index.h"
#include "probes/logit_probe.h"
#include "probes/logprobs_probe.h"
#include "probes/matmul_probe.h"
#include "probes/reduction_probe.h"
#include "probes/tensor_probe.h"
#include "probes/update_probe.h"
#include "proto/evidence_samples.h"

namespace plumbline::agent {

probes::MeasureOptions Drain::OptionsOf(const SlotHead& head) const {
  probes::MeasureOptions options;
  options.sampled = head.sampled;
  options.sample_max_bytes = run_->options.sample_max_bytes;
  if (head.sampled) {
    options.key = SampleKey(run_->options.run, head.step, head.site->layer, head.site->op);
  }
  return options;
}

absl::Status Drain::MeasureObserved(const SlotHead& head, const std::byte* body,
                                    v1::Evidence* out) {
  const probes::MeasureOptions options = OptionsOf(head);
  if (head.kind == SlotKind::kEvidence) {
    v1::Evidence measured;
    if (!measured.ParseFromArray(body, static_cast<int>(head.bytes)))
      return absl::InternalError("the measured evidence cannot be read back");
    out->MergeFrom(measured);
    return absl::OkStatus();
  }
  switch (head.site->kind) {
    case SiteKind::kTensor:
      return probes::Measure(probes::LoadTensorCall(body), options, out);
    case SiteKind::kReduction:
      return probes::Measure(probes::LoadReductionCall(body), options, out);
    case SiteKind::kUpdate:
      return probes::Measure(probes::LoadUpdateCall(body), options, out);
    case SiteKind::kMatmul:
      return probes::Measure(probes::LoadMatmulCall(body), options, out);
    case SiteKind::kLogits:
      return probes::Measure(probes::LoadLogitsCall(body), options, out);
    case SiteKind::kLogprobs: {
      const probes::CarriedLogprobs carried = probes::LoadLogprobs(body);
      return probes::Measure(carried.call, carried.key, carried.threshold, out);
    }
    default:
      return absl::InternalError("calls of this kind are not stored");
  }
}

void Drain::HandleObserved(const SlotHead& head, const std::byte* body) {
  if (Late(head)) return;
  v1::Evidence* e = builder_.Add(*head.site, head.step, head.call, head.order);
  Observed(head, MeasureObserved(head, body, e), e);
}

void Drain::Observed(const SlotHead& head, const absl::Status& measured, v1::Evidence* e) {
  if (!measured.ok()) {
    builder_.RemoveLast();
    return Invalid(head, measured);
  }
  if (HasSample(*e)) builder_.NoteBytes(e->ByteSizeLong());
  Took(head, e);
}

// Measures results of a device, except router calls.
absl::Status Drain::MeasureFetched(const SlotHead& head, const probes::DeviceItem& item,
                                   v1::Evidence* out) {
  if (item.tensor != nullptr) return probes::Measure(*item.tensor, out);
  if (item.update != nullptr) return probes::Measure(*item.update, out);
  return probes::Measure(*item.product, OptionsOf(head), out);
}

}  // namespace plumbline::agent
