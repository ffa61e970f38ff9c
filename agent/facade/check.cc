// The C ABI: checks of a router and of a sum.
#include <cstddef>
#include <cstring>

#include "agent/facade/error.h"
#include "agent/facade/loader.h"
#include "agent/facade/process.h"
#include "agent/facade/run.h"
#include "agent/facade/sized.h"

namespace plumbline::facade {
namespace {

plumbline_status_t CheckRouter(const plumbline_router_check_t* given,
                               plumbline_router_verdict_t* out) {
  plumbline_router_check_t check = PLUMBLINE_ROUTER_CHECK_INIT;
  plumbline_router_verdict_t verdict;
  memset(&verdict, 0, sizeof(verdict));
  verdict.size = sizeof(verdict);
  if (!CopySized("check_router", given, &check)) return PLUMBLINE_INVALID_ARGUMENT;
  // An older caller's struct is shorter. Fills the fields that it has.
  uint32_t room = out->size;
  if (room < offsetof(plumbline_router_verdict_t, future_share)) {
    return Fail(PLUMBLINE_INVALID_ARGUMENT,
                "check_router: verdict size is %u; expected sizeof the struct, %zu", room,
                sizeof(verdict));
  }
  if (room > sizeof(verdict)) room = sizeof(verdict);
  if (check.route == nullptr || check.logits == nullptr) {
    return Fail(PLUMBLINE_INVALID_ARGUMENT, "check_router: %s is NULL",
                check.route == nullptr ? "route" : "logits");
  }
  WatchProcess();  // a forked child must not inherit a half-loaded library
  const plumbline_agent_table_t* agent = Agent();
  if (agent == nullptr) return PLUMBLINE_UNAVAILABLE;
  const plumbline_status_t status = agent->check_router(&check, &verdict, ThreadError());
  if (status == PLUMBLINE_OK) {
    memcpy(out, &verdict, room);
    out->size = room;
  }
  return status;
}

plumbline_status_t Fingerprint(const plumbline_sum_t* given, plumbline_fingerprint_result_t* out) {
  plumbline_sum_t sum = PLUMBLINE_SUM_INIT;
  if (!CopySized("fingerprint", given, &sum)) return PLUMBLINE_INVALID_ARGUMENT;
  if (out->size < sizeof(*out)) {  // the first version: no caller's struct is shorter
    return Fail(PLUMBLINE_INVALID_ARGUMENT,
                "fingerprint: result size is %u; expected sizeof the struct, %zu", out->size,
                sizeof(*out));
  }
  if (sum.sum == nullptr) {
    return Fail(PLUMBLINE_INVALID_ARGUMENT, "fingerprint: sum is NULL");
  }
  WatchProcess();
  const plumbline_agent_table_t* agent = Agent();
  if (agent == nullptr) return PLUMBLINE_UNAVAILABLE;
  if (!PLUMBLINE_AGENT_HAS(agent, fingerprint)) {
    return Fail(PLUMBLINE_UNAVAILABLE,
                "fingerprint: expected libplumbline_agent.so of this version, found an older one");
  }
  return agent->fingerprint(&sum, out, ThreadError());
}

}  // namespace
}  // namespace plumbline::facade

using namespace plumbline::facade;

extern "C" plumbline_status_t plumbline_check_router(const plumbline_router_check_t* check,
                                                     plumbline_router_verdict_t* verdict) {
  ErrnoKeeper keeper;
  if (check == nullptr || verdict == nullptr) {
    return Fail(PLUMBLINE_INVALID_ARGUMENT, "check_router: %s is NULL",
                check == nullptr ? "check" : "verdict");
  }
  if (DisabledByEnvironment() || InForkedChild()) return PLUMBLINE_DISABLED;
  return CheckRouter(check, verdict);
}

extern "C" plumbline_status_t plumbline_fingerprint(const plumbline_sum_t* sum,
                                                    plumbline_fingerprint_result_t* result) {
  ErrnoKeeper keeper;
  if (sum == nullptr || result == nullptr) {
    return Fail(PLUMBLINE_INVALID_ARGUMENT, "fingerprint: %s is NULL",
                sum == nullptr ? "sum" : "result");
  }
  if (DisabledByEnvironment() || InForkedChild()) return PLUMBLINE_DISABLED;
  return Fingerprint(sum, result);
}
