#include "audit/commands/audit_arguments.h"

#include "audit/commands/commands.h"
#include "audit/live/live.h"
#include "audit/readers/input/reader.h"
#include "command_line/completion.h"
#include "command_line/usage.h"

namespace plumbline::audit {
namespace {

// Returns the formats that --as accepts, for shell completion.
std::vector<std::string> FormatsRead() {
  std::vector<std::string> formats;
  for (const Reader* reader : Readers()) formats.emplace_back(reader->format());
  return formats;
}

// Adds the options of the user's own rules.
void AddRuleFileOptions(CLI::App* command, AuditArguments* arguments) {
  command
      ->add_option("--rule-file", arguments->rule_files,
                   "Also run the rules of this Python file, in a child process; may be repeated; "
                   "see docs/own_rules.md")
      ->type_name("FILE")
      ->allow_extra_args(false);
  command->add_option("--rule-python", arguments->rule_python, "Interpreter of the rule files")
      ->type_name("PROGRAM")
      ->capture_default_str();
  command
      ->add_option("--rule-seconds", arguments->rule_seconds,
                   "Stop a rule file that makes no progress for this time (30)")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.01, 86400.0));
  command
      ->add_option("--rule-memory", arguments->rule_memory_mib,
                   "Limit of a rule file's address space (2048)")
      ->type_name("MIB")
      ->check(CLI::Range(64, 1 << 24));
}

}  // namespace

void AddAuditOptions(CLI::App* command, AuditArguments* arguments) {
  command->add_option("PATH", arguments->paths,
                      "Files, or directories (each directory is audited as one run)");
  AddReportOptions(command, {"text", "json", "sarif", "html", "junit", "markdown", "github"},
                   &arguments->format, &arguments->output);
  command
      ->add_option(
          "--timeline", arguments->timeline,
          "Write the observed times (steps, gaps and their causes, findings) as a trace file")
      ->type_name("FILE");
  command
      ->add_option(
          "--rules", arguments->rules,
          "Run only rules whose id matches; repeat the option, or separate globs by commas")
      ->type_name("GLOB")
      ->check(OfferPrinted("plumb rules"))
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      ->add_option("--set", arguments->settings, "Set an option of a rule; see plumb explain RULE")
      ->type_name("RULE.OPTION=VALUE")
      ->allow_extra_args(false);
  command
      ->add_option(
          "--contract", arguments->contracts,
          "Compare matrix products with a contract that plumb fingerprint wrote; may be repeated")
      ->type_name("FILE")
      ->allow_extra_args(false);
  command
      ->add_option("--invariants", arguments->invariants,
                   "Compare with invariants of healthy runs that plumb learn wrote; see "
                   "docs/invariants.md")
      ->type_name("FILE");
  AddRuleFileOptions(command, arguments);
  command
      ->add_option("--suppressions", arguments->suppressions,
                   "Known findings (TOML): they are shown, but do not set exit status 1; see plumb "
                   "explain meta/unused-suppression")
      ->type_name("FILE");
  command
      ->add_option("--baseline", arguments->baseline,
                   "An earlier JSON report: only findings whose rule, layer and op are not in it "
                   "are reported and set the exit status")
      ->type_name("FILE");
  command
      ->add_option("--since", arguments->since,
                   "Report only findings that reach this step or a later one. For checkpoints: "
                   "read the three before this step, and all later ones")
      ->type_name("STEP");
  command
      ->add_option("--as", arguments->as,
                   "Read every file as FORMAT instead of recognising it by content")
      ->type_name("FORMAT")
      ->check(Offer(FormatsRead()));
  command
      ->add_option("--map", arguments->map,
                   "Names used by a foreign format (TOML): series of scalars (docs/scalars.md), "
                   "columns of rollout records (docs/rollout_records.md)")
      ->type_name("FILE");
  command
      ->add_option("--fail-on", arguments->fail_on,
                   "Lowest level of a finding that sets exit status 1")
      ->check(OneOf({"note", "warning", "error"}))
      ->capture_default_str();
  command
      ->add_option("--server", arguments->server,
                   "Audit the data that the plumbd at this address holds for --run, in the order "
                   "in which the server judged them")
      ->type_name("HOST:PORT");
  command->add_flag("--follow", arguments->follow,
                    "Continue to read while the files grow, and print findings at once, until "
                    "Ctrl-C; see docs/scalars.md");
  command
      ->add_option("--send", arguments->send,
                   "Send the scalars that are read to the plumbd at this address, as run --run")
      ->type_name("HOST:PORT");
  command
      ->add_option(
          "--run", arguments->run,
          "Name of the run, for --server and --send; for files of scalars, the name to report")
      ->type_name("RUN");
  AddCredentials(command);
  command->add_flag("--quiet", arguments->quiet, "Print no progress on standard error");
  command->add_flag("-v,--verbose", arguments->verbose,
                    "Text report: also list passed verdicts, and print each finding in full");
}

}  // namespace plumbline::audit
