// plumbline_check_router over analysis/routing/intervention/check_router.h.
#pragma once

#include "absl/status/status.h"
#include "plumbline/plumbline.h"

namespace plumbline::agent {

// InvalidArgument: the inputs; FailedPrecondition: the router failed. Calls check.route in this
// thread. Thread-safe.
absl::Status CheckRouter(const plumbline_router_check_t& check,
                         plumbline_router_verdict_t* verdict);

}  // namespace plumbline::agent
