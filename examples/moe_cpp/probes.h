// All that this trainer tells Plumbline, in one place.
#pragma once

#include <string>
#include <vector>

#include "plumbline/agent.h"
#include "routers.h"
#include "text.h"

namespace moe {

class Probes {
 public:
  // Empty `server` and `record`: what PLUMBLINE_SERVER and PLUMBLINE_RECORD say, or nothing.
  Probes(const std::string& run, const std::string& server, const std::string& record, int layers);

  plumbline::Run& run() { return run_; }

  // One router call: what the gate said, what was chosen, what was kept, and who is who.
  void Observe(int layer, const Routing& routing, const Batch& batch);

  // Waits until all was delivered; false when that took longer than `patience_ms`.
  bool Finish(uint32_t patience_ms);

 private:
  plumbline::Run run_;
  std::vector<plumbline::Site> sites_;
};

}  // namespace moe
