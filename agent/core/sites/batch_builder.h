// Gathers evidence into batches and decides when one must be sealed. Used by the drain thread only.
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

  // Adds a new item, which the caller fills. RemoveLast removes it again. `order` 0: not known.
  v1::Evidence* Add(const Site& site, int64_t step, uint32_t call, uint64_t order = 0);
  void RemoveLast();
  // Adds the bytes of the last item's sample, beyond its usual size.
  void NoteBytes(uint64_t bytes) { bytes_ += bytes; }

  // Adds a scalar. It is sent in the row of its step, or alone if the batch is sealed first.
  void AddScalar(int64_t step, const ScalarValue& value);

  void Declare(const Site& site);
  void AddLoss(const char* cause, const Site* site, const LossCounters::Taken& taken);

  // Called when the trainer ended this step, after all evidence of the step was added.
  void StepEnded(int64_t step, bool sampled);
  // Adds the goodbye; `ending` null: the process ends normally.
  void Finished(const v1::Ending* ending = nullptr) {
    finished_ = true;
    if (ending != nullptr) ending_ = *ending;
  }
  int64_t complete_through() const { return complete_through_; }  // -1: no step yet

  // Returns true if the batch must be sealed before anything is added.
  bool Full() const;
  // Returns true if the batch is full or has waited long enough. `now_ns` is monotonic.
  bool Due(uint64_t now_ns) const;
  // Returns true if batch_ms have passed since the last batch.
  bool IntervalPassed(uint64_t now_ns) const {
    return now_ns - last_taken_ns_ >= uint64_t{options_.batch_ms} * 1'000'000;
  }
  bool empty() const;

  // Seals the batch and begins the next one. `newest_step`: the trainer's current step.
  // `next_look`: the step of the next measurement; -1: not known.
  transport::SealedBatch Take(int64_t newest_step, int64_t next_look, uint64_t now_ns);

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
