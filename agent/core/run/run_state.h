// State of one run that the trainer's threads and ours share.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/devices/devices.h"
#include "agent/core/run/exit_report.h"
#include "agent/core/run/first_non_finite.h"
#include "agent/core/run/stop_order.h"
#include "agent/core/shared/options.h"
#include "agent/core/sites/cadence.h"
#include "agent/core/sites/governor.h"
#include "agent/core/sites/looks.h"
#include "agent/core/sites/losses.h"
#include "agent/core/sites/series_registry.h"
#include "agent/core/sites/site_table.h"
#include "agent/core/sites/span_table.h"
#include "base/byte_ring.h"
#include "base/mutex.h"
#include "kernels/core/sample_index.h"
#include "plumbline/marks.h"
#include "plumbline/steps.h"
#include "plumbline/v1/evidence.pb.h"
#include "transport/redact.h"

namespace plumbline::agent {

inline constexpr int64_t kNoStep = -1;
// The step of a call during the capture of a graph: PLUMBLINE_CAPTURING.
inline constexpr int64_t kCaptureStep = -3;

struct RunState {
  RunState(const AgentOptions& o, const v1::Source& s,
           std::optional<transport::Redactor> r = std::nullopt)
      : options(o),
        source(s),
        redactor(r),
        ring(o.ring_bytes),
        devices(MakeDeviceProbe(o)),
        cadence(o.every == 0 ? 1 : o.every, o.traffic_bytes),
        governor(o.every != 0   ? 1
                 : o.budget > 0 ? o.budget
                                : kDefaultBudget),
        looks(o.traffic_bytes) {}

  const AgentOptions options;
  const v1::Source source;
  const std::optional<transport::Redactor> redactor;  // set if ids are sent as hashes

  ByteRing ring;
  const std::shared_ptr<probes::DeviceProbe> devices;  // measurements on GPUs
  std::atomic<bool> reported_not_loaded{false};        // messages about devices that were printed
  std::atomic<bool> reported_failed{false};
  SiteTable sites;
  const std::shared_ptr<SeriesRegistry> series = std::make_shared<SeriesRegistry>();
  SpanTable spans;
  // The marks of the loop's thread, and that thread; null: none were requested.
  std::atomic<plumbline_marks_t*> marks{nullptr};
  std::atomic<uint32_t> marks_thread{0};
  // The steps that the loop's thread itself writes, without measurements, and the names of their
  // series, which were set before. Null if the loop writes none.
  std::atomic<plumbline_steps_t*> steps{nullptr};
  std::vector<std::string> step_series;
  ExitReport exit_report;
  FirstNonFinite first_non_finite{options};
  StopOrder stop_order;
  Cadence cadence;
  Governor governor;
  Looks looks;

  std::atomic<int64_t> open_step{kNoStep};
  std::atomic<int64_t> newest_step{kNoStep};
  std::atomic<int64_t> first_step{kNoStep};  // of this process
  // The step of the next measurement: by the cadence, and as the trainer's side plans it.
  std::atomic<int64_t> next_due{kNoStep}, planned_look{kNoStep};
  int64_t NextLook() const {
    const int64_t planned = planned_look.load(std::memory_order_relaxed);
    return planned != kNoStep ? planned : next_due.load(std::memory_order_relaxed);
  }
  std::atomic<uint64_t> moved_ns{
      0};  // monotonic: when a step last began or ended, or a span began between steps
  std::atomic<int64_t> steps_ended{0};
  // The last step whose end did not fit into the ring.
  std::atomic<int64_t> missed_end{kNoStep};

  // Returns true if a call of the site at this step keeps its elements: by the cadence, by the
  // server's request, or because the trainer's side noticed something.
  bool SampleDue(const Site& site, int64_t step) const {
    return cadence.SampleDue(step) || site.orders.SampleDue(step, cadence.stretch()) ||
           looks.Covers(site, step);
  }

  // Returns the options of a measurement of the site.
  probes::MeasureOptions OptionsOf(const Site& site, int64_t step, bool sampled) const {
    return {sampled, sampled ? SampleKey(options.run, step, site.layer, site.op) : 0,
            std::min(options.sample_max_bytes, ring.max_record() / 2)};
  }

  // Returns the running number of an observation within its step, from 1. Thread-safe.
  uint64_t NextOrder(int64_t step) { return uint64_t{observations.NextCall(step)} + 1; }
  std::atomic<void*> replays_on{nullptr};  // the stream that capture_begin last named
  CallNumbers observations;

  LossCounters losses;  // losses that belong to no site
  std::atomic<bool> losses_pending{false};

  // The server has lost its state of this process: declare every site again.
  std::atomic<bool> declare_again{false};

  void CountLoss(LossCause cause, Site* site, int64_t step) {
    if (step == kCaptureStep) step = std::max<int64_t>(newest_step.load(), 0);
    (site == nullptr ? losses : site->losses).Add(cause, step);
    losses_pending.store(true, std::memory_order_release);
  }

  // Wakes the drain thread. A trainer's thread calls it when the ring fills, without a lock; a
  // missed wake-up costs one poll interval.
  void Ring() {
    rung.store(true, std::memory_order_release);
    bell.NotifyOne();
  }
  std::atomic<bool> rung{false};
  Mutex bell_mutex;  // for waiting in the drain thread; the condition is atomic
  CondVar bell;
};

}  // namespace plumbline::agent
