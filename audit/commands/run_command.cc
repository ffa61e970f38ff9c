// plumb run: starts a trainer whose Python processes watch themselves (python/plumbline/_attach).
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <system_error>

#include "audit/commands/commands.h"
#include "audit/commands/python_package.h"
#include "audit/commands/run_child.h"
#include "command_line/usage.h"

namespace plumbline::audit {
namespace {

namespace fs = std::filesystem;

struct TrainerOptions {
  std::string server, record, run, stop_on;
  std::vector<std::string> words;  // the command, if it was given without --
};

std::string OfEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void SetVariable(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }

// Returns the folder with sitecustomize.py of the Python package; "" if there is none.
std::string HookFolder() {
  const std::string package = PythonPackage();
  return package.empty() ? "" : package + "/_attach/path";
}

bool IsPython(const std::string& program) {
  return fs::path(program).filename().string().rfind("python", 0) == 0;
}

// Returns the option with which a command's Python ignores PYTHONPATH or sitecustomize: "-I", "-E"
// or "-S". Empty: it has none.
std::string Isolated(const std::vector<std::string>& command) {
  if (!IsPython(command[0])) return "";
  for (size_t i = 1; i < command.size(); ++i) {
    const std::string& word = command[i];
    if (word.size() < 2 || word[0] != '-' || word[1] == '-') return "";
    for (const char letter : word.substr(1)) {
      if (letter == 'I' || letter == 'E' || letter == 'S') return std::string("-") + letter;
      if (letter == 'c' || letter == 'm') return "";
      if (letter == 'W' || letter == 'X') {  // its value is the rest of the word, or the next one
        i += word.back() == letter ? 1 : 0;
        break;
      }
    }
  }
  return "";
}

// Returns "train" for `python train.py`, the module for -m, else the program's name.
std::string NameOf(const std::vector<std::string>& command) {
  for (size_t i = 1; i < command.size(); ++i) {
    const fs::path word = command[i];
    if (word.extension() == ".py") return word.stem();
    if (command[i] == "-m" && i + 1 < command.size() && IsPython(command[0])) {
      const std::string module = command[i + 1];
      if (module.rfind("torch.distributed", 0) != 0 && module.rfind("accelerate", 0) != 0)
        return module.substr(module.rfind('.') + 1);
    }
  }
  return fs::path(command[0]).filename();
}

// Returns the name of a run that has no other: "train-20261130-201502", in local time.
std::string DefaultRun(const std::vector<std::string>& command) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[32];
  std::strftime(text, sizeof(text), "-%Y%m%d-%H%M%S", &local);
  return NameOf(command) + text;
}

// Sets the variables that the hook reads. Ranks and attempts are those of the launcher, which the
// library reads itself. Returns the folder of the record; empty: none.
std::string SetEnvironment(const TrainerOptions& options, const std::string& hook,
                           const std::vector<std::string>& command) {
  const std::string before = OfEnvironment("PYTHONPATH");
  SetVariable("PYTHONPATH", before.empty() ? hook : hook + ":" + before);
  const std::string name = DefaultRun(command);
  SetVariable("PLUMBLINE_ATTACH_RUN", name);
  if (!options.run.empty()) SetVariable("PLUMBLINE_RUN", options.run);
  if (!options.server.empty()) SetVariable("PLUMBLINE_SERVER", options.server);
  if (!options.stop_on.empty()) SetVariable("PLUMBLINE_STOP_ON", options.stop_on);
  std::string record = options.record.empty() ? OfEnvironment("PLUMBLINE_RECORD") : options.record;
  if (record.empty() && OfEnvironment("PLUMBLINE_SERVER").empty()) {
    const std::string given = OfEnvironment("PLUMBLINE_RUN");
    record = fs::path("plumbline") / (given.empty() ? name : given);
  }
  if (record.empty()) return "";
  std::error_code error;
  record = fs::absolute(record, error);  // the trainer may change its folder
  SetVariable("PLUMBLINE_RECORD", record);
  return record;
}

// Returns whether Plumbline is turned off.
bool TurnedOff() {
  const std::string value = OfEnvironment("PLUMBLINE_DISABLE");
  return !value.empty() && value != "0";
}

int RunTrainer(const TrainerOptions& options, const std::vector<std::string>& command) {
  if (command.empty())
    return Fail("run: expected -- and the trainer's command; see plumb run --help");
  if (TurnedOff()) return ExecTrainer(command);
  const std::string hook = HookFolder();
  const std::string isolated = Isolated(command);
  if (hook.empty()) {
    std::fprintf(stderr,
                 "plumb: run: Plumbline's Python package is not next to this program, so the "
                 "trainer is not watched; install all of Plumbline\n");
    return ExecTrainer(command);
  }
  if (!isolated.empty()) {
    std::fprintf(stderr,
                 "plumb: run: %s %s ignores the hook of plumb run, so the trainer is not watched\n",
                 command[0].c_str(), isolated.c_str());
    return ExecTrainer(command);
  }
  const std::string record = SetEnvironment(options, hook, command);
  if (record.empty() || !OfEnvironment("PLUMBLINE_SERVER").empty()) return ExecTrainer(command);
  return RunAndJudge(command, record);
}

}  // namespace

std::vector<std::string> TakeTrainer(int* argc, char** argv) {
  if (*argc < 2 || std::strcmp(argv[1], "run") != 0) return {};
  char** const end = argv + *argc;
  char** const mark =
      std::find_if(argv + 2, end, [](const char* word) { return std::strcmp(word, "--") == 0; });
  if (mark == end) return {};
  *argc = static_cast<int>(mark - argv);
  std::vector<std::string> command(mark + 1, end);
  *mark = nullptr;
  return command;
}

void RegisterRun(CLI::App& app, const std::vector<std::string>& trainer, int* status) {
  auto options = std::make_shared<TrainerOptions>();
  CLI::App* command = app.add_subcommand(
      "run", "Starts a trainer with the probes attached and no code change: plumb run -- CMD");
  command
      ->add_option("--server", options->server,
                   "Address of plumbd, which judges the run ($PLUMBLINE_SERVER)")
      ->type_name("HOST:PORT");
  command
      ->add_option("--record", options->record,
                   "Folder of the record ($PLUMBLINE_RECORD); without a server the findings are "
                   "printed at the end. Without both: plumbline/RUN")
      ->type_name("DIR");
  command
      ->add_option(
          "--run", options->run,
          "Name of the run ($PLUMBLINE_RUN); else the launcher's, else the script's and the time")
      ->type_name("NAME");
  command
      ->add_option("--stop-on", options->stop_on,
                   "Ends the training at the first finding of this level ($PLUMBLINE_STOP_ON)")
      ->check(OneOf({"error", "warning"}));
  command->add_option("CMD", options->words, "The trainer's command and its arguments, after --");
  command->callback([options, trainer, status] {
    *status = RunTrainer(*options, trainer.empty() ? options->words : trainer);
  });
}

}  // namespace plumbline::audit
