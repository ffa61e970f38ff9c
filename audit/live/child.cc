#include "audit/live/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

#include "base/process/spawn.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMaxOutput = 1 << 16;

// Reads until the pipe closes or `deadline`. Returns false if the deadline came first.
bool ReadAll(int fd, std::chrono::steady_clock::time_point deadline, std::string* out) {
  char buffer[4096];
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd waiting{fd, POLLIN, 0};
    if (poll(&waiting, 1, static_cast<int>(left.count())) <= 0) continue;
    const ssize_t n = read(fd, buffer, sizeof(buffer));
    if (n <= 0) return true;
    if (out->size() < kMaxOutput) out->append(buffer, static_cast<size_t>(n));
  }
}

}  // namespace

ChildResult RunChild(const std::vector<std::string>& command,
                     const std::vector<std::string>& environment, double timeout_seconds) {
  ChildResult result;
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) return result;
  pid_t pid = 0;
  const int error = Spawn(command, EnvironmentWith(environment), {-1, pipe_fds[1], pipe_fds[1]},
                          SpawnGroup::kSame, &pid);
  close(pipe_fds[1]);
  if (error != 0) {
    close(pipe_fds[0]);
    return result;
  }
  result.started = true;
  const auto deadline = std::chrono::steady_clock::now() +
                        std::chrono::milliseconds(static_cast<int64_t>(timeout_seconds * 1000));
  result.timed_out = !ReadAll(pipe_fds[0], deadline, &result.output);
  if (result.timed_out) kill(pid, SIGKILL);
  close(pipe_fds[0]);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status)) result.exit_status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

}  // namespace plumbline::audit
