#include "server/process/process_copy.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace plumbline::server {
namespace {

constexpr int kNice = 10;
constexpr size_t kChunk = 1 << 20;

std::string Errno() { return std::strerror(errno); }

bool WriteAll(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = write(fd, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    data += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

void CloseAll(unsigned first, unsigned last) {
  if (first > last || close_range(first, last, 0) == 0) return;
  rlimit files{};  // the kernel is older than 5.9
  getrlimit(RLIMIT_NOFILE, &files);
  for (unsigned fd = first; fd <= last && fd < files.rlim_cur; ++fd) close(static_cast<int>(fd));
}

// Closes all files but `fd`. If the copy kept a socket open, its port would stay bound after the
// process has ended.
void CloseAllBut(int fd) {
  CloseAll(3, static_cast<unsigned>(fd) - 1);
  CloseAll(static_cast<unsigned>(fd) + 1, ~0U);
}

void GoFirstWhereMemoryIsShort() {
  const int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (file < 0) return;
  (void)WriteAll(file, "1000", 4);
  close(file);
}

// Runs the copy. Its status shows whether it failed. No destructor of the process runs.
[[noreturn]] void RunCopy(int fd, const std::function<void(const ProcessCopy::Pieces&)>& make) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(signal, SIG_DFL);
  CloseAllBut(fd);
  GoFirstWhereMemoryIsShort();
  (void)setpriority(PRIO_PROCESS, 0, kNice);
  bool written = false;
  try {
    make([fd](std::string_view piece) {
      if (!WriteAll(fd, piece.data(), piece.size())) _exit(1);
    });
    written = true;
  } catch (...) {
  }
  _exit(written ? 0 : 1);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessCopy>> ProcessCopy::Start(
    const std::function<std::string()>& make) {
  return StartPieces([&make](const Pieces& write) { write(make()); });
}

absl::StatusOr<std::unique_ptr<ProcessCopy>> ProcessCopy::StartPieces(
    const std::function<void(const Pieces&)>& make) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return absl::UnavailableError(
        absl::StrCat("cannot create a pipe to the copy of the process: ", Errno()));
  const pid_t pid = fork();
  if (pid == 0) RunCopy(ends[1], make);
  const std::string why = pid < 0 ? Errno() : "";
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return absl::UnavailableError(absl::StrCat("cannot copy the process: ", why));
  }
  return std::unique_ptr<ProcessCopy>(new ProcessCopy(pid, ends[0]));
}

ProcessCopy::~ProcessCopy() {
  End();
  close(pipe_);
}

void ProcessCopy::End() {
  if (pid_ == 0) return;
  kill(pid_, SIGKILL);
  Wait();
}

// Returns its status, as waitpid does.
int ProcessCopy::Wait() {
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = 0;
  return status;
}

absl::StatusOr<std::string> ProcessCopy::Read(std::chrono::nanoseconds patience) {
  std::string bytes;
  if (auto s = Read(patience, [&bytes](std::string_view piece) { bytes.append(piece); }); !s.ok())
    return s;
  return bytes;
}

absl::Status ProcessCopy::Read(std::chrono::nanoseconds patience, const Pieces& take) {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + patience;
  std::string piece(kChunk, '\0');
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd readable{pipe_, POLLIN, 0};
    const int ready =
        left <= 0 ? 0 : poll(&readable, 1, static_cast<int>(std::min<int64_t>(left, 60'000)));
    if (ready == 0 && left <= 0) {
      End();
      return absl::UnavailableError("the copy of the process took too long");
    }
    if (ready <= 0) continue;
    const ssize_t n = read(pipe_, piece.data(), piece.size());
    if (n > 0) take({piece.data(), static_cast<size_t>(n)});
    if (n == 0) break;
  }
  const int status = Wait();
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  return absl::UnavailableError(
      WIFSIGNALED(status)
          ? absl::StrCat("the copy of the process was ended by signal ", WTERMSIG(status))
          : std::string("the copy of the process could not write its data"));
}

}  // namespace plumbline::server
