// What the façade must know about the process it is a guest in: forks, exit, the off switch.
#pragma once

namespace plumbline::facade {

struct ProcessHooks {
  void (*in_child)();  // in a forked child, async-signal-safe
  // Once the agent is loaded: before the agent's static destructors. The status that exit() was
  // called with; 0 where that is not known.
  void (*at_exit)(int status);
};

// Idempotent; called by plumbline_open. A process forked before this is not a "forked child".
void WatchForks(const ProcessHooks& hooks);

// True in every child forked after WatchForks, by whatever system call. One load.
bool InForkedChild();

// Held around dlopen: a fork waits for it, so that no child inherits a half-loaded library.
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

// PLUMBLINE_DISABLE is set to something other than "" and "0".
bool DisabledByEnvironment();

}  // namespace plumbline::facade
