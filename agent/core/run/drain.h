// The drain thread: takes the records that the trainer's threads left in the ring, measures them,
// collects the results of GPUs, gathers everything into batches, and passes the batches to the
// record and the outbox. A step ends when the GPUs have also finished the work that was requested
// before its end; other work continues meanwhile. The thread sleeps poll_ms between looks (a look
// costs 130 us, and 30 more per small step), up to a second while the loop writes its own steps,
// less if a flush waits or a device is working. It is woken early when the ring fills, or when a
// step ends in which the trainer's side noticed a problem.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "agent/core/devices/gpu_health.h"
#include "agent/core/run/directives.h"
#include "agent/core/run/local_judge.h"
#include "agent/core/run/loop_marks.h"
#include "agent/core/run/loop_times.h"
#include "agent/core/run/record_sink.h"
#include "agent/core/run/run_state.h"
#include "agent/core/shared/threads.h"
#include "agent/core/sites/batch_builder.h"
#include "agent/core/sites/slots.h"
#include "base/mutex.h"
#include "probes/device/probe.h"
#include "transport/outbox.h"

namespace plumbline::agent {

// Shared by the drain thread and the threads that wait for it.
class Drain : public std::enable_shared_from_this<Drain> {
 public:
  using Clock = DetachedThread::Clock;

  // All arguments except `run` may be null.
  Drain(std::shared_ptr<RunState> run, std::unique_ptr<RecordSink> record,
        std::shared_ptr<transport::Outbox> outbox, std::shared_ptr<Directives> directives = nullptr,
        std::shared_ptr<LocalJudge> judge = nullptr);

  static constexpr std::chrono::milliseconds kDeviceWait{2000};

  bool Start();

  // Waits until everything in the ring and on devices is in batches, written to the record and
  // pushed. Returns false at the deadline.
  bool Flush(Clock::time_point deadline);

  // Flushes, adds the goodbye to the last batch and ends the thread. Returns false if the deadline
  // passed; the thread then continues by itself until it is done. Devices get at most kDeviceWait
  // and three quarters of the time; work that they have not finished then is lost and counted.
  bool Finish(Clock::time_point deadline);

  // Returns OK, or why the last attempt to write the record failed.
  absl::Status record_status() const;
  // Returns OK, or why evidence is missing in the record.
  absl::Status record_loss() const;

  uint64_t CpuNs() const { return thread_.CpuNs(); }

 private:
  void Loop();
  void Sleep(bool awaited);
  uint32_t PollMs();
  void Pass(bool ship_all);
  bool EmptyRing();
  void Handle(const SlotHead& head, const std::byte* body);
  void HandleRouting(const SlotHead& head, const std::byte* body);
  void HandleRoutingMessage(const SlotHead& head, const std::byte* body);
  void HandleObserved(const SlotHead& head, const std::byte* body);  // drain_observed.cc
  absl::Status MeasureObserved(const SlotHead& head, const std::byte* body, v1::Evidence* out);
  absl::Status MeasureFetched(const SlotHead& head, const probes::DeviceItem& item,
                              v1::Evidence* out);
  void Observed(const SlotHead& head, const absl::Status& measured, v1::Evidence* e);
  probes::MeasureOptions OptionsOf(const SlotHead& head) const;
  void EmptyDevices();
  void HandleDevice(const probes::DeviceItem& item);
  void Measured(const SlotHead& head, const probes::RoutingCall& call, const absl::Status& status,
                v1::Evidence* e);
  void Took(const SlotHead& head, v1::Evidence* evidence);
  void FinishDevices();
  void StepEnded(int64_t step, bool sampled, uint32_t thread = 0, uint64_t at_ns = 0);
  void EndPassedSteps();
  void HandleSpan(const SlotHead& head, const std::byte* body);
  void ReadMarks();
  uint64_t StepsWritten() const;
  static constexpr int64_t kAnyStep = INT64_MAX;
  void ReadSteps(int64_t before, uint64_t written);  // drain_steps.cc
  void AddStep(const plumbline_step_facts_t& facts);
  void AddMarked(int64_t step, uint64_t until_ns);
  void EndStep(int64_t step, bool sampled);
  void AddLoopTimes(int64_t step);
  void AddGpuHealth(int64_t step);
  void AddSpan(const Site& site, int64_t step, uint32_t call, const SpanBody& span,
               uint64_t order = 0);
  bool Late(const SlotHead& head);
  void Invalid(const SlotHead& head, const absl::Status& why);
  void DeclareSites();
  void CollectLosses();
  void AppendToRecord(const transport::SealedBatch& batch, uint64_t now_ns);
  void Ship();

  // A stage that ended between two steps; it is sent with the next one.
  struct HeldSpan {
    const Site* site;
    uint32_t call;
    SpanBody body;
  };

  // A step whose last work is still on a device.
  struct HeldEnd {
    int64_t step;
    bool sampled;
    probes::DeviceProbe::Mark mark;
  };

  const std::shared_ptr<RunState> run_;
  const std::unique_ptr<RecordSink> record_;
  const std::shared_ptr<transport::Outbox> outbox_;
  const std::shared_ptr<Directives> directives_;
  const std::shared_ptr<LocalJudge> judge_;
  BatchBuilder builder_;
  DetachedThread thread_;

  // Used by the drain thread only.
  size_t declared_ = 0;
  std::vector<HeldSpan> held_;
  LoopTimes loop_;
  LoopMarks marks_;
  uint64_t steps_read_ = 0;              // of plumbline_steps_t
  uint64_t steps_polled_ = 0;            // value of steps_read_ at the last look
  uint32_t polled_ms_ = 0;               // upper limit of the last sleep
  std::vector<const Site*> step_sites_;  // sites of the series of plumbline_steps; null: no value
                                         // of the series came so far
  GpuHealth gpu_health_;
  const bool query_driver_;  // to find a GPU even if no tensor was on one
  std::deque<HeldEnd> held_ends_;
  uint64_t flush_ticket_ = 0;  // the ticket of the mark
  probes::DeviceProbe::Mark flush_mark_{};
  uint64_t complaints_ = 0;

  mutable Mutex record_mutex_;
  absl::Status record_status_ PLUMB_GUARDED_BY(record_mutex_);
  absl::Status record_loss_ PLUMB_GUARDED_BY(record_mutex_);

  std::atomic<uint64_t> flush_wanted_{0};  // tickets
  std::atomic<uint64_t> flush_done_{0};
  Clock::time_point devices_by_;  // set before closing_
  std::atomic<bool> closing_{false};
};

}  // namespace plumbline::agent
