// Returns whether the server has ordered the training to end.
#include "agent/facade/error.h"
#include "agent/facade/process.h"
#include "agent/facade/run.h"

using namespace plumbline::facade;

extern "C" plumbline_status_t plumbline_stop_order(plumbline_run_t* run, char* text, uint32_t bytes,
                                                   int32_t* ordered) {
  if (ordered != nullptr) *ordered = 0;
  if (text != nullptr && bytes > 0) *text = '\0';
  if (run == nullptr || ordered == nullptr || (text == nullptr && bytes > 0)) {
    return Fail(PLUMBLINE_INVALID_ARGUMENT, "stop_order: %s is NULL",
                run == nullptr       ? "run"
                : ordered == nullptr ? "ordered"
                                     : "text");
  }
  if (InForkedChild()) return PLUMBLINE_DISABLED;
  if (StateOf(FromHandle(run)) == RunState::kWaiting)
    return PLUMBLINE_OK;  // no server has this run
  AgentCall call(FromHandle(run));
  if (call.status() != PLUMBLINE_OK) return call.status();
  if (!PLUMBLINE_AGENT_HAS(&call.agent(), stop_order)) {
    return Fail(PLUMBLINE_UNAVAILABLE, "stop_order: the agent library is older than libplumbline");
  }
  return call.agent().stop_order(call.agent_run(), text, bytes, ordered, ThreadError());
}
