// The C ABI: observations, series and stages.
#include "agent/facade/error.h"
#include "agent/facade/process.h"
#include "agent/facade/run.h"
#include "agent/facade/sized.h"
#include "agent/facade/text.h"

namespace plumbline::facade {
namespace {

// A run that another thread is closing has no step and no due site either: that is no mistake.
plumbline_status_t NoStep(Run* run, const char* call, const char* where) {
  const plumbline_status_t idle = IdleStatus(run);
  if (idle != PLUMBLINE_OK) return idle;
  return Fail(PLUMBLINE_FAILED_PRECONDITION,
              "%s \"%s\": no step is open; expected between step_begin and step_end", call, where);
}

plumbline_status_t ObserveRouting(Site* site, const plumbline_routing_t* routing) {
  Run* run = site->run;
  const plumbline_status_t idle = IdleStatus(run);
  if (idle != PLUMBLINE_OK) return idle;
  const uint64_t step = OpenStep(run);
  if (step == PLUMBLINE_NO_STEP) return NoStep(run, "observe_routing", site->layer);
  if (step < __atomic_load_n(&site->head.next_due, __ATOMIC_RELAXED)) {
    const plumbline_status_t now = IdleStatus(run);
    return now == PLUMBLINE_OK ? static_cast<plumbline_status_t>(PLUMBLINE_NOT_DUE) : now;
  }

  plumbline_routing_t copy = PLUMBLINE_ROUTING_INIT;
  if (routing->size != sizeof(copy)) {
    if (!CopySized("observe_routing", routing, &copy)) return PLUMBLINE_INVALID_ARGUMENT;
    routing = &copy;
  }
  AgentCall call(run);
  if (call.status() != PLUMBLINE_OK) return call.status();
  return call.agent().observe_routing(call.agent_run(),
                                      __atomic_load_n(&site->agent_site, __ATOMIC_ACQUIRE),
                                      static_cast<int64_t>(step), routing, ThreadError());
}

plumbline_status_t RecordScalar(Run* run, const char* name, double value) {
  const plumbline_status_t idle = IdleStatus(run);
  if (idle != PLUMBLINE_OK) return idle;
  const NameFault fault = CheckName(name);
  if (fault != NameFault::kNone) {
    return Fail(PLUMBLINE_INVALID_ARGUMENT, "scalar: the name %s", Describe(fault));
  }
  const uint64_t step = OpenStep(run);
  if (step == PLUMBLINE_NO_STEP) return NoStep(run, "scalar", name);
  AgentCall call(run);
  if (call.status() != PLUMBLINE_OK) return call.status();
  return call.agent().scalar(call.agent_run(), static_cast<int64_t>(step), name, value,
                             ThreadError());
}

int64_t StepOfSpan(Run* run) {
  const uint64_t step = OpenStep(run);
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

plumbline_status_t plumbline_observe_routing(plumbline_site_t* site,
                                             const plumbline_routing_t* routing) {
  if (site == nullptr || routing == nullptr) {
    return Fail(PLUMBLINE_INVALID_ARGUMENT, "observe_routing: %s is NULL",
                site == nullptr ? "site" : "routing");
  }
  if (InForkedChild()) return PLUMBLINE_DISABLED;
  return ObserveRouting(FromHandle(site), routing);
}

plumbline_status_t plumbline_scalar(plumbline_run_t* run, const char* name, double value) {
  if (run == nullptr) return Fail(PLUMBLINE_INVALID_ARGUMENT, "scalar: run is NULL");
  if (InForkedChild()) return PLUMBLINE_DISABLED;
  return RecordScalar(FromHandle(run), name, value);
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
    return Fail(PLUMBLINE_INVALID_ARGUMENT, "span_end: span %llu was not begun",
                static_cast<unsigned long long>(span));
  }
  AgentCall call(run);
  if (call.status() != PLUMBLINE_OK) return call.status();
  return call.agent().span_end(call.agent_run(), span, ThreadError());
}

}  // extern "C"
