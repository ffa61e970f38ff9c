#include "agent/core/run/drain.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "kernels/evidence/routing.h"
#include "probes/routing_probe.h"

namespace plumbline::agent {
namespace {

constexpr uint64_t kMaxComplaints = 10;
constexpr uint32_t kAwaitedMs = 10;   // between looks if a flush waits
constexpr uint32_t kDeviceMs = 40;    // and if a device is working: at the end there is one second
constexpr uint32_t kQuietMs = 1000;   // if the loop itself writes its steps, and writes few
constexpr size_t kMostHeldEnds = 64;  // if more, steps end together
constexpr uint64_t kEver = ~uint64_t{0};

}  // namespace

Drain::Drain(std::shared_ptr<RunState> run, std::unique_ptr<RecordSink> record,
             std::shared_ptr<transport::Outbox> outbox, std::shared_ptr<Directives> directives,
             std::shared_ptr<LocalJudge> judge)
    : run_(std::move(run)),
      record_(std::move(record)),
      outbox_(std::move(outbox)),
      directives_(std::move(directives)),
      judge_(std::move(judge)),
      builder_(run_->options, run_->source, run_->series),
      query_driver_(std::getenv("PLUMBLINE_NVML_LIBRARY") != nullptr) {}

bool Drain::Start() {
  return thread_.Start("plumb-drain", [self = shared_from_this()] { self->Loop(); });
}

// Waits until the drain thread has begun a look at the ring after this call and has handled
// everything in the ring.
bool Drain::Flush(Clock::time_point deadline) {
  const uint64_t ticket = flush_wanted_.fetch_add(1) + 1;
  run_->Ring();
  while (flush_done_.load(std::memory_order_acquire) < ticket) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// Devices get three quarters of the remaining time; the rest is for handling their results.
bool Drain::Finish(Clock::time_point deadline) {
  const Clock::time_point now = Clock::now();
  devices_by_ = now + std::min<Clock::duration>(kDeviceWait, (deadline - now) / 4 * 3);
  closing_.store(true, std::memory_order_release);
  run_->Ring();
  return thread_.WaitEnded(deadline);
}

// The drain thread: turns the records that the trainer's threads left in the ring into evidence,
// batches it and passes it on. The trainer never waits for it.
void Drain::Loop() {
  while (!closing_.load(std::memory_order_acquire)) {
    const uint64_t ticket = flush_wanted_.load(std::memory_order_acquire);
    const bool flush = ticket != flush_done_.load(std::memory_order_relaxed);
    const uint64_t before = run_->ring.position();
    if (flush && std::exchange(flush_ticket_, ticket) != ticket) {
      flush_mark_ = run_->devices->Position();
    }
    Pass(flush);
    // If this is false, a record is still being filled, or a device still works.
    if (flush && run_->ring.passed(before) && run_->devices->Passed(flush_mark_)) {
      flush_done_.store(ticket, std::memory_order_release);
    }
    Sleep(flush && flush_done_.load(std::memory_order_relaxed) != ticket);
  }
  // The run is closing. Handle first the remaining records, then the devices' results, then the
  // last step's end.
  while (!EmptyRing()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ReadSteps(kAnyStep, StepsWritten());
  FinishDevices();
  EndStep(run_->missed_end.load(std::memory_order_acquire), false);
  for (const HeldSpan& h : std::exchange(held_, {})) {
    AddSpan(*h.site, builder_.complete_through() + 1, h.call, h.body);
  }
  AddMarked(builder_.complete_through() + 1, kEver);
  if (loop_.any()) AddLoopTimes(builder_.complete_through() + 1);
  if (directives_ != nullptr) directives_->Finished();
  v1::Ending ending;
  builder_.Finished(run_->exit_report.Take(&ending) ? &ending : nullptr);
  DeclareSites();
  Ship();
}

// Sleeps until the thread is woken or the next poll is due. If work is in progress, the next poll
// is soon.
void Drain::Sleep(bool awaited) {
  uint32_t ms = PollMs();
  if (!run_->devices->empty()) ms = std::min(ms, kDeviceMs);
  if (awaited) ms = std::min(ms, kAwaitedMs);
  MutexLock lock(run_->bell_mutex);
  run_->bell.WaitFor(lock, std::chrono::milliseconds(ms), [&]() PLUMB_REQUIRES(run_->bell_mutex) {
    return run_->rung.load(std::memory_order_acquire);
  });
  run_->rung.store(false, std::memory_order_relaxed);
}

// Returns the time until the loop fills a quarter of its ring of steps (plumbline/steps.h), limited
// to poll_ms ... kQuietMs. If the loop has written no step since the last look, returns poll_ms.
uint32_t Drain::PollMs() {
  const uint32_t least = run_->options.poll_ms;
  const uint64_t read = steps_read_ - std::exchange(steps_polled_, steps_read_);
  const uint64_t wanted = read == 0 ? least : uint64_t{polled_ms_} * (PLUMBLINE_STEPS / 4) / read;
  polled_ms_ =
      static_cast<uint32_t>(std::clamp<uint64_t>(wanted, least, std::max(least, kQuietMs)));
  return polled_ms_;
}

// Does one look at the ring; `ship_all`: seals all batches now.
void Drain::Pass(bool ship_all) {
  if (run_->declare_again.exchange(false, std::memory_order_acq_rel)) declared_ = 0;
  ReadMarks();  // a step without an end may have many
  // The ring had no space for a step's end: the step ends once everything before it is handled.
  const int64_t missed = run_->missed_end.load(std::memory_order_acquire);
  const uint64_t steps = StepsWritten();  // read before the ring's end, so that the ring has all
                                          // older records
  const bool emptied = EmptyRing();
  const int64_t ended = held_ends_.empty() ? builder_.complete_through() : held_ends_.back().step;
  if (emptied && missed > ended) {
    ReadSteps(missed, steps);
    StepEnded(missed, false);
  }
  if (emptied) ReadSteps(kAnyStep, steps);
  EmptyDevices();
  EndPassedSteps();
  DeclareSites();
  const uint64_t now = MonotonicNs();
  const bool losses = run_->losses_pending.load(std::memory_order_relaxed);
  if (ship_all || builder_.Due(now) || (losses && builder_.IntervalPassed(now))) Ship();
}

// Handles the records in the ring; returns false if one is still being filled.
bool Drain::EmptyRing() {
  const uint64_t end = run_->ring.position();
  while (!run_->ring.passed(end)) {
    const std::byte* record = run_->ring.Front();
    if (record == nullptr) return run_->ring.passed(end);
    SlotHead head;
    std::memcpy(&head, record, sizeof(head));
    ReadSteps(head.step, StepsWritten());
    Handle(head, record + sizeof(head));
    run_->ring.Pop();
    if (builder_.Full()) {
      DeclareSites();
      Ship();
    }
  }
  return true;
}

// Turns one record of the ring into evidence; the head's kind determines the body's form.
void Drain::Handle(const SlotHead& head, const std::byte* body) {
  switch (head.kind) {
    case SlotKind::kStepEnd:
      return StepEnded(head.step, head.sampled, head.thread, head.at_ns);
    case SlotKind::kSpan:
      return HandleSpan(head, body);
    case SlotKind::kRoutingMessage:
      return HandleRoutingMessage(head, body);
    case SlotKind::kCall:
      if (head.site->kind == SiteKind::kRouting) return HandleRouting(head, body);
      return HandleObserved(head, body);
    case SlotKind::kEvidence:
      return HandleObserved(head, body);
    case SlotKind::kScalar:
      break;
  }
  if (Late(head)) return;
  double value = 0;
  std::memcpy(&value, body, sizeof(value));
  builder_.AddScalar(head.step, {head.site, head.call, head.order, value});
  run_->exit_report.Value(head.site, head.step, value);
  run_->first_non_finite.Value(head.site, head.step, value);
}

// The call's scores are in the ring: they are measured on this thread, not on the trainer's.
void Drain::HandleRouting(const SlotHead& head, const std::byte* body) {
  if (Late(head)) return;
  const probes::RoutingCall call = probes::LoadRoutingCall(body);
  v1::Evidence* e = builder_.Add(*head.site, head.step, head.call, head.order);
  const absl::Status measured = probes::MeasureRouting(
      call, head.sampled, run_->options.sample_max_bytes, e->mutable_routing());
  Measured(head, call, measured, e);
}

void Drain::Measured(const SlotHead& head, const probes::RoutingCall& call,
                     const absl::Status& status, v1::Evidence* e) {
  if (!status.ok()) {
    builder_.RemoveLast();
    return Invalid(head, status);
  }
  e->set_sample_size(static_cast<uint64_t>(call.input.scores.shape[0]));
  e->set_exercised(RoutingExercised(e->routing()));
  if (e->routing().has_sample()) builder_.NoteBytes(probes::SampleBytes(call));
  Took(head, e);
}

// Handles evidence in the batch. Ids are redacted here, before the record, the outbox and capsules
// get the evidence; then the server's directives are informed.
void Drain::Took(const SlotHead& head, v1::Evidence* evidence) {
  if (run_->redactor) run_->redactor->Redact(evidence);
  if (directives_ == nullptr) return;
  directives_->Took(*head.site, head.sampled || head.site->kind == SiteKind::kLogprobs, *evidence);
}

// Handles the finished work of devices.
void Drain::EmptyDevices() {
  run_->devices->Drain([this](const probes::DeviceItem& item) {
    HandleDevice(item);
    if (builder_.Full()) {
      DeclareSites();
      Ship();
    }
  });
}

// Handles a call that was measured on a device, or the reason why it was not: it becomes evidence
// or a counted loss.
void Drain::HandleDevice(const probes::DeviceItem& item) {
  SlotHead head;
  head.site = static_cast<Site*>(item.tag.site);
  head.step = item.tag.step;
  head.call = item.tag.call;
  head.sampled = item.tag.sampled;
  for (uint64_t i = 0; i < item.unkept; ++i) {
    run_->CountLoss(LossCause::kDeviceRing, head.site, head.step);
  }
  if (item.unkept > 0) return;
  if (!item.measured) {
    if (!item.abandoned) ReportDevice(&run_->reported_failed, item.why);
    return run_->CountLoss(item.abandoned ? LossCause::kDeviceUnfinished : LossCause::kDeviceFailed,
                           head.site, head.step);
  }
  CallCost& cost = head.site->device_cost;
  run_->governor.ChargeDevice(item.gpu_ns > 0 ? cost.Clip(item.gpu_ns) : cost.median_ns());
  if (item.carried != nullptr) {
    head.kind = SlotKind::kCall;
    head.order = item.tag.order;
    return HandleObserved(head, item.carried);
  }
  if (Late(head)) return;
  v1::Evidence* e = builder_.Add(*head.site, head.step, head.call, item.tag.order);
  if (item.plan == nullptr) return Observed(head, MeasureFetched(head, item, e), e);
  const absl::Status finished =
      probes::FinishRouting(item.call, *item.plan, *item.raw, item.tag.sampled,
                            run_->options.sample_max_bytes, e->mutable_routing());
  Measured(head, item.call, finished, e);
}

// Waits for the devices within the time limit, and ends every step.
void Drain::FinishDevices() {
  EmptyDevices();
  while (!run_->devices->empty() && Clock::now() < devices_by_) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EmptyDevices();
  }
  if (!run_->devices->empty()) {
    run_->devices->Abandon("the run was closed before the measurement was complete");
    EmptyDevices();
  }
  for (const HeldEnd& end : std::exchange(held_ends_, {})) EndStep(end.step, end.sampled);
}

void Drain::HandleRoutingMessage(const SlotHead& head, const std::byte* body) {
  if (Late(head)) return;
  v1::Evidence* e = builder_.Add(*head.site, head.step, head.call, head.order);
  e->mutable_routing()->ParseFromArray(body, static_cast<int>(head.bytes));
  e->set_sample_size(head.rows);
  e->set_exercised(RoutingExercised(e->routing()));
  Took(head, e);
}

// Ends a step when the devices have delivered the work that was launched in it; until then holds
// its end.
void Drain::StepEnded(int64_t step, bool sampled, uint32_t thread, uint64_t at_ns) {
  if (query_driver_ || run_->devices->used()) gpu_health_.Start();
  AddMarked(step, at_ns != 0 ? at_ns : kEver);
  if (loop_.StepEnded(step, thread, at_ns)) AddLoopTimes(step);
  EmptyDevices();
  if (held_ends_.empty() && run_->devices->empty()) return EndStep(step, sampled);
  HeldEnd end{step, sampled, run_->devices->Position()};
  if (held_ends_.size() == kMostHeldEnds) {
    end.sampled |= held_ends_.back().sampled;
    held_ends_.pop_back();
  }
  held_ends_.push_back(end);
}

void Drain::EndPassedSteps() {
  while (!held_ends_.empty() && run_->devices->Passed(held_ends_.front().mark)) {
    const HeldEnd end = held_ends_.front();
    held_ends_.pop_front();
    EndStep(end.step, end.sampled);
  }
}

// Ends a step whose evidence is all in batches. Spans that were open at the end of an earlier step
// belong to this step.
void Drain::EndStep(int64_t step, bool sampled) {
  if (step <= builder_.complete_through()) return;
  for (const HeldSpan& h : std::exchange(held_, {})) AddSpan(*h.site, step, h.call, h.body);
  builder_.StepEnded(step, sampled);
  if (directives_ != nullptr) directives_->StepEnded(step);
}

// Returns true if a thread was still observing while another ended the step.
bool Drain::Late(const SlotHead& head) {
  if (head.step > builder_.complete_through()) return false;
  run_->CountLoss(LossCause::kLate, head.site, head.step);
  return true;
}

void Drain::Invalid(const SlotHead& head, const absl::Status& why) {
  run_->CountLoss(LossCause::kInvalid, head.site, head.step);
  if (complaints_++ >= kMaxComplaints) return;
  std::fprintf(
      stderr,
      "plumbline: %s %s, step %lld, call %u: %s. It is not measured, and counted as lost.\n",
      head.site->layer.c_str(), head.site->op.c_str(), static_cast<long long>(head.step), head.call,
      std::string(why.message()).c_str());
}

// Declares each site once, before the first batch with its evidence.
void Drain::DeclareSites() {
  for (const size_t n = run_->sites.size(); declared_ < n; ++declared_) {
    builder_.Declare(*run_->sites.at(declared_));
  }
}

// Losses are counted on the thread in which they occur, and are reported only here.
void Drain::CollectLosses() {
  if (!run_->losses_pending.exchange(false, std::memory_order_acq_rel)) return;
  for (size_t c = 0; c < kLossCauses; ++c) {
    const auto cause = static_cast<LossCause>(c);
    builder_.AddLoss(LossCauseName(cause), nullptr, run_->losses.Take(cause));
    for (size_t i = 0, n = run_->sites.size(); i < n; ++i) {
      Site* site = run_->sites.at(i);
      builder_.AddLoss(LossCauseName(cause), site, site->losses.Take(cause));
    }
  }
}

void Drain::AppendToRecord(const transport::SealedBatch& batch, uint64_t now_ns) {
  record_->Append(batch, now_ns);
  const MutexLock lock(record_mutex_);
  record_status_ = record_->status();
  record_loss_ = record_->loss();
}

absl::Status Drain::record_status() const {
  const MutexLock lock(record_mutex_);
  return record_status_;
}

absl::Status Drain::record_loss() const {
  const MutexLock lock(record_mutex_);
  return record_loss_;
}

void Drain::Ship() {
  CollectLosses();
  if (builder_.empty()) return;
  const uint64_t now = MonotonicNs();
  transport::SealedBatch batch =
      builder_.Take(run_->newest_step.load(std::memory_order_relaxed), run_->NextLook(), now);
  if (record_ != nullptr) AppendToRecord(batch, now);
  if (judge_ != nullptr) judge_->Push(batch);
  if (outbox_ != nullptr) outbox_->Push(std::move(batch));
}

}  // namespace plumbline::agent
