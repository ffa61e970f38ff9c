#include "base/process/spawn.h"

#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

extern char** environ;

namespace plumbline {
namespace {

// posix_spawn does not write to the strings, although its parameters are not const.
std::vector<char*> PointersTo(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

void SetStream(posix_spawn_file_actions_t* files, int fd, int stream) {
  if (fd >= 0) {
    posix_spawn_file_actions_adddup2(files, fd, stream);
  } else {
    posix_spawn_file_actions_addopen(files, stream, "/dev/null",
                                     stream == STDIN_FILENO ? O_RDONLY : O_WRONLY, 0);
  }
}

// The caller's threads may block signals that the child needs.
void SetOwnGroup(posix_spawn_file_actions_t* files, posix_spawnattr_t* attributes) {
  posix_spawn_file_actions_addclosefrom_np(files, STDERR_FILENO + 1);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(attributes, &none);
  posix_spawnattr_setsigdefault(attributes, &all);
  posix_spawnattr_setpgroup(attributes, 0);
  posix_spawnattr_setflags(attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
}

}  // namespace

int Spawn(const std::vector<std::string>& command, const std::vector<std::string>& environment,
          const SpawnStreams& streams, SpawnGroup group, pid_t* pid) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  SetStream(&files, streams.in, STDIN_FILENO);
  SetStream(&files, streams.out, STDOUT_FILENO);
  SetStream(&files, streams.err, STDERR_FILENO);
  if (group == SpawnGroup::kOwn) SetOwnGroup(&files, &attributes);
  const int error = posix_spawnp(pid, command[0].c_str(), &files, &attributes,
                                 PointersTo(command).data(), PointersTo(environment).data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  return error;
}

std::vector<std::string> EnvironmentWith(const std::vector<std::string>& added) {
  std::vector<std::string> all = added;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    const std::string name = text.substr(0, text.find('=') + 1);
    const bool replaced = std::any_of(
        added.begin(), added.end(), [&](const std::string& one) { return one.starts_with(name); });
    if (!replaced) all.push_back(text);
  }
  return all;
}

}  // namespace plumbline
