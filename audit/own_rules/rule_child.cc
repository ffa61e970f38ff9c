#include "audit/own_rules/rule_child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/printable.h"
#include "base/process/spawn.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostWaiting = 1 << 18;  // bytes that wait for the child
constexpr size_t kShownOfError = 400;     // bytes of its standard error
constexpr int kLookMs = 50;

// Limits a child that has read nothing yet.
void Limit(pid_t pid, const RuleLimits& limits) {
  const rlimit none{0, 0}, memory{limits.memory_mib << 20, limits.memory_mib << 20};
  prlimit(pid, RLIMIT_AS, &memory, nullptr);
  prlimit(pid, RLIMIT_CORE, &none, nullptr);
}

void SetNonBlocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

struct Pipes {
  int fds[6] = {-1, -1, -1, -1, -1, -1};  // input, output, errors: read end, write end
  // The input is a socket, so that a write to a child that has ended raises no signal.
  bool Open() {
    return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0 &&
           pipe2(fds + 2, O_CLOEXEC) == 0 && pipe2(fds + 4, O_CLOEXEC) == 0;
  }
  int Take(int i) { return std::exchange(fds[i], -1); }
  ~Pipes() {
    for (const int fd : fds) {
      if (fd >= 0) close(fd);
    }
  }
};

}  // namespace

RuleChild::~RuleChild() {
  if (pid_ > 0) Stop("the audit ended");
}

void RuleChild::Start(const std::vector<std::string>& command,
                      const std::vector<std::string>& environment) {
  Pipes pipes;
  if (!pipes.Open()) {
    why_ = absl::StrCat("expected pipes, found: ", std::strerror(errno));
    return;
  }
  const SpawnStreams streams{pipes.fds[0], pipes.fds[3], pipes.fds[5]};
  if (const int error =
          Spawn(command, EnvironmentWith(environment), streams, SpawnGroup::kOwn, &pid_);
      error != 0) {
    pid_ = -1;
    why_ = absl::StrCat("expected to start ", command[0], ", found: ", std::strerror(error));
    return;
  }
  Limit(pid_, limits_);
  in_ = pipes.Take(1);
  out_ = pipes.Take(2);
  err_ = pipes.Take(4);
  for (const int fd : {in_, out_, err_}) SetNonBlocking(fd);
  progress_at_ = Clock::now();
}

void RuleChild::Send(std::string_view text) {
  if (pid_ <= 0 || in_ < 0) return;
  waiting_.append(text);
  if (waiting_.size() - sent_ < kMostWaiting / 4) return;
  Pump(false);
  progress_at_ = Clock::now();
  while (waiting_.size() - sent_ > kMostWaiting && Pump(true)) {
  }
}

void RuleChild::WaitUntil(const std::function<bool()>& done) {
  progress_at_ = Clock::now();
  while (!done() && Pump(true)) {
  }
}

void RuleChild::Finish() {
  if (pid_ <= 0) return;
  progress_at_ = Clock::now();
  while (sent_ < waiting_.size() && Pump(true)) {
  }
  if (in_ >= 0) close(std::exchange(in_, -1));
  ending_ = true;
  progress_at_ = Clock::now();
  while (pid_ > 0 && Pump(true)) {
  }
}

// Moves what can be moved. `wait`: waits a little if nothing can. Returns false if the child has
// ended or was stopped.
bool RuleChild::Pump(bool wait) {
  if (pid_ <= 0) return false;
  const Clock::time_point begin = Clock::now();
  const bool feeds = in_ >= 0 && sent_ < waiting_.size();
  pollfd fds[] = {{feeds ? in_ : -1, POLLOUT, 0}, {out_, POLLIN, 0}, {err_, POLLIN, 0}};
  if (poll(fds, 3, wait ? kLookMs : 0) < 0 && errno != EINTR) {
    Stop(absl::StrCat("poll: ", std::strerror(errno)));
    return false;
  }
  if (fds[2].revents != 0) ReadPrinted();
  if (pid_ > 0 && fds[1].revents != 0) ReadLines();
  if (pid_ > 0 && fds[0].revents != 0) Write();
  if (pid_ > 0 && out_ < 0 && Reap()) return false;
  const Clock::time_point now = Clock::now();
  if (pid_ <= 0 || !wait) return pid_ > 0;
  waited_ += std::chrono::duration<double>(now - begin).count();
  if (std::chrono::duration<double>(now - progress_at_).count() > limits_.seconds)
    Stop(absl::StrFormat("expected progress within %g s, found none", limits_.seconds));
  if (waited_ > RuleLimits::kWaits * limits_.seconds)
    Stop(absl::StrFormat("expected to wait for at most %g s in all, waited longer",
                         RuleLimits::kWaits * limits_.seconds));
  return pid_ > 0;
}

void RuleChild::Write() {
  const ssize_t n = send(in_, waiting_.data() + sent_, waiting_.size() - sent_, MSG_NOSIGNAL);
  if (n < 0) {
    if (errno == EAGAIN || errno == EINTR) return;
    close(std::exchange(in_, -1));  // the child has ended: ReadLines sees it
    waiting_.clear();
    sent_ = 0;
    return;
  }
  progress_at_ = Clock::now();
  sent_ += static_cast<size_t>(n);
  if (sent_ < waiting_.size() / 2) return;
  waiting_.erase(0, sent_);
  sent_ = 0;
}

void RuleChild::ReadLines() {
  char buffer[1 << 16];
  const ssize_t n = read(out_, buffer, sizeof(buffer));
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) {
    close(std::exchange(out_, -1));
    return;
  }
  std::string_view left(buffer, static_cast<size_t>(n));
  for (size_t end = left.find('\n'); end != std::string_view::npos; end = left.find('\n')) {
    line_.append(left.substr(0, end));
    left.remove_prefix(end + 1);
    if (++lines_ > RuleLimits::kMostLines || line_.size() > RuleLimits::kMostLine) break;
    if (const std::string why = on_line_(line_); !why.empty()) return Stop(why);
    line_.clear();
  }
  line_.append(left);
  if (lines_ > RuleLimits::kMostLines) {
    Stop(absl::StrFormat("expected at most %d verdicts, found more", RuleLimits::kMostLines));
  } else if (line_.size() > RuleLimits::kMostLine) {
    Stop(absl::StrFormat("expected lines of at most %d bytes, found a longer one",
                         RuleLimits::kMostLine));
  }
}

void RuleChild::ReadPrinted() {
  char buffer[1 << 12];
  const ssize_t n = read(err_, buffer, sizeof(buffer));
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) {
    close(std::exchange(err_, -1));
    return;
  }
  printed_.append(buffer, static_cast<size_t>(n));
  printed_bytes_ += static_cast<size_t>(n);
  if (printed_.size() > kShownOfError) printed_.erase(0, printed_.size() - kShownOfError);
  if (printed_bytes_ > RuleLimits::kMostPrinted)
    Stop(
        absl::StrFormat("expected at most %d printed bytes, found more", RuleLimits::kMostPrinted));
}

// Returns true if the child has ended.
bool RuleChild::Reap() {
  int status = 0;
  const pid_t ended = waitpid(pid_, &status, WNOHANG);
  if (ended == 0) return false;
  if (err_ >= 0) ReadPrinted();
  kill(-pid_, SIGKILL);  // processes that it left
  pid_ = -1;
  CloseAll();
  if (ended > 0) ReportEnd(status);
  return true;
}

void RuleChild::ReportEnd(int status) {
  if (!why_.empty() || (WIFEXITED(status) && WEXITSTATUS(status) == 0 && ending_)) return;
  why_ = WIFSIGNALED(status)
             ? absl::StrCat("expected an end after the last record, found: ended by signal ",
                            WTERMSIG(status))
             : absl::StrCat("expected an end after the last record, found: ended with status ",
                            WEXITSTATUS(status));
  if (!printed_.empty()) absl::StrAppend(&why_, " (", Printable(printed_), ")");
}

void RuleChild::Stop(const std::string& why) {
  if (why_.empty()) why_ = why;
  if (pid_ <= 0) return;
  kill(-pid_, SIGKILL);
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  CloseAll();
}

void RuleChild::CloseAll() {
  for (int* fd : {&in_, &out_, &err_}) {
    if (*fd >= 0) close(std::exchange(*fd, -1));
  }
}

}  // namespace plumbline::audit
