// Keeps the memory of all runs within limits: the open steps, and the state of the rules
// (docs/decisions/0020). The run that holds most must free memory: it closes its oldest steps, or
// loses the rules with the largest state. Each such decision is an event, so that a restart and an
// audit of the stored run do the same.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "plumbline/v1/journal.pb.h"
#include "rules/engine/engine.h"
#include "server/judge/held_runs.h"
#include "server/judge/memory_budget.h"
#include "server/judge/quarantine.h"

namespace plumbline::server {

// Not thread-safe: every call needs the turn (judge_threads.h), except limit and made_room.
class MemoryLimits {
 public:
  // The functions of the judge that this uses.
  class Judging {
   public:
    virtual ~Judging() = default;
    virtual absl::Status KeepAndApply(v1::JudgeEvent event) = 0;
    // Runs the task at the run's turn, before other work begins.
    virtual void DoFirst(const std::string& run, std::function<void()> task) = 0;
    // Returns true if work on the run is in progress.
    virtual bool Busy(const std::string& run) const = 0;
    // Returns false once an event could not be written or the server stops.
    virtual bool may_decide() const = 0;
    // Returns true while no event may be written, because the journal is replayed.
    virtual bool catching_up() const = 0;
    virtual RunOwner OwnerOf(const std::string& run) const = 0;
  };

  // Pointers must outlive this. `bytes` is the limit of each kind; 0: none.
  MemoryLimits(Judging* judging, Quarantine* quarantine, HeldRuns* held_runs, uint64_t bytes);
  // Call before anything else.
  void SetEngine(rules::Engine* engine) { engine_ = engine; }

  // Makes runs free memory until the limits hold once every promise is kept.
  void Keep();
  // The same while the journal is replayed. `more_events`: events of the earlier process follow.
  void KeepInReplay(bool more_events);
  // Returns true if promised memory must be freed before other work begins.
  bool urgent() const;

  uint64_t limit() const { return of_steps_.budget.limit(); }
  // Returns how often the oldest steps of a run were closed.
  uint64_t made_room() const { return of_steps_.budget.made_room(); }

 private:
  // Memory of one kind, with the words for it.
  struct Kind {
    MemoryBudget budget;
    uint64_t of_what;  // goes into the event's bytes (close_events.h)
    const char* why;   // for the log
    const char* what;  // for people, before the bytes
  };
  using OfAll = uint64_t (rules::Engine::*)() const;
  using OfRun = uint64_t (rules::Engine::*)(const std::string& run) const;

  MemoryBudget::Held HeldOf(OfAll all, OfRun of_run) const;
  MemoryBudget::OwnerOf Owners() const;
  void Keep(Kind& kind);
  void MakeRoom(const std::string& run, Kind& kind);

  Judging* const judging_;
  Quarantine* const quarantine_;
  HeldRuns* const held_runs_;
  rules::Engine* engine_ = nullptr;
  Kind of_steps_;
  Kind of_rules_;
};

}  // namespace plumbline::server
