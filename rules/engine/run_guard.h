// A host's hand on whose evidence the engine is at: it can leave a run out, remember over whom its
// process died, and go on without a run that cannot be judged.
#pragma once

#include <string>

namespace plumbline::rules {

class RunGuard {
 public:
  virtual ~RunGuard() = default;
  // Before anything of `run` is judged. False: it is left out, and what was said of it is lost to
  // the engine.
  virtual bool Begin(const std::string& run) = 0;
  // After each Begin that was true.
  virtual void End() = 0;
  // After End: judging it ended with an exception, and the engine has forgotten the run.
  virtual void Failed(const std::string& run, const std::string& what) = 0;
};

}  // namespace plumbline::rules
