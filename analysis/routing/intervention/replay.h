// Finds the reference router that gives a recorded call exactly. CheckRouter runs it if there is no
// router but a recording with a named policy.
#pragma once

#include <string>
#include <vector>

#include "analysis/routing/intervention/check_router.h"
#include "analysis/routing/routers/routers.h"
#include "analysis/routing/routing.h"

namespace plumbline::analysis {

struct ReplayedRouter {
  std::string problem;  // "short-id: sentence" if there is none; nothing else is set then
  std::string how;      // "drop by score (softmax)", "first come first served, seq-major order"
  RouterPolicy policy = RouterPolicy::kTokenChoice;
  RouterParameters parameters;
  RouterBatch batch;           // rows in the order of the queue
  std::vector<int32_t> order;  // recorded row of each row

  // Returns the recorded rows as the inputs of an intervention.
  RouterInputs Inputs(const RoutingAnalysis& a) const;
  // Returns a function that routes [T,E] logits in recorded order. Borrows *this.
  RouterCall Call() const;
};

// Tries every order of the queue, key and cut into pieces that the policy's name allows. A router
// is exact if every known fate of every judged row is as recorded. The caller must decide whether
// the policy is the trainer's.
ReplayedRouter ReplayNamedPolicy(const RoutingAnalysis& a);

}  // namespace plumbline::analysis
