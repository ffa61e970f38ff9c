// The judging thread: owns the rule engine, feeds it what the streams delivered, turns verdicts
// into incidents and keeps what the query service shows.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "plumbline/v1/query.pb.h"
#include "rules/engine/engine.h"
#include "rules/engine/report.h"
#include "server/counters.h"
#include "server/incidents/incident_book.h"
#include "server/judge/judge_queue.h"
#include "server/judge/run_table.h"

namespace plumbline::server {

struct JudgeOptions {
  rules::EngineConfig engine;
  std::chrono::nanoseconds grace = std::chrono::seconds(30);
  size_t queue_bytes = 256u << 20;
};

// Thread-safe but for Create and destruction.
class Judge {
 public:
  // InvalidArgument when the engine refuses its configuration. `book` and `counters` must outlive
  // it.
  static absl::StatusOr<std::unique_ptr<Judge>> Create(const JudgeOptions& options,
                                                       IncidentBook* book, Counters* counters);
  ~Judge();

  // See JudgeQueue::Push.
  bool Push(JudgeItem item, std::function<void()> resume) {
    return queue_.Push(std::move(item), std::move(resume));
  }

  // Judges what was pushed, for a few seconds at most, then stops. Runs that go on elsewhere are
  // not finished by it.
  void Stop();

  std::vector<v1::RunInfo> Runs() const;
  v1::ListVerdictsResponse Verdicts(const std::string& run) const;
  size_t queued() const { return queue_.size(); }

 private:
  Judge(const JudgeOptions& options, IncidentBook* book, Counters* counters);

  void Loop();
  void Handle(JudgeItem item);
  void HandleBatch(uint64_t stream_id, v1::Batch batch);
  void HandleTimers(JudgeQueue::Clock::time_point now);
  void OnVerdict(const v1::Verdict& verdict);

  IncidentBook* const book_;
  Counters* const counters_;
  JudgeQueue queue_;
  std::unique_ptr<rules::Engine> engine_;  // the judging thread's own

  struct RunReport {
    rules::Report report;
    uint64_t judged = 0;
    uint64_t inconclusive = 0;
  };
  mutable std::mutex mutex_;  // guards the two below, which queries read
  RunTable runs_;
  std::map<std::string, RunReport> reports_;

  std::atomic<JudgeQueue::Clock::time_point> stop_by_{JudgeQueue::Clock::time_point::max()};
  std::thread thread_;
};

}  // namespace plumbline::server
