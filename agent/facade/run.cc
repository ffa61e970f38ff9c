#include "agent/facade/run.h"

#include <time.h>

#include <cerrno>

#include "agent/facade/error.h"
#include "agent/facade/loader.h"
#include "agent/facade/process.h"

namespace plumbline::facade {
namespace {

constexpr uint32_t kExitTimeoutMs = 2000;

Run* g_runs = nullptr;  // atomic head; runs are never removed

void SetState(Run* run, RunState state) { __atomic_store(&run->state, &state, __ATOMIC_SEQ_CST); }

Site* FirstSite(Run* run) { return __atomic_load_n(&run->sites, __ATOMIC_ACQUIRE); }
Site* NextSite(Site* site) { return __atomic_load_n(&site->next, __ATOMIC_ACQUIRE); }

// Fails the run permanently: each later call returns the failure, and no site is due any more. A
// cause that is not the caller's mistake (memory, a disk, a thread) is UNAVAILABLE, which callers
// need not report: the library prints it.
void FailRun(Run* run, plumbline_status_t failure) {
  run->failure = failure == PLUMBLINE_INVALID_ARGUMENT
                     ? failure
                     : static_cast<plumbline_status_t>(PLUMBLINE_UNAVAILABLE);
  run->failure_text = *ThreadError();
  SetAllDue(run, PLUMBLINE_NEVER);
  SetState(run, RunState::kFailed);
}

// Passes everything that happened before to the new agent.
plumbline_status_t CatchUp(Run* run) {
  for (Site* site = FirstSite(run); site != nullptr; site = NextSite(site)) {
    const plumbline_status_t status = Declare(run, site);
    if (status < 0) return status;
  }
  const uint64_t step = StepAfter(run);
  if (step == PLUMBLINE_NO_STEP) return PLUMBLINE_OK;
  return run->agent->step_begin(run->agent_run, static_cast<int64_t>(step), ThreadError());
}

// Called with run->mutex; the state is kWaiting.
void OpenAgentRun(Run* run) {
  const plumbline_agent_table_t* agent = Agent();
  if (agent == nullptr) return FailRun(run, PLUMBLINE_UNAVAILABLE);
  run->agent = agent;
  plumbline_status_t status = agent->open(&run->options, &run->agent_run, ThreadError());
  if (status >= 0) {
    status = CatchUp(run);
    if (status >= 0) return SetState(run, RunState::kOpen);
    plumbline_error_t ignored;
    agent->close(run->agent_run, 0, &ignored);
  }
  FailRun(run, status);
  Warn("run \"%s\": %s. Nothing is observed; the trainer continues.", run->options.run,
       run->failure_text.text);
}

void OpenIfWaiting(Run* run) {
  MutexLock lock(&run->mutex);
  if (StateOf(run) == RunState::kWaiting) OpenAgentRun(run);
}

int64_t NowMs() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<int64_t>(t.tv_sec) * 1000 + t.tv_nsec / 1000000;
}

// Waits until no call is inside the agent; returns false at the deadline.
bool Drained(Run* run, int64_t deadline_ms) {
  while (__atomic_load_n(&run->in_flight, __ATOMIC_SEQ_CST) != 0) {
    if (NowMs() >= deadline_ms) return false;
    const timespec pause{0, 200000};
    nanosleep(&pause, nullptr);
  }
  return true;
}

plumbline_status_t CloseAgentRun(Run* run, uint32_t timeout_ms) {
  const int64_t deadline = NowMs() + timeout_ms;
  if (!Drained(run, deadline)) {
    // Closing during a call would free memory that the call uses, so the agent keeps the run until
    // exit.
    return Fail(PLUMBLINE_DEADLINE_EXCEEDED,
                "close: calls of run \"%s\" were still running after %u ms", run->options.run,
                timeout_ms);
  }
  SetAllDue(run, PLUMBLINE_NEVER);  // a concurrent step_end may have advanced the words
  const int64_t left = deadline - NowMs();
  return run->agent->close(run->agent_run, left > 0 ? static_cast<uint32_t>(left) : 0,
                           ThreadError());
}

}  // namespace

plumbline_status_t IdleStatus(Run* run) {
  switch (StateOf(run)) {
    case RunState::kWaiting:
    case RunState::kOpen:
      return PLUMBLINE_OK;
    case RunState::kFailed:
      *ThreadError() = run->failure_text;
      return run->failure;
    case RunState::kDisabled:
    case RunState::kClosed:
      break;
  }
  return PLUMBLINE_DISABLED;
}

void SetAllDue(Run* run, uint64_t next_due) {
  for (Site* site = FirstSite(run); site != nullptr; site = NextSite(site)) {
    __atomic_store_n(&site->head.next_due, next_due, __ATOMIC_RELAXED);
  }
}

bool AgentKnows(const Run* run, int32_t kind) {
  switch (kind) {
#define PLUMB_KIND(Name, NAME, name, number, op) \
  case PLUMBLINE_KIND_##NAME:                    \
    return PLUMBLINE_AGENT_HAS(run->agent, observe_##name);
#include "proto/evidence_kinds.inc"
    default:
      return true;
  }
}

// An older agent may not know the site's kind: then the site is never due, which is no error.
plumbline_status_t Declare(Run* run, Site* site) {
  if (!AgentKnows(run, site->kind)) {
    __atomic_store_n(&site->head.next_due, PLUMBLINE_NEVER, __ATOMIC_RELAXED);
    return PLUMBLINE_OK;
  }
  plumbline_agent_site_t plain{};
  plain.size = sizeof(plain);
  plain.kind = site->kind;
  plain.layer = site->layer;
  plain.op = site->op;
  const int64_t last = __atomic_load_n(&run->last_step, __ATOMIC_RELAXED);
  plain.step = last >= 0 ? last : 0;
  plain.next_due = &site->head.next_due;
  plain.file = site->file;
  plain.line = site->line;
  void* agent_site = nullptr;
  const plumbline_status_t status =
      run->agent->declare_site(run->agent_run, &plain, &agent_site, ThreadError());
  if (status >= 0) __atomic_store_n(&site->agent_site, agent_site, __ATOMIC_RELEASE);
  return status;
}

// Increments the counter first and reads the state then; CloseRun uses the reverse order, so one of
// the two functions sees the other.
AgentCall::AgentCall(Run* run) : run_(run), status_(PLUMBLINE_OK), errno_(errno) {
  if (StateOf(run) == RunState::kWaiting) OpenIfWaiting(run);
  __atomic_fetch_add(&run->in_flight, 1, __ATOMIC_SEQ_CST);
  if (StateOf(run) == RunState::kOpen) return;
  __atomic_fetch_sub(&run->in_flight, 1, __ATOMIC_SEQ_CST);
  status_ = IdleStatus(run);
  if (status_ == PLUMBLINE_OK) status_ = PLUMBLINE_DISABLED;
}

AgentCall::~AgentCall() {
  if (status_ == PLUMBLINE_OK) __atomic_fetch_sub(&run_->in_flight, 1, __ATOMIC_SEQ_CST);
  errno = errno_;
}

plumbline_status_t CloseRun(Run* run, uint32_t timeout_ms) {
  MutexLock lock(&run->mutex);
  const RunState before = StateOf(run);
  if (before == RunState::kDisabled || before == RunState::kClosed) return PLUMBLINE_DISABLED;
  SetState(run, RunState::kClosed);  // new calls return from here on
  SetAllDue(run, PLUMBLINE_NEVER);
  __atomic_store_n(&run->head.step, PLUMBLINE_NO_STEP, __ATOMIC_RELAXED);
  if (before == RunState::kOpen) return CloseAgentRun(run, timeout_ms);
  if (before == RunState::kWaiting)
    return PLUMBLINE_OK;  // nothing was observed, so nothing is lost
  *ThreadError() = run->failure_text;
  return run->failure;
}

namespace {

// Makes a child's sites never due, so that it pays one branch. Async-signal-safe.
void InChild() {
  for (Run* run = __atomic_load_n(&g_runs, __ATOMIC_ACQUIRE); run != nullptr; run = run->next) {
    SetAllDue(run, PLUMBLINE_NEVER);
  }
}

// Runs that the trainer did not close still send a goodbye.
void AtExit(int exit_status) {
  plumbline_ending_t ending = PLUMBLINE_ENDING_INIT;
  ending.how = PLUMBLINE_ENDING_EXIT;
  ending.code = exit_status;
  CloseAllRuns(exit_status != 0 ? &ending : nullptr, kExitTimeoutMs);
}

}  // namespace

plumbline_status_t NoteEnding(Run* run, const plumbline_ending_t* ending) {
  if (StateOf(run) == RunState::kWaiting) return PLUMBLINE_OK;  // the agent does not have this run
  AgentCall call(run);
  if (call.status() != PLUMBLINE_OK) return call.status();
  if (!PLUMBLINE_AGENT_HAS(&call.agent(), note_ending)) {
    return Fail(PLUMBLINE_UNAVAILABLE, "note_ending: the agent library is older than libplumbline");
  }
  return call.agent().note_ending(call.agent_run(), ending, ThreadError());
}

void CloseAllRuns(const plumbline_ending_t* ending, uint32_t timeout_ms) {
  const int64_t deadline = NowMs() + timeout_ms;
  for (Run* run = __atomic_load_n(&g_runs, __ATOMIC_ACQUIRE); run != nullptr; run = run->next) {
    if (StateOf(run) != RunState::kOpen) continue;
    if (ending != nullptr) NoteEnding(run, ending);
    const int64_t left = deadline - NowMs();
    CloseRun(run, left > 0 ? static_cast<uint32_t>(left) : 0);
  }
}

void WatchProcess() { WatchForks({InChild, AtExit}); }

void Enlist(Run* run) {
  Run* head = __atomic_load_n(&g_runs, __ATOMIC_ACQUIRE);
  do {
    run->next = head;
  } while (
      !__atomic_compare_exchange_n(&g_runs, &head, run, true, __ATOMIC_RELEASE, __ATOMIC_ACQUIRE));
}

}  // namespace plumbline::facade
