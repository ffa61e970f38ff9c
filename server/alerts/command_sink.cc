#include "server/alerts/command_sink.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/printable.h"
#include "base/process/spawn.h"

namespace plumbline::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostShownOfError = 400;        // of its standard error
constexpr std::chrono::milliseconds kLook{100};  // period of the check for a cancellation
constexpr const char* kEnvironment[] = {"PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR"};

class Pipe {
 public:
  Pipe() {
    if (pipe2(fds_, O_CLOEXEC) != 0) fds_[0] = fds_[1] = -1;
  }
  ~Pipe() {
    Close(0);
    Close(1);
  }
  int end(int i) const { return fds_[i]; }
  bool ok() const { return fds_[0] >= 0; }
  void Close(int i) {
    if (fds_[i] >= 0) close(fds_[i]);
    fds_[i] = -1;
  }

 private:
  int fds_[2];
};

// Returns the environment that a program needs, without secrets of plumbd's environment.
std::vector<std::string> Environment(const Notification& n) {
  std::vector<std::string> out = {absl::StrCat("PLUMBLINE_ALERT_ID=", n.id),
                                  absl::StrCat("PLUMBLINE_ALERT_EVENT=", EventWord(n.event))};
  for (const char* name : kEnvironment) {
    if (const char* value = std::getenv(name)) out.push_back(absl::StrCat(name, "=", value));
  }
  return out;
}

class CommandSink : public AlertSink {
 public:
  explicit CommandSink(const AlertRoute& route)
      : command_(route.command),
        timeout_(std::chrono::milliseconds(static_cast<int64_t>(route.timeout_seconds * 1e3))) {}

  SendResult Send(const Notification& n) override {
    if (cancelled_) return {SendResult::Kind::kTryAgain, "plumbd is stopping"};
    Pipe in, err;
    if (!in.ok() || !err.ok())
      return {SendResult::Kind::kTryAgain, absl::StrCat("pipe: ", std::strerror(errno))};
    pid_t pid = -1;
    if (const int error =
            Spawn(command_, Environment(n), {in.end(0), -1, err.end(1)}, SpawnGroup::kOwn, &pid);
        error != 0)
      return {SendResult::Kind::kTryAgain,
              absl::StrCat(command_[0], ": cannot be started: ", std::strerror(error))};
    in.Close(0);
    err.Close(1);
    std::string stated;
    const bool in_time = Serve(n.body, &in, &err, pid, &stated);
    kill(-pid, SIGKILL);  // also ends processes that the command left
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return Judge(in_time, status, stated);
  }

  void Cancel() override { cancelled_ = true; }

 private:
  // Writes the command's input and reads its errors until it ends. Returns false if the command had
  // to be stopped.
  bool Serve(const std::string& body, Pipe* in, Pipe* err, pid_t pid, std::string* stated) const {
    const int ended = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    fcntl(in->end(1), F_SETFL, O_NONBLOCK);
    size_t written = 0;
    const Clock::time_point end = Clock::now() + timeout_;
    bool exited = false;
    while (!exited && Clock::now() < end && !cancelled_) {
      pollfd fds[] = {{in->end(1), POLLOUT, 0}, {err->end(0), POLLIN, 0}, {ended, POLLIN, 0}};
      poll(fds, 3, static_cast<int>(kLook.count()));
      if (fds[0].revents != 0) Feed(body, &written, in);
      if (fds[1].revents != 0) Read(err, stated);
      exited = fds[2].revents != 0 || (ended < 0 && Exited(pid));
    }
    if (exited) Drain(err, stated);
    if (ended >= 0) close(ended);
    return exited;
  }

  static bool Exited(pid_t pid) {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == pid;
  }

  // Writes input. A program that does not read its input may still succeed.
  static void Feed(const std::string& body, size_t* written, Pipe* in) {
    const ssize_t n = write(in->end(1), body.data() + *written, body.size() - *written);
    if (n > 0) *written += static_cast<size_t>(n);
    if (*written == body.size() || (n < 0 && errno != EAGAIN && errno != EINTR)) in->Close(1);
  }

  static bool Read(Pipe* err, std::string* stated) {
    char bytes[512];
    const ssize_t n = read(err->end(0), bytes, sizeof bytes);
    if (n <= 0) {
      err->Close(0);
      return false;
    }
    stated->append(bytes, std::min(static_cast<size_t>(n), kMostShownOfError - stated->size()));
    return true;
  }

  static void Drain(Pipe* err, std::string* stated) {
    if (err->end(0) < 0) return;
    fcntl(err->end(0), F_SETFL, O_NONBLOCK);
    for (int i = 0; i < 8 && err->end(0) >= 0 && Read(err, stated); ++i) {
    }
  }

  SendResult Judge(bool in_time, int status, const std::string& stated) const {
    SendResult result;
    const std::string tail = stated.empty() ? "" : ": " + Printable(stated);
    if (!in_time) {
      result.kind = SendResult::Kind::kTryAgain;
      result.detail = absl::StrCat(
          command_[0], cancelled_ ? ": ended because plumbd stops" : ": took too long, killed",
          tail);
    } else if (WIFSIGNALED(status)) {
      result.kind = SendResult::Kind::kTryAgain;
      result.detail = absl::StrCat(command_[0], ": ended by signal ", WTERMSIG(status), tail);
    } else if (WEXITSTATUS(status) != 0) {
      result.kind = WEXITSTATUS(status) == EX_TEMPFAIL ? SendResult::Kind::kTryAgain
                                                       : SendResult::Kind::kRefused;
      result.detail = absl::StrCat(command_[0], ": exit status ", WEXITSTATUS(status), tail);
    }
    return result;
  }

  const std::vector<std::string> command_;
  const std::chrono::milliseconds timeout_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace

std::unique_ptr<AlertSink> MakeCommandSink(const AlertRoute& route) {
  return std::make_unique<CommandSink>(route);
}

}  // namespace plumbline::server
