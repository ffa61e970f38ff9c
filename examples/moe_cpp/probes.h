// All that this trainer reports to Plumbline, in one place.
#pragma once

#include <string>
#include <vector>

#include "plumbline/agent.h"
#include "routers.h"
#include "text.h"

namespace moe {

class Probes {
 public:
  // If `server` and `record` are empty, PLUMBLINE_SERVER and PLUMBLINE_RECORD decide, if set.
  Probes(const std::string& run, const std::string& server, const std::string& record, int layers);

  plumbline::Run& run() { return run_; }

  // Reports one router call: the gate's logits, the choices, which were kept, and each token's
  // sequence and position.
  void Observe(int layer, const Routing& routing, const Batch& batch);

  // Waits until everything was delivered. Returns false if that took longer than `patience_ms`.
  bool Finish(uint32_t patience_ms);

 private:
  plumbline::Run run_;
  std::vector<plumbline::Site> sites_;
};

}  // namespace moe
