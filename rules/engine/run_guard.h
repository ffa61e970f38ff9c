// Lets a host control whose evidence the engine judges: it can leave a run out, record the run
// during which its process died, and continue without a run that cannot be judged.
#pragma once

#include <string>

namespace plumbline::rules {

class RunGuard {
 public:
  virtual ~RunGuard() = default;
  // Called before anything of `run` is judged. If it returns false, the engine skips the run and
  // loses the evidence of this call.
  virtual bool Begin(const std::string& run) = 0;
  // Called after each Begin that returned true.
  virtual void End() = 0;
  // Called after End if judging threw an exception; the engine has forgotten the run.
  virtual void Failed(const std::string& run, const std::string& what) = 0;
};

}  // namespace plumbline::rules
