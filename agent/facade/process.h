// The façade's view of the trainer's process: forks, exit, the off switch.
#pragma once

namespace plumbline::facade {

struct ProcessHooks {
  void (*in_child)();  // in a forked child, async-signal-safe
  // Called once the agent is loaded, before the agent's static destructors, with the status of
  // exit(); 0 if it is not known.
  void (*at_exit)(int status);
};

// Installs the hooks; idempotent; called by plumbline_open. A process that was forked before is not
// a "forked child".
void WatchForks(const ProcessHooks& hooks);

// Returns true in every child that was forked after WatchForks, by any system call. One load.
bool InForkedChild();

// Held during dlopen: a fork waits for it, so that no child inherits a half-loaded library.
// Recursive: a constructor that forks does not wait for itself.
class LoadLock {
 public:
  LoadLock();
  ~LoadLock();
  LoadLock(const LoadLock&) = delete;
  LoadLock& operator=(const LoadLock&) = delete;
};

// Registers hooks.at_exit; called right after the agent was opened.
void WatchExit();

// Returns true if PLUMBLINE_DISABLE is set to something other than "" and "0".
bool DisabledByEnvironment();

}  // namespace plumbline::facade
