// The façade's runs and sites, and the calls into the agent.
#pragma once

#include <pthread.h>

#include <cstdint>

#include "agent/agent_table.h"

namespace plumbline::facade {

enum class RunState : uint32_t {
  kWaiting,   // opened; the agent was not needed yet
  kOpen,      // calls are passed to the agent
  kFailed,    // the agent is unavailable or refused: every call returns `failure`
  kDisabled,  // PLUMBLINE_DISABLE
  kClosed,
};

struct Run;

// Never freed: handles stay readable. `head` is visible to users and comes first.
struct Site {
  plumbline_site_t head;
  Run* run;
  int32_t kind;
  uint64_t hash;  // of kind, layer, op
  char* layer;
  char* op;
  char* file;  // NULL: not known
  uint32_t line;
  void* agent_site;  // set before the run is open, or by declare_site; atomic
  Site* next;        // in order of registration
};

struct Run {
  plumbline_run_t head;
  RunState state;                        // atomic
  uint32_t in_flight;                    // atomic: calls inside the agent
  pthread_mutex_t mutex;                 // opening, closing, declaring sites
  plumbline_agent_open_t options;        // strings owned
  const plumbline_agent_table_t* agent;  // both set before state becomes kOpen
  void* agent_run;
  plumbline_status_t failure;
  plumbline_error_t failure_text;
  int64_t last_step;            // atomic; -1: none begun
  uint64_t step_after_capture;  // atomic: value of head.step before capture_begin
  Site* sites;                  // atomic head of a list that only grows at its end
  Site* last_site;
  uint32_t site_count;
  plumbline_marks_t* marks;  // made under the mutex; never freed
  plumbline_steps_t* steps;  // likewise
  Run* next;                 // all runs of the process
};

inline Run* FromHandle(plumbline_run_t* run) { return reinterpret_cast<Run*>(run); }
inline Site* FromHandle(plumbline_site_t* site) { return reinterpret_cast<Site*>(site); }

inline uint64_t OpenStep(const Run* run) {
  return __atomic_load_n(&run->head.step, __ATOMIC_RELAXED);
}
// Returns the open step, even if a graph is being captured.
inline uint64_t StepAfter(const Run* run) {
  const uint64_t step = OpenStep(run);
  return step == PLUMBLINE_CAPTURING ? __atomic_load_n(&run->step_after_capture, __ATOMIC_RELAXED)
                                     : step;
}
inline RunState StateOf(const Run* run) {
  RunState state;
  __atomic_load(&run->state, &state, __ATOMIC_SEQ_CST);
  return state;
}

// One call into the agent. Loads and opens the agent if the run still waits for it. While status()
// is OK the agent's run stays alive. Keeps errno.
class AgentCall {
 public:
  explicit AgentCall(Run* run);
  ~AgentCall();
  AgentCall(const AgentCall&) = delete;
  AgentCall& operator=(const AgentCall&) = delete;

  plumbline_status_t status() const { return status_; }
  const plumbline_agent_table_t& agent() const { return *run_->agent; }
  void* agent_run() const { return run_->agent_run; }

 private:
  Run* run_;
  plumbline_status_t status_;
  int errno_;
};

// Returns why a run's calls do nothing: DISABLED, or the failure with its text in the thread's
// error. Returns OK for kWaiting and kOpen.
plumbline_status_t IdleStatus(Run* run);

// Writes `next_due` to every site of the run.
void SetAllDue(Run* run, uint64_t next_due);

// Declares a site to the agent. The run's mutex is held and the agent is open. A site of a kind
// that an older agent does not know is never due, and the result is OK.
plumbline_status_t Declare(Run* run, Site* site);

// Returns true if the run's agent, which is open, takes observations of this kind.
bool AgentKnows(const Run* run, int32_t kind);

// Adds the run to those that fork and exit handlers process, until the process ends.
void Enlist(Run* run);

// Installs the handlers of forks and exit. Idempotent.
void WatchProcess();

plumbline_status_t CloseRun(Run* run, uint32_t timeout_ms);

// Closes every open run, within timeout_ms in all. `ending` may be NULL.
void CloseAllRuns(const plumbline_ending_t* ending, uint32_t timeout_ms);

// Passes the ending to the run's agent, if that is open; never opens it.
plumbline_status_t NoteEnding(Run* run, const plumbline_ending_t* ending);

class MutexLock {
 public:
  explicit MutexLock(pthread_mutex_t* mutex) : mutex_(mutex) { pthread_mutex_lock(mutex_); }
  ~MutexLock() { pthread_mutex_unlock(mutex_); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  pthread_mutex_t* mutex_;
};

}  // namespace plumbline::facade
