// Starts programs as a user does.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/eventually.h"
#include "tests/support/files.h"

extern char** environ;

namespace plumbline::test {

// A running program and its output. The destructor kills it by pid.
class Process {
 public:
  explicit Process(const std::vector<std::string>& command,
                   std::vector<std::string> environment = {}) {
    // Output is written to files, because a pipe could fill up.
    const auto to_file = [&](posix_spawn_file_actions_t* actions, int fd, const char* name) {
      posix_spawn_file_actions_addopen(actions, fd, folder_.File(name).c_str(), O_WRONLY | O_CREAT,
                                       0600);
    };
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    to_file(&actions, 1, "out");
    to_file(&actions, 2, "err");
    for (char** e = environ; *e != nullptr; ++e) environment.emplace_back(*e);
    if (posix_spawn(&pid_, command[0].c_str(), &actions, nullptr, Pointers(command).data(),
                    Pointers(environment).data()) != 0) {
      pid_ = -1;
      status_ = 127;
    }
    posix_spawn_file_actions_destroy(&actions);
  }
  ~Process() {
    if (status_) return;
    Signal(SIGKILL);
    Wait();
  }

  void Signal(int signal) const {
    if (pid_ > 0 && !status_) kill(pid_, signal);
  }
  // Waits, and returns the exit status, or 128 + the signal that ended the program.
  int Wait() {
    if (status_) return *status_;
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    return TakeStatus(status);
  }
  bool running() {
    if (status_) return false;
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == 0) return true;
    TakeStatus(status);
    return false;
  }
  std::string output() const { return ReadFile(folder_.File("out")); }  // standard output so far
  std::string errors() const { return ReadFile(folder_.File("err")); }
  // Waits for the first line of the output and returns it. If the program ends earlier, returns the
  // output so far.
  std::string FirstLine() {
    Eventually([this] { return output().find('\n') != std::string::npos || !running(); });
    const std::string stated = output();
    return stated.substr(0, stated.find('\n'));
  }
  double cpu_seconds() const {  // used so far, user and system
    // Fields 14 and 15 of stat(5). The name (field 2) ends with the last closing parenthesis.
    const std::string stat = ReadFile("/proc/" + std::to_string(pid_) + "/stat");
    std::istringstream fields(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)));
    std::string skipped;
    for (int i = 3; i < 14; ++i) fields >> skipped;
    double user = 0, system = 0;
    fields >> user >> system;
    return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }
  pid_t pid() const { return pid_; }

 private:
  static std::vector<char*> Pointers(const std::vector<std::string>& strings) {
    std::vector<char*> pointers;
    for (const std::string& s : strings) pointers.push_back(const_cast<char*>(s.c_str()));
    pointers.push_back(nullptr);
    return pointers;
  }
  int TakeStatus(int status) {
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return *status_;
  }

  TempFolder folder_;
  pid_t pid_ = -1;
  std::optional<int> status_;
};

// The exit status and the output of a program that has ended.
struct Ended {
  int status = -1;  // as of Process::Wait
  std::string output, errors;
};

inline Ended RunToEnd(const std::vector<std::string>& command,
                      std::vector<std::string> environment = {}) {
  Process process(command, std::move(environment));
  const int status = process.Wait();
  return {status, process.output(), process.errors()};
}

}  // namespace plumbline::test
