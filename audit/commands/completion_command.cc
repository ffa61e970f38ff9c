// plumb completion SHELL: prints the shell's completion script for plumb.
#include <memory>

#include "audit/commands/commands.h"
#include "command_line/completion.h"
#include "command_line/usage.h"

namespace plumbline::audit {

void RegisterCompletion(CLI::App& app, int* status) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(
      "completion", "Prints the script that completes plumb commands in a shell");
  command->add_option("SHELL", *shell, "bash, zsh or fish")
      ->check(OneOf(CompletionShells()))
      ->required();
  command->callback([shell, status, program = &app] {
    *status = WriteOutput("", CompletionScript(program, *shell)) ? kExitClean : kExitError;
  });
}

}  // namespace plumbline::audit
