// The drain thread's handling of stages of the trainer's loop: spans, marks, and their totals.
#include <algorithm>
#include <optional>

#include "agent/core/run/drain.h"
#include "base/clock.h"

namespace plumbline::agent {

// A span that was open when its step ended belongs to the step that ends next.
void Drain::HandleSpan(const SlotHead& head, const std::byte* body) {
  SpanBody span;
  std::memcpy(&span, body, sizeof(span));
  if (!loop_.Span(span, head.site->op))
    run_->CountLoss(LossCause::kLoopSpans, head.site, head.step);
  if (head.step <= builder_.complete_through()) {
    held_.push_back({head.site, head.call, span});
  } else {
    AddSpan(*head.site, head.step, head.call, span, head.order);
  }
}

void Drain::AddSpan(const Site& site, int64_t step, uint32_t call, const SpanBody& span,
                    uint64_t order) {
  v1::Evidence* e = builder_.Add(site, step, call, order);
  e->set_sample_size(1);
  v1::Span* out = e->mutable_span();
  out->set_kind(static_cast<v1::Span::Kind>(span.kind));
  out->set_name(site.op);
  out->set_start_ns(span.start_unix_ns);
  out->set_duration_ns(span.duration_ns);
}

// Reads new marks of the loop's thread. Lost marks are reported with the newest step.
void Drain::ReadMarks() {
  plumbline_marks_t* marks = run_->marks.load(std::memory_order_acquire);
  if (marks == nullptr) return;
  marks_.Read(marks);
  for (uint64_t n = marks_.TakeLost(); n > 0; --n) {
    run_->CountLoss(LossCause::kLoopMarks, nullptr, std::max<int64_t>(run_->newest_step.load(), 0));
  }
}

// Stages that have ended by `until_ns`, monotonic, belong to the step that ends.
void Drain::AddMarked(int64_t step, uint64_t until_ns) {
  ReadMarks();
  const uint64_t since_epoch = UnixNs() - MonotonicNs();
  while (const std::optional<MarkedStage> stage = marks_.Next(until_ns)) {
    const char* name = StageName(stage->kind);
    Site* site = run_->sites.FindOrAdd(SiteKind::kSpan, "", name, step);
    if (site == nullptr) {
      run_->CountLoss(LossCause::kTooManySites, nullptr, step);
      continue;
    }
    SpanBody span;
    span.kind = stage->kind;
    span.thread = run_->marks_thread.load(std::memory_order_relaxed);
    span.start_monotonic_ns = stage->start_ns;
    span.start_unix_ns = since_epoch + stage->start_ns;
    span.duration_ns = stage->end_ns - stage->start_ns;
    if (!loop_.Span(span, name)) run_->CountLoss(LossCause::kLoopSpans, site, step);
    AddSpan(*site, step, site->NextCall(step), span);
  }
}

// Adds the driver's data of the GPU during the block, as series next to the block's times. If the
// driver could not be read, adds none.
void Drain::AddGpuHealth(int64_t step) {
  const std::optional<GpuSeen> seen = gpu_health_.Take();
  if (!seen) return;
  const auto add = [&](const char* name, double value) {
    const Site* site = run_->sites.FindOrAdd(SiteKind::kScalar, "", name, step);
    if (site == nullptr) return run_->CountLoss(LossCause::kTooManySites, nullptr, step);
    builder_.AddScalar(step, {site, 0, 0, value});
  };
  add("gpu.clocks_held", static_cast<double>(seen->held) / static_cast<double>(seen->looks));
  add("gpu.clock_reasons", static_cast<double>(seen->reasons));
  add("gpu.ecc_uncorrected", static_cast<double>(seen->uncorrected));
  add("gpu.xid", static_cast<double>(seen->xid));
}

// Adds a block of the loop's times as evidence of the step that ends it.
void Drain::AddLoopTimes(int64_t step) {
  AddGpuHealth(step);
  const auto layer = run_->devices->used() ? timeline::kLoopOfGpuLayer : timeline::kLoopLayer;
  const Site* site = run_->sites.FindOrAdd(SiteKind::kSpan, layer, "timeline", step);
  if (site == nullptr) return run_->CountLoss(LossCause::kTooManySites, nullptr, step);
  v1::Evidence* e = builder_.Add(*site, step, 0);
  *e->mutable_timeline() = loop_.Take();
  e->set_sample_size(static_cast<uint64_t>(e->timeline().steps_size()));
}

}  // namespace plumbline::agent
