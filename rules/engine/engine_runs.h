// The runs of an engine by name, each with its state and its rules, and sums over them.
//
// Thread-safe: a lock guards the map. A run itself belongs to the thread that judges it, except its
// counters.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "rules/engine/run_rules.h"
#include "rules/engine/run_state.h"

namespace plumbline::rules {

struct EngineRun {
  EngineRun(std::string name, RunState::Options options, SeriesSets* sets, RunRules of_run)
      : state(std::move(name), options, sets), rules(std::move(of_run)) {}

  const std::string& name() const { return state.summary().run; }

  RunState state;
  RunRules rules;
  // Written by the thread that judges the run, read by all threads.
  std::atomic<uint64_t> weight{0};        // bytes of open steps
  std::atomic<uint64_t> rules_weight{0};  // bytes that the rules remember
  std::atomic<uint64_t> set_aside{0};     // rules that no longer judge it
  std::atomic<uint64_t> series_left_out{0};
  std::atomic<bool> over{false};
};

class EngineRuns {
 public:
  // Returns nullptr if the run is unknown.
  EngineRun* Find(const std::string& name) const;
  EngineRun& Put(std::unique_ptr<EngineRun> run);
  // Forgets a run, except its losses, which still count. Returns false if it is unknown.
  bool Drop(const std::string& name);
  void Clear();

  // Updates the counters of the run. Called after each batch, so the cost does not grow with the
  // number of runs.
  void Weigh(EngineRun* run);

  std::vector<std::string> Names() const;
  std::vector<std::string> Over() const;  // names of the runs that are over
  std::string Largest() const;            // by the bytes of open steps; empty if no run has any
  uint64_t open_bytes() const { return open_bytes_; }
  uint64_t rule_bytes() const { return rule_bytes_; }
  uint64_t series_left_out(const std::string& name) const;
  uint64_t losses() const;  // evidence items, with those of dropped runs
  // Returns the sum of `of(run)`.
  template <typename Of>
  uint64_t Sum(const Of& of) const {
    uint64_t sum = 0;
    const MutexLock lock(mutex_);
    for (const auto& [name, run] : runs_) sum += of(*run);
    return sum;
  }

  // Part of a checkpoint: the losses of dropped runs.
  uint64_t dropped_losses() const { return dropped_losses_; }
  void SetDroppedLosses(uint64_t losses) { dropped_losses_ = losses; }

 private:
  mutable Mutex mutex_;
  std::map<std::string, std::unique_ptr<EngineRun>> runs_ PLUMB_GUARDED_BY(mutex_);
  std::atomic<uint64_t> open_bytes_{0};
  std::atomic<uint64_t> rule_bytes_{0};
  std::atomic<uint64_t> dropped_losses_{0};
};

}  // namespace plumbline::rules
