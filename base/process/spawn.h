// Starts programs. Linux only.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace plumbline {

// Descriptors that become the child's standard streams; -1: /dev/null. The caller keeps them.
struct SpawnStreams {
  int in = -1, out = -1, err = -1;
};

enum class SpawnGroup {
  kSame,  // the caller's process group, signal mask and descriptors
  kOwn,   // a new group, so that all its processes can be ended; default signals; no descriptor
          // from 3 on
};

// Starts command[0], which is searched in PATH if it has no slash, with exactly this environment
// ("NAME=value"). `command` must not be empty. Returns 0 and sets *pid, or returns an errno.
// Thread-safe.
int Spawn(const std::vector<std::string>& command, const std::vector<std::string>& environment,
          const SpawnStreams& streams, SpawnGroup group, pid_t* pid);

// Returns this process's environment with `added`, which replaces variables of the same name. Not
// thread-safe next to setenv().
std::vector<std::string> EnvironmentWith(const std::vector<std::string>& added);

}  // namespace plumbline
