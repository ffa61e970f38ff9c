#include "agent/core/run.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "agent/core/error.h"
#include "base/clock.h"

namespace plumbline::agent {
namespace {

using std::chrono::milliseconds;

plumbline_status_t Unwritten(const char* call, const absl::Status& why, plumbline_error_t* error) {
  return Fail(error, PLUMBLINE_INTERNAL,
              std::string(call) + ": the record is not written: " + std::string(why.message()));
}

std::string Undelivered(const transport::Outbox& outbox) {
  const transport::Outbox::State left = outbox.state();
  return std::to_string(left.items) + " evidence items in memory, " + std::to_string(left.batches) +
         " batches in all,";
}

std::string WhereSpooled(const transport::Outbox& outbox) {
  const uint64_t batches = outbox.state().spooled;
  if (batches == 0) return "";
  return "; " + std::to_string(batches) + " of them are kept in " + outbox.spool_path() +
         " for the next process of this rank, or `plumb spool send`";
}

uint64_t RandomId() {
  std::random_device random;
  const uint64_t id = (static_cast<uint64_t>(random()) << 32) | random();
  return id == 0 ? 1 : id;
}

v1::Source SourceOf(const AgentOptions& options) {
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  v1::Source source;
  source.set_run(options.run);
  source.set_attempt(options.attempt);
  source.set_role(static_cast<v1::Role>(options.role));
  source.set_rank(options.rank);
  source.set_world_size(options.world_size);
  source.set_host(host);
  source.set_pid(getpid());
  source.set_tool_version(kToolVersion);
  return source;
}

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
    {"other", v1::Span::KIND_OTHER},
};

v1::Span::Kind SpanKind(std::string_view name) {
  for (const auto& k : kSpanKinds) {
    if (name == k.name) return k.kind;
  }
  return v1::Span::KIND_UNSPECIFIED;
}

bool MeasuredKind(int32_t kind, SiteKind* out) {
  switch (kind) {
    case PLUMBLINE_KIND_ROUTING:
      *out = SiteKind::kRouting;
      return true;
    case PLUMBLINE_KIND_TENSOR:
      *out = SiteKind::kTensor;
      return true;
    case PLUMBLINE_KIND_REDUCTION:
      *out = SiteKind::kReduction;
      return true;
    case PLUMBLINE_KIND_UPDATE:
      *out = SiteKind::kUpdate;
      return true;
    case PLUMBLINE_KIND_MATMUL:
      *out = SiteKind::kMatmul;
      return true;
    case PLUMBLINE_KIND_LOGITS:
      *out = SiteKind::kLogits;
      return true;
    case PLUMBLINE_KIND_LOGPROBS:
      *out = SiteKind::kLogprobs;
      return true;
    default:
      return false;
  }
}

// What tells a rank that hangs from one that takes its time.
void FillHeartbeat(const RunState& state, v1::Heartbeat* beat) {
  const uint64_t moved = state.moved_ns.load(std::memory_order_relaxed);
  const uint64_t now = MonotonicNs();
  if (moved != 0 && now > moved) beat->set_still_ns(now - moved);
  beat->set_steps_ended(state.steps_ended.load(std::memory_order_relaxed));
  for (const v1::Span::Kind kind :
       {v1::Span::KIND_CHECKPOINT, v1::Span::KIND_EVALUATION, v1::Span::KIND_COMPILE}) {
    if (state.spans.open(kind)) beat->set_open_stage(kind);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Run>> Run::Open(AgentOptions options) {
  std::unique_ptr<RecordSink> record;
  const auto role = static_cast<v1::Role>(options.role);
  if (!options.record_dir.empty()) {
    auto attempt = FreeAttempt(options.record_dir, role, options.rank, options.attempt);
    if (!attempt.ok()) return attempt.status();
    options.attempt = *attempt;
    auto opened = RecordSink::Open(options.record_dir, SourceOf(options), RandomId());
    if (!opened.ok()) return opened.status();
    record = *std::move(opened);
  }
  std::unique_ptr<Run> run(new Run());
  run->state_ = std::make_shared<RunState>(options, SourceOf(options));
  if (!run->state_->ring.valid()) {
    return absl::ResourceExhaustedError("no memory for a ring of " +
                                        std::to_string(options.ring_bytes) + " bytes");
  }
  if (absl::Status s = run->OpenOutbox(); !s.ok()) return s;
  if (!run->StartThreads(std::move(record))) {
    return absl::ResourceExhaustedError("the system refused to start a thread");
  }
  return run;
}

absl::Status Run::OpenOutbox() {
  const AgentOptions& options = state_->options;
  if (options.server.empty()) return absl::OkStatus();
  stream_id_ = RandomId();
  std::unique_ptr<transport::Spool> spool;
  if (!options.spool_dir.empty()) {
    auto created = transport::Spool::Create(options.spool_dir, state_->source, stream_id_,
                                            {options.spool_bytes, kToolVersion});
    if (!created.ok()) return created.status();
    spool = *std::move(created);
  }
  outbox_ = std::make_shared<transport::Outbox>(
      transport::OutboxLimits{options.queue_bytes, options.queue_batches}, std::move(spool));
  return absl::OkStatus();
}

bool Run::StartThreads(std::unique_ptr<RecordSink> record) {
  const AgentOptions& options = state_->options;
  std::shared_ptr<Directives> directives;
  if (!options.server.empty()) {
    transport::StreamConfig config;
    config.target = options.server;
    config.sources = {state_->source};
    config.stream_id = stream_id_;
    config.tool_version = kToolVersion;
    config.backoff_first_ms = options.backoff_first_ms;
    config.backoff_last_ms = options.backoff_last_ms;
    config.ack_timeout_ms = options.ack_timeout_ms;
    config.heartbeat_ms = options.heartbeat_ms;
    config.newest_step = [state = state_] { return state->newest_step.load(); };
    config.fill_heartbeat = [state = state_](v1::Heartbeat* beat) { FillHeartbeat(*state, beat); };
    config.credentials = transport::CredentialsFromEnvironment();
    config.on_refused = SayOnce(options.server);
    config.server_forgot = [state = state_] { state->declare_again.store(true); };
    config.side = directives = std::make_shared<Directives>(state_);
    stream_ = std::make_shared<ServerStream>(std::move(config), outbox_, options.spool_dir);
    if (!stream_->Start()) return false;
  }
  if (record != nullptr) record->NameSeries(state_->series);
  drain_ = std::make_shared<Drain>(state_, std::move(record), outbox_, directives);
  return drain_->Start();
}

Run::~Run() {
  // Only after a failed Open: Close has ended them otherwise.
  const Clock::time_point now = Clock::now();
  if (drain_ != nullptr) drain_->Finish(now);
  if (stream_ != nullptr) stream_->Finish(now);
}

plumbline_status_t Run::DeclareSite(const plumbline_agent_site_t& site, void** agent_site,
                                    plumbline_error_t* error) {
  SiteKind kind;
  if (!MeasuredKind(site.kind, &kind)) {
    return Fail(error, PLUMBLINE_INVALID_ARGUMENT,
                "site kind " + std::to_string(site.kind) + ": expected one of PLUMBLINE_KIND_*");
  }
  Site* made = state_->sites.FindOrAdd(kind, site.layer, site.op, site.step);
  if (made == nullptr) {
    state_->CountLoss(LossCause::kTooManySites, nullptr, site.step);
    return Fail(error, PLUMBLINE_RESOURCE_EXHAUSTED,
                "site \"" + std::string(site.layer) + "\": expected at most " +
                    std::to_string(SiteTable::kMaxSites) + " sites with names of at most " +
                    std::to_string(SiteTable::kMaxName) + " bytes");
  }
  made->next_due.store(site.next_due, std::memory_order_release);
  const int64_t due = IsAlwaysDue(kind) ? 0 : state_->cadence.FirstDue(site.step);
  __atomic_store_n(site.next_due, static_cast<uint64_t>(due), __ATOMIC_RELAXED);
  *agent_site = made;
  return PLUMBLINE_OK;
}

plumbline_status_t Run::StepBegin(int64_t step) {
  state_->newest_step.store(step, std::memory_order_relaxed);
  state_->moved_ns.store(MonotonicNs(), std::memory_order_relaxed);
  state_->open_step.store(step, std::memory_order_release);
  return PLUMBLINE_OK;
}

plumbline_status_t Run::StepEnd(int64_t step) {
  RunState& s = *state_;
  Govern(step);
  s.moved_ns.store(MonotonicNs(), std::memory_order_relaxed);
  s.steps_ended.fetch_add(1, std::memory_order_relaxed);
  SlotHead head;
  head.kind = SlotKind::kStepEnd;
  head.step = step;
  head.sampled = s.cadence.SampleDue(step);
  s.open_step.store(kNoStep, std::memory_order_release);
  if (Put(head, nullptr, 0, ByteRing::Keep::kUse) != PLUMBLINE_OK) {
    s.missed_end.store(step, std::memory_order_release);
  }
  uint64_t sample_bytes = 0, summary_bytes = 0;
  const size_t sites = s.sites.size();
  for (size_t i = 0; i < sites; ++i) {
    Site* site = s.sites.at(i);
    if (!IsMeasured(site->kind)) continue;
    site->EndStep();
    sample_bytes += site->most_sample_bytes();
    summary_bytes += site->most_summary_bytes();
  }
  s.cadence.AtStepEnd(sample_bytes, summary_bytes);
  const int64_t due = s.cadence.NextDue(step);
  const uint64_t stretch = s.cadence.stretch();
  for (size_t i = 0; i < sites; ++i) {
    Site* site = s.sites.at(i);
    uint64_t* word = site->next_due.load(std::memory_order_acquire);
    if (IsAlwaysDue(site->kind)) continue;
    if (word == nullptr) continue;
    const int64_t next = site->orders.NextDue(step + 1, due, stretch);
    __atomic_store_n(word, static_cast<uint64_t>(next), __ATOMIC_RELAXED);
  }
  return PLUMBLINE_OK;
}

// Once a second: is the agent within its budget? What it changes it reports as a series.
void Run::Govern(int64_t step) {
  Governor& governor = state_->governor;
  const uint64_t now = MonotonicNs();
  if (!governor.Due(now)) return;
  const uint64_t threads = drain_->CpuNs() + (stream_ != nullptr ? stream_->CpuNs() : 0);
  if (!governor.Look(now, threads)) return;
  state_->cadence.Stretch(governor.stretch());
  Scalar(step, kStretchSeries, static_cast<double>(governor.stretch()));
}

plumbline_status_t Run::Scalar(int64_t step, const char* name, double value) {
  SlotHead head;
  head.kind = SlotKind::kScalar;
  head.step = step;
  head.site = state_->sites.FindOrAdd(SiteKind::kScalar, "", name, step);
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
                    "evaluation, compile or other");
  }
  open.step = step;
  open.site = state_->sites.FindOrAdd(SiteKind::kSpan, "", name, step);
  if (open.site == nullptr) {
    state_->CountLoss(LossCause::kTooManySites, nullptr, step);
    return PLUMBLINE_DROPPED;
  }
  open.start_unix_ns = UnixNs();
  open.start_monotonic_ns = MonotonicNs();
  *span = state_->spans.Begin(open);
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
  // A stage belongs to the step in which it ends: the one it began in may be complete already.
  const int64_t now_open = state_->open_step.load(std::memory_order_acquire);
  SlotHead head;
  head.kind = SlotKind::kSpan;
  head.site = open.site;
  head.step = now_open != kNoStep ? now_open : open.step;
  head.call = open.site->NextCall(head.step);
  if (now_open != kNoStep) head.order = state_->NextOrder(head.step);
  SpanBody body;
  body.kind = open.kind;
  body.start_unix_ns = open.start_unix_ns;
  body.duration_ns = now - open.start_monotonic_ns;
  return Put(head, &body, sizeof(body));
}

std::byte* Run::Reserve(size_t body_bytes, ByteRing::Keep keep) {
  ByteRing& ring = state_->ring;
  std::byte* record = ring.Reserve(sizeof(SlotHead) + body_bytes, keep);
  // A quarter full and nobody has rung yet: the drain thread need not wait for its next look.
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

plumbline_status_t Run::Flush(uint32_t timeout_ms, plumbline_error_t* error) {
  const Clock::time_point deadline = Clock::now() + milliseconds(timeout_ms);
  if (!drain_->Flush(deadline)) {
    return Fail(error, PLUMBLINE_DEADLINE_EXCEEDED,
                "flush: not everything was measured and written within " +
                    std::to_string(timeout_ms) + " ms");
  }
  if (const absl::Status s = drain_->record_status(); !s.ok()) return Unwritten("flush", s, error);
  if (outbox_ == nullptr) return PLUMBLINE_OK;
  const uint64_t wanted = outbox_->pushed();
  while (outbox_->settled() < wanted) {
    if (Clock::now() >= deadline) {
      return Fail(error, PLUMBLINE_DEADLINE_EXCEEDED,
                  "flush: server " + state_->options.server + " has not acknowledged " +
                      std::to_string(wanted - outbox_->settled()) + " batches within " +
                      std::to_string(timeout_ms) + " ms");
    }
    std::this_thread::sleep_for(milliseconds(2));
  }
  return PLUMBLINE_OK;
}

// By a thread of its own, since freeing may wait for work of the trainer's that has nothing to do
// with us. A drain thread that is not done yet frees them when it ends.
void Run::FreeDevices(Clock::time_point deadline) {
  if (!state_->devices->used()) return;
  GuestThread thread;
  if (thread.Start("plumb-free", [devices = state_->devices] { devices->Free(); })) {
    thread.WaitEnded(deadline);
  }
}

plumbline_status_t Run::Close(uint32_t timeout_ms, plumbline_error_t* error) {
  const Clock::time_point deadline = Clock::now() + milliseconds(timeout_ms);
  const std::string within = " within " + std::to_string(timeout_ms) + " ms";
  const bool drained = drain_->Finish(deadline);
  const bool delivered = stream_ == nullptr || stream_->Finish(drained ? deadline : Clock::now());
  const absl::Status written = drain_->record_status();
  if (drained) FreeDevices(deadline);
  drain_.reset();
  stream_.reset();
  if (!drained) {
    return Fail(error, PLUMBLINE_DEADLINE_EXCEEDED,
                "close: not everything was measured and written" + within);
  }
  if (!delivered) {
    return Fail(error, PLUMBLINE_DEADLINE_EXCEEDED,
                "close: server " + state_->options.server + " has not acknowledged " +
                    Undelivered(*outbox_) + within + WhereSpooled(*outbox_));
  }
  if (!written.ok()) return Unwritten("close", written, error);
  return PLUMBLINE_OK;
}

}  // namespace plumbline::agent
