// Calls of the trainer's threads other than observations: sites, steps, series and stages, and how
// they enter the ring.
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <string>

#include "agent/core/run/run.h"
#include "agent/core/shared/error.h"
#include "base/clock.h"

namespace plumbline::agent {
namespace {

constexpr struct {
  const char* name;
  v1::Span::Kind kind;
} kSpanKinds[] = {
    {"data", v1::Span::KIND_DATA},
    {"forward", v1::Span::KIND_FORWARD},
    {"backward", v1::Span::KIND_BACKWARD},
    {"optimizer", v1::Span::KIND_OPTIMIZER},
    {"collective", v1::Span::KIND_COLLECTIVE},
    {"checkpoint", v1::Span::KIND_CHECKPOINT},
    {"evaluation", v1::Span::KIND_EVALUATION},
    {"compile", v1::Span::KIND_COMPILE},
    {"pause", v1::Span::KIND_PAUSE},
    {"other", v1::Span::KIND_OTHER},
};

v1::Span::Kind SpanKind(std::string_view name) {
  for (const auto& k : kSpanKinds) {
    if (name == k.name) return k.kind;
  }
  return v1::Span::KIND_UNSPECIFIED;
}

// Returns true for a declared stage to which no limit of a step applies.
bool MayBeLong(int32_t kind) {
  return kind == v1::Span::KIND_CHECKPOINT || kind == v1::Span::KIND_EVALUATION ||
         kind == v1::Span::KIND_COMPILE || kind == v1::Span::KIND_PAUSE;
}

// Returns the line that declares the site; an older façade gives none.
SourceLine LineOf(const plumbline_agent_site_t& site) {
  if (site.size < offsetof(plumbline_agent_site_t, line) + sizeof(site.line)) return {};
  return {site.file == nullptr ? "" : site.file, site.line};
}

// Returns the thread's number in the system; asks the system once per thread.
uint32_t ThisThread() {
  static thread_local const auto id = static_cast<uint32_t>(gettid());
  return id;
}

}  // namespace

plumbline_status_t Run::DeclareSite(const plumbline_agent_site_t& site, void** agent_site,
                                    plumbline_error_t* error) {
  SiteKind kind;
  if (!MeasuredKind(site.kind, &kind)) {
    return Fail(error, PLUMBLINE_INVALID_ARGUMENT,
                "site kind " + std::to_string(site.kind) + ": expected one of PLUMBLINE_KIND_*");
  }
  Site* made = state_->sites.FindOrAdd(kind, site.layer, site.op, site.step, LineOf(site));
  if (made == nullptr) {
    state_->CountLoss(LossCause::kTooManySites, nullptr, site.step);
    return Fail(error, PLUMBLINE_RESOURCE_EXHAUSTED,
                "site \"" + std::string(site.layer) + "\": expected at most " +
                    std::to_string(SiteTable::kMaxSites) + " sites with names of at most " +
                    std::to_string(SiteTable::kMaxName) + " bytes");
  }
  made->next_due.store(site.next_due, std::memory_order_release);
  const bool at_once = made->always_due() || Looks::AtFirst(*made);
  const int64_t due = at_once ? 0 : state_->cadence.FirstDue(site.step);
  __atomic_store_n(site.next_due, static_cast<uint64_t>(due), __ATOMIC_RELAXED);
  *agent_site = made;
  return PLUMBLINE_OK;
}

plumbline_status_t Run::StepBegin(int64_t step) {
  state_->exit_report.GoesOn();
  if (state_->first_step.load(std::memory_order_relaxed) == kNoStep)
    state_->first_step.store(step, std::memory_order_relaxed);
  state_->newest_step.store(step, std::memory_order_relaxed);
  state_->moved_ns.store(MonotonicNs(), std::memory_order_relaxed);
  state_->open_step.store(step, std::memory_order_release);
  BeginGraphs(step);
  return PLUMBLINE_OK;
}

plumbline_status_t Run::StepEnd(int64_t step) {
  RunState& s = *state_;
  together_->Close();
  EndGraphs(step);
  Govern(step);
  s.moved_ns.store(MonotonicNs(), std::memory_order_relaxed);
  s.steps_ended.fetch_add(1, std::memory_order_relaxed);
  SlotHead head;
  head.kind = SlotKind::kStepEnd;
  head.step = step;
  const bool notable = s.looks.Covers(step);
  head.sampled = s.cadence.SampleDue(step) || notable;
  head.thread = ThisThread();
  head.at_ns = MonotonicNs();
  s.open_step.store(kNoStep, std::memory_order_release);
  // If the ring is full, the drain thread gets the end from missed_end.
  if (Put(head, nullptr, 0, ByteRing::Keep::kUse) != PLUMBLINE_OK) {
    s.missed_end.store(step, std::memory_order_release);
  }
  // The bytes of this step determine how often the next steps are measured.
  uint64_t sample_bytes = 0, summary_bytes = 0;
  bool looked = false;
  const size_t sites = s.sites.size();
  for (size_t i = 0; i < sites; ++i) {
    Site* site = s.sites.at(i);
    if (!IsMeasured(site->kind)) continue;
    site->EndStep();
    looked |= !site->always_due() && site->HeardIn(step);
    sample_bytes += site->most_sample_bytes();
    summary_bytes += site->most_summary_bytes();
  }
  s.cadence.AtStepEnd(sample_bytes, summary_bytes);
  if (notable) s.Ring();  // the evidence is sent at once
  const int64_t due = s.cadence.NextDue(step);
  const uint64_t stretch = s.cadence.stretch();
  if (looked) s.next_due.store(due, std::memory_order_relaxed);  // else one may be missing
  for (size_t i = 0; i < sites; ++i) {
    Site* site = s.sites.at(i);
    uint64_t* word = site->next_due.load(std::memory_order_acquire);
    if (site->always_due()) continue;
    if (word == nullptr) continue;
    // The word that the trainer's due check reads.
    const bool next_one = s.looks.Covers(*site, step + 1) || Looks::AtFirst(*site);
    const int64_t next = next_one ? step + 1 : site->orders.NextDue(step + 1, due, stretch);
    __atomic_store_n(word, static_cast<uint64_t>(next), __ATOMIC_RELAXED);
  }
  return PLUMBLINE_OK;
}

// The step is open, so due words of later steps are set back.
plumbline_status_t Run::Look(int64_t step, uint32_t steps) {
  RunState& s = *state_;
  uint64_t bytes = 0;
  const size_t sites = s.sites.size();
  for (size_t i = 0; i < sites; ++i) {
    const Site* site = s.sites.at(i);
    if (Looks::Alone(*site)) bytes += site->most_sample_bytes();
  }
  if (s.looks.Query(step, steps, bytes) < step) return PLUMBLINE_NOT_DUE;
  for (size_t i = 0; i < sites; ++i) {
    Site* site = s.sites.at(i);
    uint64_t* word = site->next_due.load(std::memory_order_acquire);
    if (word == nullptr || !Looks::Alone(*site)) continue;
    if (__atomic_load_n(word, __ATOMIC_RELAXED) > static_cast<uint64_t>(step))
      __atomic_store_n(word, static_cast<uint64_t>(step), __ATOMIC_RELAXED);
  }
  return PLUMBLINE_OK;
}

plumbline_status_t Run::TogetherBegin() {
  return together_->Begin() ? PLUMBLINE_OK : PLUMBLINE_NOT_DUE;
}

plumbline_status_t Run::TogetherEnd() {
  together_->End();
  return PLUMBLINE_OK;
}

// Checks once a second whether the agent is within its budget. Changes are reported as a series.
void Run::Govern(int64_t step) {
  Governor& governor = state_->governor;
  const uint64_t now = MonotonicNs();
  if (!governor.Due(now)) return;
  const uint64_t threads = drain_->CpuNs() + (stream_ != nullptr ? stream_->CpuNs() : 0) +
                           (judge_ != nullptr ? judge_->CpuNs() : 0);
  if (!governor.Look(now, threads)) return;
  state_->cadence.Stretch(governor.stretch());
  Scalar(step, kStretchSeries, static_cast<double>(governor.stretch()));
}

plumbline_status_t Run::NextLook(int64_t step) {
  state_->planned_look.store(step, std::memory_order_relaxed);
  return PLUMBLINE_OK;
}

plumbline_status_t Run::Scalar(int64_t step, const char* name, double value, const SourceLine& at) {
  SlotHead head;
  head.kind = SlotKind::kScalar;
  head.step = step;
  head.site = state_->sites.FindOrAdd(SiteKind::kScalar, "", name, step, at);
  if (head.site == nullptr) {
    state_->CountLoss(LossCause::kTooManySites, nullptr, step);
    return PLUMBLINE_DROPPED;
  }
  head.call = head.site->NextCall(step);
  head.order = state_->NextOrder(step);
  return Put(head, &value, sizeof(value));
}

plumbline_status_t Run::SpanBegin(int64_t step, const char* kind, const char* name, uint64_t* span,
                                  plumbline_error_t* error) {
  OpenSpan open;
  open.kind = SpanKind(kind);
  if (open.kind == v1::Span::KIND_UNSPECIFIED) {
    return Fail(error, PLUMBLINE_INVALID_ARGUMENT,
                "span kind \"" + std::string(kind) +
                    "\": expected data, forward, backward, optimizer, collective, checkpoint, "
                    "evaluation, compile, pause or other");
  }
  open.step = step;
  open.site = state_->sites.FindOrAdd(SiteKind::kSpan, "", name, step);
  if (open.site == nullptr) {
    state_->CountLoss(LossCause::kTooManySites, nullptr, step);
    return PLUMBLINE_DROPPED;
  }
  open.thread = ThisThread();
  open.start_unix_ns = UnixNs();
  open.start_monotonic_ns = MonotonicNs();
  *span = state_->spans.Begin(open);
  // Between steps the trainer has returned to its loop; an evaluation continues.
  if (state_->open_step.load(std::memory_order_relaxed) == kNoStep ||
      open.kind == v1::Span::KIND_EVALUATION)
    state_->moved_ns.store(open.start_monotonic_ns, std::memory_order_relaxed);
  if (*span != 0) return PLUMBLINE_OK;
  state_->CountLoss(LossCause::kOpenSpans, open.site, step);
  return PLUMBLINE_DROPPED;
}

plumbline_status_t Run::SpanEnd(uint64_t span, plumbline_error_t* error) {
  const uint64_t now = MonotonicNs();
  OpenSpan open;
  if (!state_->spans.End(span, &open)) {
    return Fail(error, PLUMBLINE_INVALID_ARGUMENT,
                "span_end: span " + std::to_string(span) + " is not open");
  }
  // A stage belongs to the step in which it ends: the step in which it began may be complete
  // already.
  const int64_t now_open = state_->open_step.load(std::memory_order_acquire);
  // The loop continues from here, for any length of the stage.
  if (now_open == kNoStep || MayBeLong(open.kind))
    state_->moved_ns.store(now, std::memory_order_relaxed);
  SlotHead head;
  head.kind = SlotKind::kSpan;
  head.site = open.site;
  head.step = now_open != kNoStep ? now_open : open.step;
  head.call = open.site->NextCall(head.step);
  if (now_open != kNoStep) head.order = state_->NextOrder(head.step);
  SpanBody body;
  body.kind = open.kind;
  body.thread = open.thread;
  body.start_unix_ns = open.start_unix_ns;
  body.start_monotonic_ns = open.start_monotonic_ns;
  body.duration_ns = now - open.start_monotonic_ns;
  return Put(head, &body, sizeof(body));
}

plumbline_status_t Run::Marks(plumbline_marks_t* marks) {
  state_->marks_thread.store(ThisThread(), std::memory_order_relaxed);
  state_->marks.store(marks, std::memory_order_release);
  return PLUMBLINE_OK;
}

plumbline_status_t Run::Steps(std::span<const char* const> series, plumbline_steps_t* steps) {
  if (state_->steps.load(std::memory_order_relaxed) != nullptr) return PLUMBLINE_OK;
  state_->step_series.assign(series.begin(), series.end());
  state_->steps.store(steps, std::memory_order_release);
  return PLUMBLINE_OK;
}

std::byte* Run::Reserve(size_t body_bytes, ByteRing::Keep keep) {
  ByteRing& ring = state_->ring;
  std::byte* record = ring.Reserve(sizeof(SlotHead) + body_bytes, keep);
  // The ring is a quarter full: wake the drain thread, so that it does not wait for its next look.
  if (ring.used() > ring.capacity() / 4 && !state_->rung.load(std::memory_order_relaxed)) {
    state_->Ring();
  }
  return record;
}

plumbline_status_t Run::Put(const SlotHead& head, const void* body, size_t bytes,
                            ByteRing::Keep keep) {
  std::byte* record = Reserve(bytes, keep);
  if (record == nullptr) {
    if (head.site != nullptr) state_->CountLoss(LossCause::kRingFull, head.site, head.step);
    return PLUMBLINE_DROPPED;
  }
  std::memcpy(record, &head, sizeof(head));
  if (bytes != 0) std::memcpy(record + sizeof(head), body, bytes);
  state_->ring.Commit(record);
  return PLUMBLINE_OK;
}

}  // namespace plumbline::agent
