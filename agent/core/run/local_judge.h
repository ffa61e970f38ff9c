// Judges the run in its own process: the rules see the batches that go to the record, and the first
// finding of the level that stop_on names becomes the order to end the training. Used without a
// server only.
//
// Each process judges its own evidence as a world of one rank. What only a comparison of ranks
// shows is found by `plumb audit` of the records.
#pragma once

#include <atomic>
#include <deque>
#include <memory>

#include "absl/status/statusor.h"
#include "agent/core/run/run_state.h"
#include "agent/core/shared/threads.h"
#include "base/mutex.h"
#include "plumbline/v1/finding.pb.h"
#include "rules/engine/engine.h"
#include "transport/batch_edit.h"

namespace plumbline::agent {

class LocalJudge : public std::enable_shared_from_this<LocalJudge> {
 public:
  using Clock = DetachedThread::Clock;

  // Batches that may wait. Of a batch beyond them only the declarations are kept, and its evidence
  // counts as lost ("local-judge"), so that no rule takes it for complete.
  static constexpr size_t kMostWaiting = 256;

  // Starts the thread. Returns an error if the rules cannot be made or the system refuses.
  static absl::StatusOr<std::shared_ptr<LocalJudge>> Start(std::shared_ptr<RunState> run);

  // Called by the drain thread for each sealed batch, in order.
  void Push(const transport::SealedBatch& batch);

  // Ends the thread after the batch that it judges. Batches that wait are not judged: the training
  // is over. Returns false if the deadline passed.
  bool Finish(Clock::time_point deadline);

  uint64_t CpuNs() const { return thread_.CpuNs(); }

 private:
  explicit LocalJudge(std::shared_ptr<RunState> run) : run_(std::move(run)) {}
  void Loop();
  bool Next(transport::SealedBatch* batch);
  void Judge(const transport::SealedBatch& batch);
  void OnVerdict(const v1::Verdict& verdict);

  const std::shared_ptr<RunState> run_;
  std::unique_ptr<rules::Engine> engine_;  // used by the thread only
  DetachedThread thread_;
  std::atomic<bool> closing_{false};
  Mutex mutex_;
  CondVar changed_;
  std::deque<transport::SealedBatch> waiting_ PLUMB_GUARDED_BY(mutex_);
};

}  // namespace plumbline::agent
