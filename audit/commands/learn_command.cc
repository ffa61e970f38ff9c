// plumb learn RUN... -o FILE: writes invariants that healthy runs kept. Returns exit status 0 if
// the file was written, 2 on bad usage, an input that could not be read whole, or a run that is not
// healthy.
#include <filesystem>
#include <memory>
#include <system_error>

#include "audit/commands/commands.h"
#include "audit/commands/progress_line.h"
#include "audit/learn/learner.h"
#include "audit/session/audit.h"
#include "command_line/usage.h"

namespace plumbline::audit {
namespace {

struct LearnArguments {
  std::vector<std::string> paths;
  std::string output;
  bool allow_findings = false;
  bool quiet = false;
};

// Reads one path into `profiles`. Returns an error message or "".
std::string ReadHealthy(const LearnArguments& arguments, const std::string& path,
                        RunProfiles* profiles) {
  AuditOptions options;
  options.paths = {path};
  options.watchers = {profiles};
  absl::StatusOr<AuditResult> result;
  {
    ProgressLine line(arguments.quiet);
    result = RunAudit(options, [&line](const AuditProgress& progress) { line.Show(progress); });
  }
  if (!result.ok()) return std::string(result.status().message());
  for (const InputReport& input : result->inputs) {
    for (const Problem& problem : input.problems) {
      if (problem.error) return input.Line(problem);
    }
  }
  for (const v1::Finding* finding : result->findings()) {
    const bool of_training = !finding->rule().starts_with("meta/");
    if (of_training && finding->level() == v1::LEVEL_ERROR && !arguments.allow_findings)
      return path + ": expected a healthy run, found an error of " + finding->rule() + ": " +
             finding->title() + " (--allow-findings takes it as healthy)";
  }
  return "";
}

int RunLearn(const LearnArguments& arguments) {
  std::vector<std::unique_ptr<RunProfiles>> read;
  std::vector<const RunProfile*> runs;
  for (const std::string& path : arguments.paths) {
    std::error_code error;
    if (!arguments.output.empty() && std::filesystem::equivalent(path, arguments.output, error))
      return Fail("--output: expected a file that is not an input, found " + arguments.output);
    read.push_back(std::make_unique<RunProfiles>());
    if (const std::string wrong = ReadHealthy(arguments, path, read.back().get()); !wrong.empty())
      return Fail("learn: " + wrong);
    for (const auto& [name, profile] : read.back()->profiles()) runs.push_back(&profile);
  }
  const absl::StatusOr<Invariants> learned = Learn(runs);
  if (!learned.ok()) return Fail("learn: " + std::string(learned.status().message()));
  return WriteOutput(arguments.output, InvariantsText(*learned)) ? kExitClean : kExitError;
}

}  // namespace

void RegisterLearn(CLI::App& app, int* status) {
  auto arguments = std::make_shared<LearnArguments>();
  CLI::App* command = app.add_subcommand(
      "learn", "Learns invariants from healthy runs, for plumb audit --invariants");
  command
      ->add_option("RUN", arguments->paths,
                   "Files or directories, each with a healthy run of one configuration; at least 4")
      ->required();
  command->add_option("-o,--output", arguments->output, "Write to this file")->type_name("FILE");
  command->add_flag("--allow-findings", arguments->allow_findings,
                    "Also learn from runs with findings of level error");
  command->add_flag("--quiet", arguments->quiet, "Print no progress on standard error");
  command->callback([arguments, status] { *status = RunLearn(*arguments); });
}

}  // namespace plumbline::audit
