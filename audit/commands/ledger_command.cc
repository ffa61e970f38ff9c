// plumb ledger FILE: judges the gain of stacked multipliers. Returns exit status 0 if nothing at or
// above --fail-on was found, 1 if something was, 2 on bad usage or an invalid ledger.
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "audit/commands/commands.h"
#include "audit/ledger/ledger_result.h"
#include "audit/render/text_util.h"
#include "command_line/usage.h"

namespace plumbline::audit {
namespace {

struct LedgerArguments {
  std::string path;
  std::string format = "text";
  std::string output;
  std::string fail_on = "error";
  bool quiet = false;  // a ledger shows no progress: accepted as everywhere
  ledger::Allowances allowances;
};

v1::Level LedgerFailLevel(const std::string& name) {
  return name == "note" ? v1::LEVEL_NOTE : name == "warning" ? v1::LEVEL_WARNING : v1::LEVEL_ERROR;
}

int RunLedger(const LedgerArguments& arguments) {
  std::error_code error;
  if (!arguments.output.empty() &&
      std::filesystem::equivalent(arguments.path, arguments.output, error))
    return Fail("--output: expected a file other than the ledger, found " + arguments.output);
  absl::StatusOr<LedgerFile> file = ReadLedger(arguments.path);
  if (!file.ok()) return Fail(std::string(file.status().message()));
  const absl::StatusOr<LedgerResult> result = JudgeLedger(*std::move(file), arguments.allowances);
  if (!result.ok()) return Fail(std::string(result.status().message()));
  const TextStyle style = arguments.output.empty() ? StyleFor(STDOUT_FILENO) : TextStyle{};
  const std::string text =
      arguments.format == "json" ? LedgerJson(*result) : LedgerText(*result, style);
  if (!WriteOutput(arguments.output, text)) return kExitError;
  for (const v1::Finding* finding : result->findings()) {
    if (finding->level() >= LedgerFailLevel(arguments.fail_on)) return kExitFindings;
  }
  return kExitClean;
}

}  // namespace

void RegisterLedger(CLI::App& app, int* status) {
  auto arguments = std::make_shared<LedgerArguments>();
  CLI::App* command = app.add_subcommand(
      "ledger",
      "Estimates the value of stacked compute multipliers, and how much of it may be shared bias");
  command->add_option("FILE", arguments->path, "The ledger (TOML); see docs/ledger.md")->required();
  AddReportOptions(command, {"text", "json"}, &arguments->format, &arguments->output);
  command
      ->add_option("--fail-on", arguments->fail_on,
                   "Lowest level of a finding that sets exit status 1")
      ->check(OneOf({"note", "warning", "error"}))
      ->capture_default_str();
  const auto allow = [command](const char* name, double* value, const char* text) {
    command->add_option(name, *value, text)
        ->check(AtLeastZero())
        ->type_name("SD")
        ->capture_default_str();
  };
  ledger::Allowances& a = arguments->allowances;
  allow("--allow-scale", &a.scale,
        "Change of a multiplier's ln per decade of scale, independent for each change");
  allow("--allow-target", &a.target, "The same up to the target scale, common to all changes");
  allow("--allow-small", &a.small,
        "Bias of ln loss shared by all ablations of one scale, except at their largest");
  allow("--allow-large", &a.large,
        "Bias of ln loss that all ablations share at their largest scale");
  command->add_flag("--quiet", arguments->quiet, "Print no progress line");
  command->callback([arguments, status] { *status = RunLedger(*arguments); });
}

}  // namespace plumbline::audit
