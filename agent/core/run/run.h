// One run: the agent's half of the C ABI, in C++.
//
// The calls of the trainer's threads (Observe…, Scalar, Span…, Step…) take no lock and allocate
// nothing once a site is known. They never wait for the agent's own threads. Statuses and error
// texts are those of agent/agent_table.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "agent/agent_table.h"
#include "agent/core/run/call_batch.h"
#include "agent/core/run/drain.h"
#include "agent/core/run/local_judge.h"
#include "agent/core/run/run_state.h"
#include "agent/core/run/server_stream.h"
#include "agent/core/shared/options.h"
#include "probes/matmul_probe.h"
#include "probes/routing_probe.h"
#include "transport/outbox.h"

namespace plumbline::agent {

// The governor's stretch as a series: sites are due at every n-th of the steps that the cadence
// measures. Sent when the stretch changes.
inline constexpr const char* kStretchSeries = "plumbline.stretch";

class Run {
 public:
  using Clock = DetachedThread::Clock;

  // Opens the record and starts the threads. Does not wait for the server. Errors are for people.
  // `options` are final: the environment has been applied.
  static absl::StatusOr<std::unique_ptr<Run>> Open(AgentOptions options);
  ~Run();

  plumbline_status_t DeclareSite(const plumbline_agent_site_t& site, void** agent_site,
                                 plumbline_error_t* error);
  plumbline_status_t StepBegin(int64_t step);
  plumbline_status_t StepEnd(int64_t step);
  // Makes sites due because something was noticed in the open step: see looks.h. Returns NOT_DUE if
  // the budget is used up.
  plumbline_status_t Look(int64_t step, uint32_t steps);
  plumbline_status_t NextLook(int64_t step);
  // See agent/core/run/call_batch.h. Returns NOT_DUE if another thread has begun one.
  plumbline_status_t TogetherBegin();
  plumbline_status_t TogetherEnd();
  // See agent/core/run/run_graphs.cc: an observation at kCaptureStep goes into a graph.
  plumbline_status_t CaptureBegin(void* replays_on);
  // One function per kind: agent/core/calls/observe.cc (routing), observe_tensor.cc,
  // observe_rollout.cc.
#define PLUMB_KIND(Name, NAME, name, number, op)                                               \
  plumbline_status_t Observe##Name(Site* site, int64_t step, const plumbline_##name##_t& name, \
                                   plumbline_error_t* error);
#include "proto/evidence_kinds.inc"
  plumbline_status_t SampleIndices(const Site& site, int64_t step, uint64_t count, uint64_t* out,
                                   uint32_t capacity, uint32_t* n, plumbline_error_t* error) const;
  plumbline_status_t Scalar(int64_t step, const char* name, double value,
                            const SourceLine& at = {});
  plumbline_status_t SpanBegin(int64_t step, const char* kind, const char* name, uint64_t* span,
                               plumbline_error_t* error);
  plumbline_status_t SpanEnd(uint64_t span, plumbline_error_t* error);
  // See agent/core/run/loop_marks.h. Called by the thread that will write the marks.
  plumbline_status_t Marks(plumbline_marks_t* marks);
  // See plumbline/steps.h. Called once, before any step is written.
  plumbline_status_t Steps(std::span<const char* const> series, plumbline_steps_t* steps);

  // Notes how the process ends (agent/core/run/exit_report.h).
  void NoteEnding(const plumbline_ending_t* ending) { state_->exit_report.Note(ending); }

  // Copies the reason of the server's order to end the training into `text`, cut to fit. If there
  // is no order, returns false.
  bool StopOrdered(std::span<char> text) const { return state_->stop_order.Copy(text); }

  // Adds the caller's own time on due observations since its last report. Thread-safe.
  void Charge(uint64_t ns) { state_->governor.Charge(ns); }

  plumbline_status_t Flush(uint32_t timeout_ms, plumbline_error_t* error);
  // Ends the run; no call may follow. Returns DEADLINE_EXCEEDED if not everything reached the
  // server in time, and INTERNAL if a measurement is missing in the record or the server did not
  // take it.
  plumbline_status_t Close(uint32_t timeout_ms, plumbline_error_t* error);

  const RunState& state() const { return *state_; }
  const transport::Outbox* outbox() const { return outbox_.get(); }
  const ServerStream* stream() const { return stream_.get(); }

 private:
  plumbline_status_t NotTaken(plumbline_error_t* error) const;
  void PrintRecord() const;
  Run() = default;
  void Govern(int64_t step);
  void BeginGraphs(int64_t step);
  void EndGraphs(int64_t step);
  void Lost(const probes::DeviceReply& reply, int64_t step);
  SlotHead HeadOf(SlotKind kind, Site* site, int64_t step);
  template <typename Call>
  void NoteBytes(const SlotHead& head, const Call& call) {
    if (head.step == kCaptureStep) return;  // counted at each step that replays the graph
    head.site->NoteBytes(SampleBytes(call), SummaryBytes(call));
  }
  template <typename Call>
  void Capture(const SlotHead& head, const Call& call, int device, void* stream,
               probes::DeviceReply* reply) {
    void* replays_on = state_->replays_on.load(std::memory_order_acquire);
    state_->devices->Capture(call, device, stream, replays_on, head.site, reply);
    if (reply->outcome != probes::DeviceOutcome::kTaken) return;
    head.site->graph_calls.fetch_add(1, std::memory_order_relaxed);
    head.site->graph_sample_bytes.fetch_add(SampleBytes(call), std::memory_order_relaxed);
    head.site->graph_summary_bytes.fetch_add(SummaryBytes(call), std::memory_order_relaxed);
  }
  plumbline_status_t Observe(Site* site, int64_t step, const plumbline_routing_t& routing,
                             bool* prepared, plumbline_error_t* error);
  plumbline_status_t Invalid(const char* name, const SlotHead& head, const std::string& why,
                             plumbline_error_t* error);
  absl::Status OpenOutbox();
  bool StartThreads(std::unique_ptr<RecordSink> record);
  plumbline_status_t Keep(const SlotHead& head, const probes::RoutingCall& call,
                          plumbline_error_t* error);
  plumbline_status_t KeepMeasured(const SlotHead& raw, const probes::RoutingCall& call,
                                  plumbline_error_t* error);
  // Handles one observation of the tensor kinds: checks the head, then `body` checks, notes and
  // keeps the call.
  template <typename Body>
  plumbline_status_t ObserveOne(const char* name, Site* site, int64_t step,
                                plumbline_error_t* error, Body body);
  // Stores a small call for later measurement, and measures a large one here.
  template <typename Call>
  plumbline_status_t KeepCall(SlotHead head, const Call& call, absl::Status* why);
  template <typename Call>
  plumbline_status_t StoreInRing(const SlotHead& head, const Call& call);
  plumbline_status_t KeepOnDevice(const SlotHead& head, const probes::RoutingCall& call,
                                  void* stream, bool* prepared, plumbline_error_t* error);
  plumbline_status_t KeepOnDevice(const SlotHead& head, const probes::MatmulCall& call,
                                  const ProductPlan& plan, void* stream, bool* prepared,
                                  plumbline_error_t* error);
  // Passes a tensor or an update to its device.
  template <typename Call>
  plumbline_status_t KeepOnDevice(const char* name, const SlotHead& head, const Call& call,
                                  int device, void* stream, bool* prepared,
                                  plumbline_error_t* error);
  // Handles tensors on a device that the host measures: copies them, or elements of them, off the
  // device.
  template <typename Call>
  plumbline_status_t CarryFromDevice(const char* name, const SlotHead& head, const Call& call,
                                     std::span<const probes::CarriedCopy> copies, int device,
                                     void* stream, bool* prepared, plumbline_error_t* error,
                                     std::span<const probes::CarriedGather> gathers = {},
                                     std::span<const uint64_t> indices = {});
  plumbline_status_t Taken(const char* name, const SlotHead& head, const probes::DeviceReply& reply,
                           int device, plumbline_error_t* error);
  void FreeDevices(Clock::time_point deadline);
  // Puts a head and `bytes` bytes into the ring. Returns DROPPED if it is full.
  plumbline_status_t Put(const SlotHead& head, const void* body, size_t bytes,
                         ByteRing::Keep keep = ByteRing::Keep::kLeave);
  std::byte* Reserve(size_t body_bytes, ByteRing::Keep keep);

  // Shared with our threads; the last owner frees them.
  std::shared_ptr<RunState> state_;
  std::unique_ptr<CallBatch> together_;
  std::shared_ptr<transport::Outbox> outbox_;  // null without a server
  std::shared_ptr<ServerStream> stream_;       // null without a server
  std::shared_ptr<LocalJudge> judge_;          // null with a server, or without stop_on
  uint64_t stream_id_ = 0;
  std::shared_ptr<Drain> drain_;
};

}  // namespace plumbline::agent
