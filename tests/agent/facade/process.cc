#include "tests/agent/facade/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "tests/agent/facade/scenarios.h"
#include "tests/support/files.h"

extern char** environ;

namespace plumbline::test {
namespace {

const std::string kFlag = "--scenario=";

std::string ReadAll(int fd) {
  std::string text;
  char buffer[4096];
  ssize_t n;
  while ((n = read(fd, buffer, sizeof(buffer))) > 0) text.append(buffer, static_cast<size_t>(n));
  return text;
}

std::vector<std::string> ReadLines(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// This process's environment without the variables of launchers and Plumbline, plus `extra`.
std::vector<std::string> MakeEnvironment(const Environment& extra) {
  std::vector<std::string> entries;
  for (char** e = environ; *e != nullptr; ++e) {
    const std::string entry = *e;
    bool drop = false;
    for (const char* prefix :
         {"PLUMBLINE_", "RANK=", "WORLD_SIZE=", "SLURM_", "OMPI_", "TORCHELASTIC_"}) {
      drop = drop || entry.rfind(prefix, 0) == 0;
    }
    if (!drop) entries.push_back(entry);
  }
  for (const auto& [name, value] : extra) entries.push_back(name + "=" + value);
  return entries;
}

}  // namespace

Outcome SpawnScenario(const std::string& scenario, const Environment& given) {
  Environment extra = given;
  const TempFolder folder;
  const std::string log = folder.File("log");
  extra.emplace("PLUMBLINE_TEST_LOG", log);
  const std::vector<std::string> entries = MakeEnvironment(extra);
  std::vector<char*> env;
  for (const std::string& entry : entries) env.push_back(const_cast<char*>(entry.c_str()));
  env.push_back(nullptr);

  int pipe_ends[2];
  EXPECT_EQ(pipe(pipe_ends), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], 2);
  posix_spawn_file_actions_addclose(&actions, pipe_ends[0]);
  std::string argument = kFlag + scenario;
  std::string program = "/proc/self/exe";
  char* argv[] = {program.data(), argument.data(), nullptr};
  pid_t child = 0;
  EXPECT_EQ(posix_spawn(&child, "/proc/self/exe", &actions, nullptr, argv, env.data()), 0);
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_ends[1]);

  Outcome outcome;
  outcome.output = ReadAll(pipe_ends[0]);
  close(pipe_ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  outcome.calls = ReadLines(log);
  return outcome;
}

int RunScenarioOrTests(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]).rfind(kFlag, 0) == 0) {
    return RunScenario(argv[1] + kFlag.size());
  }
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace plumbline::test
