// The C ABI: runs, steps and sites.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "agent/facade/error.h"
#include "agent/facade/options.h"
#include "agent/facade/process.h"
#include "agent/facade/run.h"
#include "agent/facade/text.h"

namespace plumbline::facade {
namespace {

// The only site of forked children.
constexpr uint64_t kNoStep = PLUMBLINE_NO_STEP;
Site g_never_due = {
    {PLUMBLINE_NEVER, &kNoStep}, nullptr, 0, 0, nullptr, nullptr, nullptr, 0, nullptr, nullptr};

constexpr uint32_t kMaxSites = 65536;  // limit of the server per source

// Copies the strings: the caller's may be gone when the first due call opens the agent.
bool OwnStrings(plumbline_agent_open_t* options) {
  options->run = CopyName(options->run);
  options->server = CopyName(options->server);
  options->record = CopyName(options->record);
  const bool spool_given = options->spool != nullptr;
  if (spool_given) options->spool = CopyName(options->spool);
  if (options->caller != nullptr) options->caller = CopyName(options->caller);
  if (spool_given && options->spool == nullptr) return false;
  return options->run != nullptr && options->server != nullptr && options->record != nullptr;
}

Run* NewRun() {
  auto* run = static_cast<Run*>(calloc(1, sizeof(Run)));
  if (run == nullptr) return nullptr;
  run->head.step = PLUMBLINE_NO_STEP;
  run->last_step = -1;
  pthread_mutex_init(&run->mutex, nullptr);
  return run;
}

plumbline_status_t OutOfMemory(const char* call) {
  return Fail(PLUMBLINE_RESOURCE_EXHAUSTED, "%s: out of memory", call);
}

plumbline_status_t OpenDisabled(plumbline_run_t** out) {
  Run* run = NewRun();
  if (run == nullptr) return OutOfMemory("open");
  run->state = RunState::kDisabled;
  Enlist(run);
  *out = &run->head;
  return PLUMBLINE_DISABLED;
}

// Threads and connections of the library do not exist in a child, so nothing can be opened there.
// Prints a message, since a fork is rarely meant to disable observation.
plumbline_status_t OpenInForkedChild(plumbline_run_t** out) {
  const plumbline_status_t status = OpenDisabled(out);
  if (status != PLUMBLINE_DISABLED) return status;
  Fail(PLUMBLINE_DISABLED,
       "open: this process was forked from a process with an open run, and cannot observe; "
       "expected a new process (multiprocessing: start method spawn or forkserver), or no open run "
       "before the fork");
  // Does not use stdio: its locks may be held forever in a child of a bare clone.
  dprintf(STDERR_FILENO,
          "plumbline: %s. Nothing is observed in this process; the trainer continues.\n",
          ThreadError()->text);
  return PLUMBLINE_DISABLED;
}

Site* FindSite(Run* run, uint64_t hash, int32_t kind, const char* layer, const char* op) {
  for (Site* site = run->sites; site != nullptr; site = site->next) {
    if (site->hash == hash && site->kind == kind && strcmp(site->layer, layer) == 0 &&
        strcmp(site->op, op) == 0) {
      return site;
    }
  }
  return nullptr;
}

Site* NewSite(Run* run, uint64_t hash, int32_t kind, const char* layer, const char* op) {
  auto* site = static_cast<Site*>(calloc(1, sizeof(Site)));
  if (site == nullptr) return nullptr;
  site->layer = CopyName(layer);
  site->op = CopyName(op);
  if (site->layer == nullptr || site->op == nullptr) {
    free(site->layer);
    free(site->op);
    free(site);
    return nullptr;
  }
  site->head.step = &run->head.step;
  site->run = run;
  site->kind = kind;
  site->hash = hash;
  const RunState state = StateOf(run);
  if (state != RunState::kWaiting && state != RunState::kOpen) {
    site->head.next_due = PLUMBLINE_NEVER;
  }
  return site;
}

// Appends at the end and with release, since other threads walk the list without a lock.
void Append(Run* run, Site* site) {
  Site** link = run->last_site != nullptr ? &run->last_site->next : &run->sites;
  __atomic_store_n(link, site, __ATOMIC_RELEASE);
  run->last_site = site;
  ++run->site_count;
}

plumbline_status_t CheckSiteName(const char* what, const char* name) {
  const NameFault fault = CheckName(name);
  if (fault == NameFault::kNone) return PLUMBLINE_OK;
  return Fail(PLUMBLINE_INVALID_ARGUMENT, "site: %s %s", what, Describe(fault));
}

// Called with the run's mutex.
plumbline_status_t AddSite(Run* run, uint64_t hash, int32_t kind, const char* layer, const char* op,
                           const char* file, uint32_t line, Site** out) {
  if (run->site_count >= kMaxSites) {
    return Fail(PLUMBLINE_RESOURCE_EXHAUSTED,
                "site \"%s\": the run already has %u sites, the limit", layer, run->site_count);
  }
  Site* site = NewSite(run, hash, kind, layer, op);
  if (site == nullptr) return OutOfMemory("site");
  if (file != nullptr) site->file = CopyName(EndOfFile(file));  // without memory: not known
  site->line = line;
  if (StateOf(run) == RunState::kOpen) {
    const plumbline_status_t status = Declare(run, site);
    if (status < 0) return status;  // the agent may use the due word: the site is not freed
  }
  Append(run, site);
  *out = site;
  return PLUMBLINE_OK;
}

plumbline_status_t EndStep(Run* run) {
  AgentCall call(run);  // opens the agent here at the latest: progress counts, even without sites
  const uint64_t step = OpenStep(run);
  __atomic_store_n(&run->head.step, PLUMBLINE_NO_STEP, __ATOMIC_RELAXED);
  if (call.status() != PLUMBLINE_OK) return call.status();
  return call.agent().step_end(call.agent_run(), static_cast<int64_t>(step), ThreadError());
}

plumbline_status_t Capturing(const char* call) {
  return Fail(PLUMBLINE_FAILED_PRECONDITION,
              "%s: a graph is being captured; expected capture_end first", call);
}

// During a capture the step word has a special value; the open step is stored separately.
plumbline_status_t CaptureBegin(Run* run, void* replay_stream) {
  AgentCall call(run);
  if (call.status() != PLUMBLINE_OK) return call.status();
  if (!PLUMBLINE_AGENT_HAS(&call.agent(), capture_begin)) {
    return Fail(PLUMBLINE_UNAVAILABLE,
                "capture_begin: the agent library is older than libplumbline");
  }
  const uint64_t step = OpenStep(run);
  if (step == PLUMBLINE_CAPTURING) return Capturing("capture_begin");
  const plumbline_status_t status =
      call.agent().capture_begin(call.agent_run(), replay_stream, ThreadError());
  if (status != PLUMBLINE_OK) return status;
  __atomic_store_n(&run->step_after_capture, step, __ATOMIC_RELAXED);
  __atomic_store_n(&run->head.step, PLUMBLINE_CAPTURING, __ATOMIC_RELAXED);
  return PLUMBLINE_OK;
}

plumbline_status_t CaptureEnd(Run* run) {
  const plumbline_status_t idle = IdleStatus(run);
  if (idle != PLUMBLINE_OK) return idle;
  if (OpenStep(run) != PLUMBLINE_CAPTURING) {
    return Fail(PLUMBLINE_FAILED_PRECONDITION, "capture_end: expected capture_begin first");
  }
  __atomic_store_n(&run->head.step, StepAfter(run), __ATOMIC_RELAXED);
  return PLUMBLINE_OK;
}

// Evidence is joined over ranks by step, so a step number must be unique within an attempt.
plumbline_status_t CheckStep(Run* run, int64_t step) {
  const int64_t last = __atomic_load_n(&run->last_step, __ATOMIC_RELAXED);
  if (step < 0) {
    return Fail(PLUMBLINE_INVALID_ARGUMENT, "step_begin: step %lld; expected 0 or more",
                static_cast<long long>(step));
  }
  if (step <= last) {
    return Fail(PLUMBLINE_FAILED_PRECONDITION,
                "step_begin: step %lld after step %lld; expected a higher step. If the trainer "
                "goes back, open the run again with the next attempt",
                static_cast<long long>(step), static_cast<long long>(last));
  }
  return PLUMBLINE_OK;
}

// Ends a step that is still open.
plumbline_status_t BeginStep(Run* run, int64_t step) {
  if (OpenStep(run) == PLUMBLINE_CAPTURING) return Capturing("step_begin");
  plumbline_status_t status = CheckStep(run, step);
  if (status != PLUMBLINE_OK) return status;
  if (OpenStep(run) != PLUMBLINE_NO_STEP) EndStep(run);
  // Runs under the mutex, so that an agent which another thread is opening gets this step once.
  MutexLock lock(&run->mutex);
  __atomic_store_n(&run->last_step, step, __ATOMIC_RELAXED);
  __atomic_store_n(&run->head.step, static_cast<uint64_t>(step), __ATOMIC_RELAXED);
  if (StateOf(run) != RunState::kOpen) return IdleStatus(run);
  return run->agent->step_begin(run->agent_run, step, ThreadError());
}

// Returns the default op of a kind; nullptr: unknown kind.
const char* DefaultOp(int32_t kind) {
  switch (kind) {
#define PLUMB_KIND(Name, NAME, name, number, op) \
  case PLUMBLINE_KIND_##NAME:                    \
    return op;
#include "proto/evidence_kinds.inc"
    default:
      return nullptr;
  }
}

plumbline_status_t SetRank(Run* run, int32_t rank, int32_t world_size) {
  const plumbline_status_t status = CheckRanks("set_rank", rank, world_size);
  if (status != PLUMBLINE_OK) return status;
  MutexLock lock(&run->mutex);  // the agent, once opened, has a copy
  if (StateOf(run) == RunState::kOpen) {
    return Fail(PLUMBLINE_FAILED_PRECONDITION,
                "set_rank: run \"%s\" has already recorded evidence as rank %u of %u; expected "
                "set_rank, or open with the rank, before the first evidence",
                run->options.run, run->options.rank, run->options.world_size);
  }
  if (StateOf(run) != RunState::kWaiting) return IdleStatus(run);
  run->options.rank = static_cast<uint32_t>(rank);
  run->options.world_size = static_cast<uint32_t>(world_size);
  return PLUMBLINE_OK;
}

// Checks a handle before anything else; OK: continue.
plumbline_status_t Refusal(const char* call, const plumbline_run_t* run) {
  if (run == nullptr) return Fail(PLUMBLINE_INVALID_ARGUMENT, "%s: run is NULL", call);
  return InForkedChild() ? PLUMBLINE_DISABLED : PLUMBLINE_OK;
}

}  // namespace
}  // namespace plumbline::facade

using namespace plumbline::facade;

extern "C" {

// This is cheap, because the agent library is loaded with the first observation. A forked worker,
// or a trainer that observes nothing, has no cost.
plumbline_status_t plumbline_open(const plumbline_open_options_t* options, plumbline_run_t** out) {
  ErrnoKeeper keeper;
  if (out == nullptr) return Fail(PLUMBLINE_INVALID_ARGUMENT, "open: run is NULL");
  *out = nullptr;
  if (DisabledByEnvironment()) return OpenDisabled(out);
  if (InForkedChild()) return OpenInForkedChild(out);
  plumbline_agent_open_t resolved;
  const plumbline_status_t status = ResolveOptions(options, &resolved);
  if (status != PLUMBLINE_OK) return status;
  Run* run = NewRun();
  if (run == nullptr || !OwnStrings(&resolved)) return OutOfMemory("open");
  run->options = resolved;
  Enlist(run);
  WatchProcess();
  *out = &run->head;
  return PLUMBLINE_OK;
}

plumbline_status_t plumbline_set_rank(plumbline_run_t* handle, int32_t rank, int32_t world_size) {
  ErrnoKeeper keeper;
  const plumbline_status_t refusal = Refusal("set_rank", handle);
  if (refusal != PLUMBLINE_OK) return refusal;
  return SetRank(FromHandle(handle), rank, world_size);
}

plumbline_status_t plumbline_step_begin(plumbline_run_t* handle, int64_t step) {
  ErrnoKeeper keeper;
  const plumbline_status_t refusal = Refusal("step_begin", handle);
  if (refusal != PLUMBLINE_OK) return refusal;
  Run* run = FromHandle(handle);
  const plumbline_status_t idle = IdleStatus(run);
  return idle == PLUMBLINE_OK ? BeginStep(run, step) : idle;
}

plumbline_status_t plumbline_step_end(plumbline_run_t* handle) {
  const plumbline_status_t refusal = Refusal("step_end", handle);
  if (refusal != PLUMBLINE_OK) return refusal;
  Run* run = FromHandle(handle);
  const plumbline_status_t idle = IdleStatus(run);
  if (idle != PLUMBLINE_OK) return idle;
  if (OpenStep(run) == PLUMBLINE_CAPTURING) return Capturing("step_end");
  if (OpenStep(run) == PLUMBLINE_NO_STEP) {
    const plumbline_status_t now = IdleStatus(run);  // another thread may just have closed it
    return now != PLUMBLINE_OK ? now
                               : Fail(PLUMBLINE_FAILED_PRECONDITION, "step_end: no step is open");
  }
  return EndStep(run);
}

plumbline_status_t plumbline_capture_begin(plumbline_run_t* handle, void* replay_stream) {
  const plumbline_status_t refusal = Refusal("capture_begin", handle);
  return refusal != PLUMBLINE_OK ? refusal : CaptureBegin(FromHandle(handle), replay_stream);
}

plumbline_status_t plumbline_capture_end(plumbline_run_t* handle) {
  const plumbline_status_t refusal = Refusal("capture_end", handle);
  return refusal != PLUMBLINE_OK ? refusal : CaptureEnd(FromHandle(handle));
}

plumbline_status_t plumbline_flush(plumbline_run_t* handle, uint32_t timeout_ms) {
  const plumbline_status_t refusal = Refusal("flush", handle);
  if (refusal != PLUMBLINE_OK) return refusal;
  Run* run = FromHandle(handle);
  if (StateOf(run) == RunState::kWaiting) return PLUMBLINE_OK;  // nothing was observed yet
  AgentCall call(run);
  if (call.status() != PLUMBLINE_OK) return call.status();
  return call.agent().flush(call.agent_run(), timeout_ms, ThreadError());
}

plumbline_status_t plumbline_close(plumbline_run_t* handle, uint32_t timeout_ms) {
  ErrnoKeeper keeper;
  const plumbline_status_t refusal = Refusal("close", handle);
  return refusal == PLUMBLINE_OK ? CloseRun(FromHandle(handle), timeout_ms) : refusal;
}

plumbline_status_t plumbline_site(plumbline_run_t* handle, int32_t kind, const char* layer,
                                  const char* op, plumbline_site_t** out) {
  return plumbline_site_at(handle, kind, layer, op, nullptr, 0, out);
}

plumbline_status_t plumbline_site_at(plumbline_run_t* handle, int32_t kind, const char* layer,
                                     const char* op, const char* file, uint32_t line,
                                     plumbline_site_t** out) {
  ErrnoKeeper keeper;
  if (out == nullptr) return Fail(PLUMBLINE_INVALID_ARGUMENT, "site: site is NULL");
  *out = nullptr;
  if (handle == nullptr) return Fail(PLUMBLINE_INVALID_ARGUMENT, "site: run is NULL");
  if (InForkedChild()) {  // no lock here: another thread may have held it during the fork
    *out = &g_never_due.head;
    return PLUMBLINE_DISABLED;
  }
  const char* default_op = DefaultOp(kind);
  if (default_op == nullptr) {
    return Fail(PLUMBLINE_INVALID_ARGUMENT, "site: kind is %d; expected one of PLUMBLINE_KIND_*",
                kind);
  }
  if (op == nullptr || *op == '\0') op = default_op;
  plumbline_status_t status = CheckSiteName("layer", layer);
  if (status == PLUMBLINE_OK) status = CheckSiteName("op", op);
  if (status != PLUMBLINE_OK) return status;

  Run* run = FromHandle(handle);
  const uint64_t hash = HashName(op, HashName(layer)) + static_cast<uint64_t>(kind);
  MutexLock lock(&run->mutex);
  Site* site = FindSite(run, hash, kind, layer, op);
  if (site == nullptr) status = AddSite(run, hash, kind, layer, op, file, line, &site);
  if (status == PLUMBLINE_OK) *out = &site->head;
  return status;
}

}  // extern "C"
