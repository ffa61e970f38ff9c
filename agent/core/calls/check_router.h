// Implements plumbline_check_router with analysis/routing/intervention/check_router.h.
#pragma once

#include "absl/status/status.h"
#include "plumbline/plumbline.h"

namespace plumbline::agent {

// Checks a router. Returns InvalidArgument for wrong inputs, and FailedPrecondition if the router
// failed. Calls check.route in this thread. Thread-safe.
absl::Status CheckRouter(const plumbline_router_check_t& check,
                         plumbline_router_verdict_t* verdict);

}  // namespace plumbline::agent
