// The reference router that gives a recorded call exactly: what CheckRouter runs when there is no
// router but a recording whose policy was named.
#pragma once

#include <string>
#include <vector>

#include "analysis/routing/intervention/check_router.h"
#include "analysis/routing/routers/routers.h"
#include "analysis/routing/routing.h"

namespace plumbline::rules {

struct ReplayedRouter {
  std::string problem;  // not empty: "short-id: sentence", nothing else is set
  std::string how;      // "drop by score (softmax)", "first come first served, seq-major order"
  RouterPolicy policy = RouterPolicy::kTokenChoice;
  RouterParameters parameters;
  RouterBatch batch;           // rows in the order of the queue
  std::vector<int32_t> order;  // the recorded row of each

  // The recorded rows as an intervention's inputs.
  RouterInputs Inputs(const RoutingAnalysis& a) const;
  // Routes [T,E] logits in recorded order. Borrows *this.
  RouterCall Call() const;
};

// Tries what the name leaves open: order of the queue, key, pieces. Exact means that every known
// fate of every judged row comes out as recorded. Never wrong about that; whether the policy is
// the trainer's own is for the caller to weigh.
ReplayedRouter ReplayNamedPolicy(const RoutingAnalysis& a);

}  // namespace plumbline::rules
