// plumbline/marks.h and steps.h: the library owns the memory, so that a trainer may continue to
// write after the run's end.
#include "plumbline/marks.h"

#include <stdlib.h>

#include "agent/facade/error.h"
#include "agent/facade/process.h"
#include "agent/facade/run.h"
#include "agent/facade/text.h"
#include "plumbline/steps.h"

namespace plumbline::facade {
namespace {

// Returns the run's marks; the first call allocates them.
plumbline_marks_t* MarksOf(Run* run) {
  const MutexLock lock(&run->mutex);
  if (run->marks == nullptr) {
    run->marks = static_cast<plumbline_marks_t*>(calloc(1, sizeof(plumbline_marks_t)));
  }
  return run->marks;
}

plumbline_status_t GiveMarks(Run* run, plumbline_marks_t** out) {
  const plumbline_status_t idle = IdleStatus(run);
  if (idle != PLUMBLINE_OK) return idle;
  AgentCall call(run);
  if (call.status() != PLUMBLINE_OK) return call.status();
  if (!PLUMBLINE_AGENT_HAS(&call.agent(), marks)) {
    return Fail(PLUMBLINE_UNAVAILABLE, "marks: the agent library is older than libplumbline");
  }
  plumbline_marks_t* marks = MarksOf(run);
  if (marks == nullptr) return Fail(PLUMBLINE_RESOURCE_EXHAUSTED, "marks: out of memory");
  const plumbline_status_t status = call.agent().marks(call.agent_run(), marks, ThreadError());
  if (status == PLUMBLINE_OK) *out = marks;
  return status;
}

plumbline_steps_t* StepsOf(Run* run) {
  const MutexLock lock(&run->mutex);
  if (run->steps == nullptr) {
    run->steps = static_cast<plumbline_steps_t*>(calloc(1, sizeof(plumbline_steps_t)));
  }
  return run->steps;
}

plumbline_status_t GiveSteps(Run* run, const char* const* series, uint32_t count,
                             plumbline_steps_t** out) {
  const plumbline_status_t idle = IdleStatus(run);
  if (idle != PLUMBLINE_OK) return idle;
  for (uint32_t k = 0; k < count; ++k) {
    const NameFault fault = CheckName(series[k]);
    if (fault == NameFault::kNone) continue;
    return Fail(PLUMBLINE_INVALID_ARGUMENT, "steps: the name %u %s", k, Describe(fault));
  }
  AgentCall call(run);
  if (call.status() != PLUMBLINE_OK) return call.status();
  if (!PLUMBLINE_AGENT_HAS(&call.agent(), steps)) {
    return Fail(PLUMBLINE_UNAVAILABLE, "steps: the agent library is older than libplumbline");
  }
  plumbline_steps_t* steps = StepsOf(run);
  if (steps == nullptr) return Fail(PLUMBLINE_RESOURCE_EXHAUSTED, "steps: out of memory");
  const plumbline_status_t status =
      call.agent().steps(call.agent_run(), series, count, steps, ThreadError());
  if (status == PLUMBLINE_OK) *out = steps;
  return status;
}

}  // namespace
}  // namespace plumbline::facade

using namespace plumbline::facade;

extern "C" plumbline_status_t plumbline_marks(plumbline_run_t* run, plumbline_marks_t** marks) {
  if (marks != nullptr) *marks = nullptr;
  if (run == nullptr || marks == nullptr) {
    return Fail(PLUMBLINE_INVALID_ARGUMENT, "marks: %s is NULL", run == nullptr ? "run" : "marks");
  }
  if (InForkedChild()) return PLUMBLINE_DISABLED;
  return GiveMarks(FromHandle(run), marks);
}

extern "C" plumbline_status_t plumbline_steps(plumbline_run_t* run, const char* const* series,
                                              uint32_t count, plumbline_steps_t** steps) {
  if (steps != nullptr) *steps = nullptr;
  if (run == nullptr || steps == nullptr || (series == nullptr && count > 0)) {
    return Fail(PLUMBLINE_INVALID_ARGUMENT, "steps: %s is NULL",
                run == nullptr     ? "run"
                : steps == nullptr ? "steps"
                                   : "series");
  }
  if (count > PLUMBLINE_STEP_SERIES) {
    return Fail(PLUMBLINE_INVALID_ARGUMENT, "steps: %u series; expected at most %d", count,
                PLUMBLINE_STEP_SERIES);
  }
  if (InForkedChild()) return PLUMBLINE_DISABLED;
  return GiveSteps(FromHandle(run), series, count, steps);
}
