#include "tests/audit/plumb_process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/audit/dump_builder.h"

namespace plumbline::audit::testing {

ProcessResult RunPlumb(const std::vector<std::string>& arguments) {
  const TempFolder dir;  // outputs go through files: no pipe to fill up
  const std::string out = dir.Write("out", ""), err = dir.Write("err", "");
  std::vector<char*> argv = {const_cast<char*>("plumb")};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    if (std::freopen(out.c_str(), "w", stdout) == nullptr ||
        std::freopen(err.c_str(), "w", stderr) == nullptr) {
      _exit(126);
    }
    execv(PLUMB_PROGRAM, argv.data());
    _exit(127);
  }
  int state = 0;
  waitpid(child, &state, 0);
  ProcessResult result;
  result.status = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
  result.out = ReadFile(out);
  result.err = ReadFile(err);
  return result;
}

}  // namespace plumbline::audit::testing
