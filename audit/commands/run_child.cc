#include "audit/commands/run_child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "audit/calls/call_watch.h"
#include "audit/commands/run_end.h"

namespace plumbline::audit {
namespace {

namespace fs = std::filesystem;

// Signals that a person or a scheduler sends to the process that it started.
constexpr int kForwarded[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
constexpr int kCannotRun = 126;
constexpr int kNotFound = 127;
constexpr int kSignalled = 128;  // plus the signal's number

volatile pid_t trainer_pid = 0;
volatile std::sig_atomic_t interrupted = 0;

// Forwards a signal that was sent to this process alone. The trainer gets those of the terminal
// itself, because it is in the same process group.
void Forward(int signal, siginfo_t* info, void* /*context*/) {
  const int saved = errno;
  const pid_t trainer = trainer_pid;
  if (signal != SIGUSR1 && signal != SIGUSR2) interrupted = 1;
  if (trainer > 0 && info->si_code <= 0 && info->si_pid != trainer) kill(trainer, signal);
  errno = saved;
}

void SetHandlers() {
  for (const int signal : kForwarded) {
    struct sigaction old {};
    if (sigaction(signal, nullptr, &old) != 0 || old.sa_handler == SIG_IGN) continue;
    struct sigaction ours {};
    ours.sa_sigaction = Forward;
    ours.sa_flags = SA_SIGINFO | SA_RESTART;
    sigemptyset(&ours.sa_mask);
    sigaction(signal, &ours, nullptr);
  }
}

// Called in the child. It dies with its parent, as if the parent had been replaced by it.
[[noreturn]] void BecomeTrainer(const std::vector<std::string>& command, pid_t parent,
                                const sigset_t& mask) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kSignalled + SIGKILL);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  _exit(ExecTrainer(command));
}

int WaitFor(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

// Returns whether a process has written into the record since `began`.
bool Recorded(const std::string& folder, fs::file_time_type began) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code unknown;
    if (it->path().extension() == ".plr" && fs::last_write_time(it->path(), unknown) >= began)
      return true;
  }
  return false;
}

// Prints the findings, in a process of its own: a failure of the audit never changes the status.
void JudgeRecord(const std::string& folder) {
  std::fprintf(stderr, "plumb: run: the record in %s is judged\n", folder.c_str());
  const pid_t child = fork();
  if (child == 0) {
    dup2(STDERR_FILENO, STDOUT_FILENO);
    execl("/proc/self/exe", "plumb", "audit", folder.c_str(), static_cast<char*>(nullptr));
    _exit(kCannotRun);
  }
  const int status = child < 0 ? -1 : WaitFor(child);
  if (child < 0 || !WIFEXITED(status) || WEXITSTATUS(status) == kCannotRun)
    std::fprintf(stderr, "plumb: run: the record was not judged; plumb audit %s does it\n",
                 folder.c_str());
}

// Ends this process by the signal that has killed the trainer, without a second core file.
int DieOf(int signal) {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  std::signal(signal, SIG_DFL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  std::raise(signal);
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
  return kSignalled + signal;
}

}  // namespace

int ExecTrainer(const std::vector<std::string>& command) {
  std::vector<char*> words;
  words.reserve(command.size() + 1);
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execvp(words[0], words.data());
  const int why = errno;
  std::fprintf(stderr, "plumb: run: %s: %s\n", command[0].c_str(), std::strerror(why));
  return why == ENOENT ? kNotFound : kCannotRun;
}

int RunAndJudge(const std::vector<std::string>& command, const std::string& folder) {
  CallWatch calls;
  calls.Begin(command);
  sigset_t blocked;
  sigset_t before;
  sigemptyset(&blocked);
  for (const int signal : kForwarded) sigaddset(&blocked, signal);
  sigprocmask(SIG_BLOCK, &blocked, &before);
  const auto began = fs::file_time_type::clock::now() - std::chrono::seconds(1);
  const pid_t self = getpid();
  const pid_t child = fork();
  if (child == 0) BecomeTrainer(command, self, before);
  if (child < 0) {  // the trainer matters more than its findings
    sigprocmask(SIG_SETMASK, &before, nullptr);
    return ExecTrainer(command);
  }
  trainer_pid = child;
  SetHandlers();
  calls.Follow();
  sigprocmask(SIG_SETMASK, &before, nullptr);
  const int status = WaitFor(child);
  trainer_pid = 0;
  const bool recorded = Recorded(folder, began);
  if (recorded) NoteEnd(folder, began, child, status);
  const bool outside = interrupted != 0 || WIFSIGNALED(status);
  const bool counted = calls.Finish({folder, child, recorded, EndingOf(status), outside});
  if (recorded || counted) {
    JudgeRecord(folder);
  } else if (!WIFEXITED(status) || WEXITSTATUS(status) < kCannotRun) {
    std::fprintf(stderr,
                 "plumb: run: nothing was recorded in %s: no watched process stepped an optimizer "
                 "of torch, or its Python got no PYTHONPATH, and no call of NCCL or cuBLAS was "
                 "seen\n",
                 folder.c_str());
  }
  return WIFSIGNALED(status) ? DieOf(WTERMSIG(status)) : WEXITSTATUS(status);
}

}  // namespace plumbline::audit
