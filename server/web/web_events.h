// The events that a page receives as they happen (server-sent events).
//
//   hello     {"now"}                       at once
//   incident  a row as in /incidents        each change of one; its id resumes the stream after it
//   runs      [{"run", "newest_step", ...}] runs that progressed, at most four times a second
//   beat      {"now", "lag_ms", "replay"}   each second
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "server/access/gate.h"
#include "server/http/event_source.h"
#include "server/web/event_ids.h"
#include "server/web/views.h"

namespace plumbline::server {

// A copy of the runs that is at most a quarter of a second old, shared by all pages. Thread-safe.
class RunSnapshot {
 public:
  using Runs = std::vector<v1::RunInfo>;
  static constexpr std::chrono::milliseconds kPause{250};

  explicit RunSnapshot(const Judge* judge) : judge_(judge) {}
  std::shared_ptr<const Runs> Take();

 private:
  const Judge* const judge_;
  Mutex mutex_;
  std::shared_ptr<const Runs> runs_ PLUMB_GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point taken_ PLUMB_GUARDED_BY(mutex_){};
};

// Makes a source that is polled. Events are made only when the page takes them, so a slow page
// costs nothing. `last_event`: the id of the last event that the page has seen; if empty, existing
// incidents are not sent. `sources`, `runs` and `ids` must outlive it; `place` is released with it.
std::shared_ptr<EventSource> MakeWebEvents(const WebSources* sources, RunSnapshot* runs,
                                           const EventIds* ids, std::shared_ptr<Lease> lease,
                                           const std::string& last_event,
                                           std::shared_ptr<void> place = nullptr);

}  // namespace plumbline::server
