// The C ABI: observations, series and stages.
#include "agent/facade/error.h"
#include "agent/facade/process.h"
#include "agent/facade/run.h"
#include "agent/facade/sized.h"
#include "agent/facade/text.h"
#include "plumbline/together.h"

namespace plumbline::facade {
namespace {

// Returns the status of a call without an open step. If another thread is closing the run, that is
// no error.
plumbline_status_t NoStep(Run* run, const char* call, const char* where) {
  const plumbline_status_t idle = IdleStatus(run);
  if (idle != PLUMBLINE_OK) return idle;
  return Fail(PLUMBLINE_FAILED_PRECONDITION,
              "%s \"%s\": no step is open; expected between step_begin and step_end", call, where);
}

// Returns the open step of a due site in *step; otherwise the status to return, with *step
// unchanged.
plumbline_status_t DueStep(Site* site, const char* call, uint64_t* step) {
  Run* run = site->run;
  const plumbline_status_t idle = IdleStatus(run);
  if (idle != PLUMBLINE_OK) return idle;
  const uint64_t open = OpenStep(run);
  if (open == PLUMBLINE_NO_STEP) return NoStep(run, call, site->layer);
  if (open < __atomic_load_n(&site->head.next_due, __ATOMIC_RELAXED)) {
    const plumbline_status_t now = IdleStatus(run);
    return now == PLUMBLINE_OK ? static_cast<plumbline_status_t>(PLUMBLINE_NOT_DUE) : now;
  }
  *step = open;
  return PLUMBLINE_OK;
}

plumbline_status_t CheckKind(const Site* site, int32_t kind, const char* call) {
  if (site->kind == kind || site->kind == 0) return PLUMBLINE_OK;  // 0: a forked child's site
  return Fail(PLUMBLINE_INVALID_ARGUMENT, "%s \"%s\": the site's kind is %d; expected %d", call,
              site->layer, site->kind, kind);
}

plumbline_status_t OlderAgent(const char* call) {
  return Fail(PLUMBLINE_UNAVAILABLE, "%s: the agent library is older than libplumbline %s", call,
              plumbline_version());
}

// Checks both pointers before anything is read through them.
plumbline_status_t Refusal(const char* call, const void* site, const char* what,
                           const void* argument) {
  if (site == nullptr || argument == nullptr) {
    return Fail(PLUMBLINE_INVALID_ARGUMENT, "%s: %s is NULL", call,
                site == nullptr ? "site" : what);
  }
  return InForkedChild() ? PLUMBLINE_DISABLED : PLUMBLINE_OK;
}

// `entry` is a member of the agent's table; Struct begins with its size.
template <typename Struct, typename Entry>
plumbline_status_t Observe(plumbline_site_t* handle, int32_t kind, const char* name,
                           const Struct* given, const Struct& defaults, Entry entry) {
  constexpr size_t kVerb = sizeof("observe_") - 1;  // the remaining text is the argument's name
  plumbline_status_t status = Refusal(name, handle, name + kVerb, given);
  if (status != PLUMBLINE_OK) return status;
  Site* site = FromHandle(handle);
  status = CheckKind(site, kind, name);
  uint64_t step = 0;
  if (status == PLUMBLINE_OK) status = DueStep(site, name, &step);
  if (status != PLUMBLINE_OK) return status;
  // A caller of another version: fields that it does not know get their defaults.
  Struct copy;
  if (given->size != sizeof(Struct)) {
    copy = defaults;
    if (!CopySized(name, given, &copy)) return PLUMBLINE_INVALID_ARGUMENT;
    given = &copy;
  }
  AgentCall call(site->run);  // from here on the run cannot be closed
  if (call.status() != PLUMBLINE_OK) return call.status();
  if (!AgentKnows(site->run, kind)) return OlderAgent(name);
  return (call.agent().*entry)(call.agent_run(),
                               __atomic_load_n(&site->agent_site, __ATOMIC_ACQUIRE),
                               static_cast<int64_t>(step), given, ThreadError());
}

// Each call below first makes the cheap checks (closed, no step open), then enters the agent. If
// the agent is older than the call, the call reports that and does nothing.

plumbline_status_t SampleIndices(Site* site, uint64_t count, uint64_t* out, uint32_t capacity,
                                 uint32_t* n) {
  uint64_t step = 0;
  const plumbline_status_t status = DueStep(site, "sample_indices", &step);
  if (status != PLUMBLINE_OK) return status;
  AgentCall call(site->run);
  if (call.status() != PLUMBLINE_OK) return call.status();
  if (!PLUMBLINE_AGENT_HAS(&call.agent(), sample_indices)) return OlderAgent("sample_indices");
  return call.agent().sample_indices(
      call.agent_run(), __atomic_load_n(&site->agent_site, __ATOMIC_ACQUIRE),
      static_cast<int64_t>(step), count, out, capacity, n, ThreadError());
}

plumbline_status_t RecordScalar(Run* run, const char* name, double value, const char* file,
                                uint32_t line) {
  const plumbline_status_t idle = IdleStatus(run);
  if (idle != PLUMBLINE_OK) return idle;
  const NameFault fault = CheckName(name);
  if (fault != NameFault::kNone) {
    return Fail(PLUMBLINE_INVALID_ARGUMENT, "scalar: the name %s", Describe(fault));
  }
  const uint64_t step = StepAfter(run);
  if (step == PLUMBLINE_NO_STEP) return NoStep(run, "scalar", name);
  AgentCall call(run);
  if (call.status() != PLUMBLINE_OK) return call.status();
  if (file != nullptr && PLUMBLINE_AGENT_HAS(&call.agent(), scalar_at)) {
    return call.agent().scalar_at(call.agent_run(), static_cast<int64_t>(step), name, value, file,
                                  line, ThreadError());
  }
  return call.agent().scalar(call.agent_run(), static_cast<int64_t>(step), name, value,
                             ThreadError());
}

plumbline_status_t PlanLook(Run* run, int64_t step) {
  const plumbline_status_t idle = IdleStatus(run);
  if (idle != PLUMBLINE_OK) return idle;
  AgentCall call(run);
  if (call.status() != PLUMBLINE_OK) return call.status();
  if (!PLUMBLINE_AGENT_HAS(&call.agent(), next_look)) return OlderAgent("next_look");
  return call.agent().next_look(call.agent_run(), step, ThreadError());
}

plumbline_status_t ChargeCaller(Run* run, uint64_t ns) {
  const plumbline_status_t idle = IdleStatus(run);
  if (idle != PLUMBLINE_OK) return idle;
  AgentCall call(run);
  if (call.status() != PLUMBLINE_OK) return call.status();
  if (!PLUMBLINE_AGENT_HAS(&call.agent(), charge)) return OlderAgent("charge");
  call.agent().charge(call.agent_run(), ns);
  return PLUMBLINE_OK;
}

// Sets due words back to the open step; the agent knows the remaining budget.
plumbline_status_t LookClosely(Run* run, uint32_t steps) {
  const plumbline_status_t idle = IdleStatus(run);
  if (idle != PLUMBLINE_OK) return idle;
  const uint64_t step = StepAfter(run);
  if (step == PLUMBLINE_NO_STEP) return NoStep(run, "look", "");
  AgentCall call(run);
  if (call.status() != PLUMBLINE_OK) return call.status();
  if (!PLUMBLINE_AGENT_HAS(&call.agent(), look)) return OlderAgent("look");
  return call.agent().look(call.agent_run(), static_cast<int64_t>(step), steps, ThreadError());
}

using Together = plumbline_status_t (*plumbline_agent_table_t::*)(void*, plumbline_error_t*);

// If the agent is not loaded, no calls wait in it, so this does not load it.
plumbline_status_t CallTogether(const char* name, plumbline_run_t* handle, Together entry) {
  if (handle == nullptr) return Fail(PLUMBLINE_INVALID_ARGUMENT, "%s: run is NULL", name);
  if (InForkedChild()) return PLUMBLINE_DISABLED;
  Run* run = FromHandle(handle);
  const plumbline_status_t idle = IdleStatus(run);
  if (idle != PLUMBLINE_OK) return idle;
  if (StateOf(run) == RunState::kWaiting) return PLUMBLINE_NOT_DUE;
  AgentCall call(run);
  if (call.status() != PLUMBLINE_OK) return call.status();
  if (!PLUMBLINE_AGENT_HAS(&call.agent(), together_end)) return OlderAgent(name);
  return (call.agent().*entry)(call.agent_run(), ThreadError());
}

// Between two steps a span belongs to the last one; before the first, to step 0.
int64_t StepOfSpan(Run* run) {
  const uint64_t step = StepAfter(run);
  if (step != PLUMBLINE_NO_STEP) return static_cast<int64_t>(step);
  const int64_t last = __atomic_load_n(&run->last_step, __ATOMIC_RELAXED);
  return last >= 0 ? last : 0;
}

plumbline_status_t BeginSpan(Run* run, const char* kind, const char* name, uint64_t* span) {
  const plumbline_status_t idle = IdleStatus(run);
  if (idle != PLUMBLINE_OK) return idle;
  NameFault fault = CheckName(kind);
  if (fault != NameFault::kNone) {
    return Fail(PLUMBLINE_INVALID_ARGUMENT, "span_begin: the kind %s", Describe(fault));
  }
  if (name == nullptr || *name == '\0') name = kind;
  fault = CheckName(name);
  if (fault != NameFault::kNone) {
    return Fail(PLUMBLINE_INVALID_ARGUMENT, "span_begin \"%s\": the name %s", kind,
                Describe(fault));
  }
  const int64_t step = StepOfSpan(run);
  AgentCall call(run);
  if (call.status() != PLUMBLINE_OK) return call.status();
  return call.agent().span_begin(call.agent_run(), step, kind, name, span, ThreadError());
}

}  // namespace
}  // namespace plumbline::facade

using namespace plumbline::facade;

extern "C" {

// plumbline_observe_routing, plumbline_observe_tensor, ...: one call for each kind of evidence.
#define PLUMB_KIND(Name, NAME, name, number, op)                                    \
  plumbline_status_t plumbline_observe_##name(plumbline_site_t* site,               \
                                              const plumbline_##name##_t* given) {  \
    static const plumbline_##name##_t kDefaults = PLUMBLINE_##NAME##_INIT;          \
    return Observe(site, PLUMBLINE_KIND_##NAME, "observe_" #name, given, kDefaults, \
                   &plumbline_agent_table_t::observe_##name);                       \
  }
#include "proto/evidence_kinds.inc"

plumbline_status_t plumbline_sample_indices(plumbline_site_t* site, uint64_t count, uint64_t* out,
                                            uint32_t capacity, uint32_t* n) {
  if (n != nullptr) *n = 0;
  if (out == nullptr && capacity > 0) {
    return Fail(PLUMBLINE_INVALID_ARGUMENT, "sample_indices: out is NULL");
  }
  const plumbline_status_t refusal = Refusal("sample_indices", site, "n", n);
  return refusal == PLUMBLINE_OK ? SampleIndices(FromHandle(site), count, out, capacity, n)
                                 : refusal;
}

plumbline_status_t plumbline_scalar(plumbline_run_t* run, const char* name, double value) {
  if (run == nullptr) return Fail(PLUMBLINE_INVALID_ARGUMENT, "scalar: run is NULL");
  if (InForkedChild()) return PLUMBLINE_DISABLED;
  return RecordScalar(FromHandle(run), name, value, nullptr, 0);
}

plumbline_status_t plumbline_scalar_at(plumbline_run_t* run, const char* name, double value,
                                       const char* file, uint32_t line) {
  if (run == nullptr) return Fail(PLUMBLINE_INVALID_ARGUMENT, "scalar: run is NULL");
  if (InForkedChild()) return PLUMBLINE_DISABLED;
  return RecordScalar(FromHandle(run), name, value, file, line);
}

plumbline_status_t plumbline_next_look(plumbline_run_t* run, int64_t step) {
  if (run == nullptr || step < 0) {
    return Fail(PLUMBLINE_INVALID_ARGUMENT,
                run == nullptr ? "next_look: run is NULL" : "next_look: expected a step >= 0");
  }
  if (InForkedChild()) return PLUMBLINE_DISABLED;
  return PlanLook(FromHandle(run), step);
}

plumbline_status_t plumbline_charge(plumbline_run_t* run, uint64_t ns) {
  if (run == nullptr) return Fail(PLUMBLINE_INVALID_ARGUMENT, "charge: run is NULL");
  if (InForkedChild()) return PLUMBLINE_DISABLED;
  return ChargeCaller(FromHandle(run), ns);
}

plumbline_status_t plumbline_look(plumbline_run_t* run, uint32_t steps) {
  if (run == nullptr || steps == 0) {
    return Fail(PLUMBLINE_INVALID_ARGUMENT,
                run == nullptr ? "look: run is NULL" : "look: steps is 0, expected 1 or more");
  }
  if (InForkedChild()) return PLUMBLINE_DISABLED;
  return LookClosely(FromHandle(run), steps);
}

plumbline_status_t plumbline_together_begin(plumbline_run_t* run) {
  return CallTogether("together_begin", run, &plumbline_agent_table_t::together_begin);
}

plumbline_status_t plumbline_together_end(plumbline_run_t* run) {
  return CallTogether("together_end", run, &plumbline_agent_table_t::together_end);
}

plumbline_status_t plumbline_span_begin(plumbline_run_t* run, const char* kind, const char* name,
                                        uint64_t* span) {
  if (span != nullptr) *span = 0;
  if (run == nullptr || span == nullptr) {
    return Fail(PLUMBLINE_INVALID_ARGUMENT, "span_begin: %s is NULL",
                run == nullptr ? "run" : "span");
  }
  if (InForkedChild()) return PLUMBLINE_DISABLED;
  return BeginSpan(FromHandle(run), kind, name, span);
}

plumbline_status_t plumbline_span_end(plumbline_run_t* handle, uint64_t span) {
  if (handle == nullptr) return Fail(PLUMBLINE_INVALID_ARGUMENT, "span_end: run is NULL");
  if (InForkedChild()) return PLUMBLINE_DISABLED;
  Run* run = FromHandle(handle);
  const plumbline_status_t idle = IdleStatus(run);
  if (idle != PLUMBLINE_OK) return idle;
  if (StateOf(run) == RunState::kWaiting || span == 0) {
    return Fail(PLUMBLINE_INVALID_ARGUMENT, "span_end: span %llu does not exist",
                static_cast<unsigned long long>(span));
  }
  AgentCall call(run);
  if (call.status() != PLUMBLINE_OK) return call.status();
  return call.agent().span_end(call.agent_run(), span, ThreadError());
}

}  // extern "C"
