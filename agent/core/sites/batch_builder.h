// Gathers evidence into batches and says when one must leave. The drain thread's alone.
#pragma once

#include <cstdint>
#include <memory>

#include "agent/core/shared/options.h"
#include "agent/core/sites/scalar_rows.h"
#include "agent/core/sites/site_table.h"
#include "plumbline/v1/batch.pb.h"
#include "transport/batch_edit.h"

namespace plumbline::agent {

class BatchBuilder {
 public:
  BatchBuilder(const AgentOptions& options, const v1::Source& source,
               std::shared_ptr<SeriesRegistry> registry);

  // A new item, to be filled. RemoveLast takes it back. `order` 0: not known.
  v1::Evidence* Add(const Site& site, int64_t step, uint32_t call, uint64_t order = 0);
  void RemoveLast();
  // Bytes beyond the ordinary that the last item takes: its sample's.
  void NoteBytes(uint64_t bytes) { bytes_ += bytes; }

  // Leaves with the row of its step, or by itself when the batch leaves first.
  void AddScalar(int64_t step, const ScalarValue& value);

  void Declare(const Site& site);
  void AddLoss(const char* cause, const Site* site, const LossCounters::Taken& taken);

  // The trainer ended this step: everything of it was added before.
  void StepEnded(int64_t step, bool sampled);
  // The goodbye; `ending` null: the process ends well.
  void Finished(const v1::Ending* ending = nullptr) {
    finished_ = true;
    if (ending != nullptr) ending_ = *ending;
  }
  int64_t complete_through() const { return complete_through_; }  // -1: no step yet

  // Must the batch leave, whatever comes next?
  bool Full() const;
  // Or because it has waited. `now_ns` monotonic.
  bool Due(uint64_t now_ns) const;
  // batch_ms have passed since the last batch.
  bool IntervalPassed(uint64_t now_ns) const {
    return now_ns - last_taken_ns_ >= uint64_t{options_.batch_ms} * 1'000'000;
  }
  bool empty() const;

  // Ends the batch and begins the next. `newest_step`: the step that the trainer is in.
  transport::SealedBatch Take(int64_t newest_step, uint64_t now_ns);

 private:
  void NoteStep(int64_t step);

  const AgentOptions& options_;
  ScalarRows scalars_;
  v1::Batch batch_;     // reused: its strings keep their memory
  uint64_t items_ = 0;  // evidence and scalars
  uint64_t bytes_ = 0;
  uint64_t last_taken_ns_ = 0;
  int64_t first_step_ = 0;  // of the items in the batch
  int64_t last_step_ = 0;
  int64_t complete_through_ = -1;
  bool progressed_ = false;     // since the last batch
  bool step_boundary_ = false;  // a sampled step ended
  bool finished_ = false;
  v1::Ending ending_;  // with finished_
};

}  // namespace plumbline::agent
