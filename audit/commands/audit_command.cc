// plumb audit PATH... Returns exit status 0 if nothing at or above --fail-on was found, 1 if
// something was, 2 on bad usage or an input that could not be read whole.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "analysis/sums/sums.h"
#include "audit/commands/audit_arguments.h"
#include "audit/commands/commands.h"
#include "audit/commands/follow.h"
#include "audit/commands/missing_paths.h"
#include "audit/commands/progress_line.h"
#include "audit/commands/python_package.h"
#include "audit/commands/server_run.h"
#include "audit/learn/invariant_check.h"
#include "audit/live/live.h"
#include "audit/readers/input/reader.h"
#include "audit/readers/rollout/column_map.h"
#include "audit/render/ci_report.h"
#include "audit/render/html_report.h"
#include "audit/render/json_report.h"
#include "audit/render/nothing_judged.h"
#include "audit/render/sarif_report.h"
#include "audit/render/text_report.h"
#include "audit/render/timeline_trace.h"
#include "audit/session/audit.h"
#include "base/clock.h"
#include "base/files/whole_file.h"
#include "command_line/usage.h"

namespace plumbline::audit {
namespace {

// Converts a name of --fail-on, which CLI11 has checked.
v1::Level FailLevel(const std::string& name) {
  return name == "note" ? v1::LEVEL_NOTE : name == "warning" ? v1::LEVEL_WARNING : v1::LEVEL_ERROR;
}

// Returns the exit status. An input that was not read whole outranks findings. If no rule gave a
// verdict, nothing was audited, which is an error.
int ExitStatus(const AuditResult& result, v1::Level fail_on) {
  if (result.inputs_failed() || !result.judged_any) return kExitError;
  for (const v1::Finding* finding : result.findings()) {
    if (!finding->suppressed() && finding->level() >= fail_on) return kExitFindings;
  }
  return kExitClean;
}

// Returns true if the output would overwrite an input.
bool IsInput(const AuditArguments& arguments, const std::string& output) {
  for (const std::string& path : arguments.paths) {
    std::error_code error;
    if (!output.empty() && std::filesystem::equivalent(path, output, error)) return true;
  }
  return false;
}

// Returns the report in the form of --format. With --follow and without --output, JSON is one line.
std::string Render(const AuditArguments& arguments, const AuditResult& result) {
  if (arguments.format == "json") {
    const bool line = arguments.follow && arguments.output.empty();
    return line ? ReportLine(RenderJson(result)) : RenderJson(result);
  }
  if (arguments.format == "html") return RenderHtml(result);
  if (arguments.format == "junit") return RenderJunit(result, FailLevel(arguments.fail_on));
  if (arguments.format == "markdown") return RenderMarkdown(result);
  if (arguments.format == "github") return RenderGithub(result);
  if (arguments.format == "sarif") {
    std::error_code none;
    return RenderSarif(result, ExitStatus(result, FailLevel(arguments.fail_on)),
                       std::filesystem::current_path(none).string());
  }
  TextStyle style = StyleFor(arguments.output.empty() ? STDOUT_FILENO : -1);
  style.verbose = arguments.verbose;
  return RenderText(result, style);
}

// Returns true if the report has plots, which need the series.
bool Plots(const AuditArguments& arguments) {
  return arguments.format == "text" || arguments.format == "html";
}

// Applies --baseline and --since. Returns an error message, or "" if all is right.
std::string Select(const AuditArguments& arguments, Selection* selection) {
  selection->since = arguments.since;
  if (arguments.baseline.empty()) return "";
  auto baseline = Baseline::Read(arguments.baseline);
  if (!baseline.ok()) return "--baseline: " + std::string(baseline.status().message());
  selection->baseline = *std::move(baseline);
  return "";
}

// Passes contract files as a setting to the rule that checks them. Returns an error message or "".
std::string HoldTo(const std::vector<std::string>& files, std::vector<std::string>* settings) {
  for (const std::string& file : files) {
    const absl::StatusOr<std::string> text = ReadWholeFile(file);
    if (!text.ok()) return "--contract: " + std::string(text.status().message());
    if (const auto read = sums::ParseContract(*text, file); !read.ok())
      return "--contract: " + std::string(read.status().message());
    settings->push_back("precision/contract.contracts=" + *text);
  }
  return "";
}

// Prints the problems of the inputs, one line per file, so that they are visible even if the report
// is written to a file. If no rule gave a verdict, prints the reason too. A text report has both,
// so if the user sees the report, they are not repeated.
void DescribeProblems(const AuditArguments& arguments, const AuditResult& result) {
  const bool shown = arguments.format == "text" && arguments.output.empty();
  if (shown && OutputsAreOne()) return;
  if (!result.judged_any && !result.inputs_failed() && !shown) Fail(WhyNothingWasJudged(result));
  for (const InputReport& input : result.inputs) {
    const auto wrong =
        std::find_if(input.problems.begin(), input.problems.end(), [](auto& p) { return p.error; });
    if (wrong == input.problems.end()) continue;
    Fail(wrong->offset > 0 ? input.Line(*wrong) : input.path + ": " + wrong->text);
  }
}

// Writes the timeline and the report. Returns the exit status.
int Report(const AuditArguments& arguments, const Selection& selection,
           absl::StatusOr<AuditResult> result) {
  if (!result.ok()) return Fail(std::string(result.status().message()));
  result->selection.baseline = selection.baseline;
  result->selection.since = selection.since;
  for (InputReport& input : result->inputs) {
    if (input.path == arguments.standard_input) input.path = "standard input";
  }
  if (result->nothing_there && arguments.format == "text" && !arguments.follow)
    return ReportMissing(*result);
  DescribeProblems(arguments, *result);
  if (!arguments.timeline.empty() && !WriteOutput(arguments.timeline, RenderTimeline(*result)))
    return kExitError;
  if (!WriteOutput(arguments.output, Render(arguments, *result))) return kExitError;
  return ExitStatus(*result, FailLevel(arguments.fail_on));
}

// Sets the suppressions that are valid today. Returns an error message or "".
std::string Suppress(const std::string& file, rules::EngineConfig* engine) {
  engine->today = rules::DayOf(static_cast<int64_t>(UnixNs()));
  if (file.empty()) return "";
  auto list = rules::LoadSuppressions(file);
  if (!list.ok()) return "--suppressions: " + std::string(list.status().message());
  engine->suppressions = *std::move(list);
  return "";
}

// Returns an error message if an option needs whole files and the audit reads none; else "".
std::string WrongWithoutFiles(const AuditArguments& arguments, bool of_server) {
  const bool whole = !arguments.follow && arguments.send.empty() && !of_server;
  const char* const option = !arguments.rule_files.empty()   ? "--rule-file"
                             : !arguments.invariants.empty() ? "--invariants"
                                                             : nullptr;
  if (whole || option == nullptr) return "";
  return std::string(option) + ": expected no --follow, --send or --server with it";
}

// Reads --invariants. Returns an error message or "".
std::string TakeInvariants(const AuditArguments& arguments, std::optional<InvariantCheck>* check) {
  if (arguments.invariants.empty()) return "";
  const absl::StatusOr<std::string> text = ReadWholeFile(arguments.invariants);
  if (!text.ok()) return "--invariants: " + std::string(text.status().message());
  absl::StatusOr<Invariants> read = ParseInvariants(*text, arguments.invariants);
  if (!read.ok()) return "--invariants: " + std::string(read.status().message());
  check->emplace(*std::move(read));
  return "";
}

// Sets the user's rule files. Returns an error message or "".
std::string TakeRuleFiles(const AuditArguments& arguments, OwnRulesOptions* rules) {
  if (arguments.rule_files.empty()) {
    const bool of_user =
        std::any_of(arguments.rules.begin(), arguments.rules.end(),
                    [](const std::string& glob) { return glob.starts_with("user/"); });
    return of_user && arguments.invariants.empty()
               ? "--rules user/...: expected --rule-file or --invariants with it"
               : "";
  }
  for (const std::string& file : arguments.rule_files) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(file, error))
      return "--rule-file: expected a file, found none at " + file;
  }
  rules->package = PythonPackage();
  if (rules->package.empty())
    return "--rule-file: expected Plumbline's Python package next to this program, found none";
  rules->files = arguments.rule_files;
  rules->python = arguments.rule_python;
  if (arguments.rule_seconds > 0) rules->limits.seconds = arguments.rule_seconds;
  if (arguments.rule_memory_mib > 0) rules->limits.memory_mib = arguments.rule_memory_mib;
  return "";
}

// --server: judges what a server keeps of a run.
int RunOnServer(const AuditArguments& arguments) {
  if (arguments.server.empty()) return Fail("--run: expected --server ADDR too");
  if (arguments.run.empty())
    return Fail("--server: expected --run RUN too (plumb runs --server " + arguments.server +
                " lists the runs)");
  if (!arguments.paths.empty() || !arguments.as.empty() || !arguments.map.empty() ||
      arguments.follow || !arguments.send.empty())
    return Fail(
        "--server: expected no PATH, --as, --map, --follow or --send with it: the data of the "
        "server are audited");
  Selection selection;
  if (const std::string wrong = Select(arguments, &selection); !wrong.empty()) return Fail(wrong);
  ServerRunOptions options;
  options.collect_series = Plots(arguments);
  options.server = arguments.server;
  options.run = arguments.run;
  options.engine.rules = arguments.rules;
  options.engine.settings = arguments.settings;
  if (const std::string wrong = HoldTo(arguments.contracts, &options.engine.settings);
      !wrong.empty())
    return Fail(wrong);
  if (const std::string wrong = Suppress(arguments.suppressions, &options.engine); !wrong.empty())
    return Fail(wrong);
  absl::StatusOr<AuditResult> result;
  {
    ProgressLine line(arguments.quiet);
    result =
        AuditServerRun(options, [&line](const AuditProgress& progress) { line.Show(progress); });
  }
  return Report(arguments, selection, std::move(result));
}

// Checks --follow and --send. Returns an error message, or "" if they are right.
std::string WrongFollow(const AuditArguments& arguments) {
  const bool page = arguments.format != "text" && arguments.format != "json";
  if (arguments.follow && page && arguments.output.empty())
    return "--follow: expected --output FILE with --format " + arguments.format +
           ", for the report at the end";
  if (!arguments.send.empty() && arguments.run.empty())
    return "--send: expected --run RUN too, the name of the run on the server";
  return "";
}

// Follows the files until a signal, then reports as any audit does.
int RunFollowed(const AuditArguments& arguments, const AuditOptions& options,
                const Selection& selection) {
  FollowOptions follow;
  follow.follow = arguments.follow;
  follow.send = arguments.send;
  follow.selection = selection;
  follow.quiet = arguments.quiet;
  if (arguments.format == "json") follow.format = FollowPrinter::Format::kJson;
  bool unsent = false;
  const int status = Report(arguments, selection, RunFollowed(options, follow, &unsent));
  return unsent ? kExitError : status;
}

// Copies standard input to a file, because readers read a file twice. The destructor removes it.
class StandardInput {
 public:
  ~StandardInput() {
    std::error_code none;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, none);
  }

  // Reads standard input to its end. Returns an error message or "".
  std::string Read() {
    std::error_code error;
    const std::filesystem::path temporary = std::filesystem::temp_directory_path(error);
    std::string folder = (error ? "/tmp" : temporary.string()) + "/plumb-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr)
      return "standard input: expected a writable folder for temporary files, found " + folder;
    folder_ = folder;
    std::FILE* file = std::fopen(path().c_str(), "we");
    if (file == nullptr) return "standard input: expected to write " + path();
    std::vector<char> buffer(1 << 16);
    bool written = true;
    for (size_t got = 0; written && (got = std::fread(buffer.data(), 1, buffer.size(), stdin)) > 0;)
      written = std::fwrite(buffer.data(), 1, got, file) == got;
    written = std::fclose(file) == 0 && written;
    return written ? "" : "standard input: expected enough disk space in " + folder_;
  }

  std::string path() const { return folder_ + "/standard-input.log"; }

 private:
  std::string folder_;
};

int RunAuditOf(const AuditArguments& arguments);

// Audits the paths. "-" is standard input: python train.py 2>&1 | plumb audit -
int RunAudit(const AuditArguments& arguments) {
  const auto dash = std::find(arguments.paths.begin(), arguments.paths.end(), "-");
  if (dash == arguments.paths.end()) return RunAuditOf(arguments);
  if (arguments.follow)
    return Fail(
        "--follow: expected a file, found - (standard input is read to its end, then judged)");
  StandardInput input;
  if (const std::string wrong = input.Read(); !wrong.empty()) return Fail(wrong);
  AuditArguments of_file = arguments;
  std::replace(of_file.paths.begin(), of_file.paths.end(), std::string("-"), input.path());
  of_file.standard_input = input.path();
  return RunAuditOf(of_file);
}

int RunAuditOf(const AuditArguments& arguments) {
  // If a server's run is named, audit that.
  const bool of_server =
      arguments.paths.empty() && !arguments.run.empty() && arguments.send.empty();
  if (const std::string wrong = WrongFollow(arguments); !wrong.empty()) return Fail(wrong);
  if (const std::string wrong =
          WrongWithoutFiles(arguments, of_server || !arguments.server.empty());
      !wrong.empty())
    return Fail(wrong);
  if (!arguments.server.empty() || of_server) return RunOnServer(arguments);
  if (arguments.paths.empty())
    return Fail("audit: expected at least one PATH; see plumb audit --help");
  // Read what affects the judgement: baseline, contracts, suppressions.
  Selection selection;
  if (const std::string wrong = Select(arguments, &selection); !wrong.empty()) return Fail(wrong);
  AuditOptions options;
  options.collect_series = Plots(arguments);
  options.collect_timelines = !arguments.timeline.empty();
  options.paths = arguments.paths;
  options.engine.rules = arguments.rules;
  options.engine.settings = arguments.settings;
  if (const std::string wrong = HoldTo(arguments.contracts, &options.engine.settings);
      !wrong.empty())
    return Fail(wrong);
  if (const std::string wrong = Suppress(arguments.suppressions, &options.engine); !wrong.empty())
    return Fail(wrong);
  // Find the reader that --as names.
  if (!arguments.as.empty()) {
    options.forced = FindReader(arguments.as);
    if (options.forced == nullptr) {
      return Fail("--as: expected one of " + ReadableFormats() + ", found " + arguments.as);
    }
  }
  // A map describes series or rollouts. A map of rollouts is a reader.
  std::optional<ColumnMap> map;
  std::optional<RolloutReader> mapped;
  bool of_series = false;
  if (!arguments.map.empty()) {
    if (const std::string wrong = TakeScalarMap(arguments.map, &options, &of_series);
        !wrong.empty())
      return Fail(wrong);
  }
  if (const std::string wrong = TakeRuleFiles(arguments, &options.own_rules); !wrong.empty())
    return Fail(wrong);
  options.own_rules.roles = options.engine.roles;
  std::optional<InvariantCheck> invariants;
  if (const std::string wrong = TakeInvariants(arguments, &invariants); !wrong.empty())
    return Fail(wrong);
  if (invariants) options.watchers.push_back(&*invariants);
  options.readers.since = arguments.since;
  if (!arguments.run.empty()) options.readers.scalars.run = arguments.run;
  if (!arguments.map.empty() && !of_series) {
    absl::StatusOr<ColumnMap> read = ReadColumnMap(arguments.map);
    if (!read.ok()) return Fail("--map: " + std::string(read.status().message()));
    map = *std::move(read);
    options.mapped = &mapped.emplace(MappedRollouts(*map));
    if (options.forced != nullptr && options.forced->format() == mapped->format())
      options.forced = options.mapped;
  }
  // Judge now, or while the files grow.
  if (IsInput(arguments, arguments.output))
    return Fail("--output: expected a file that is not an input, found " + arguments.output);
  if (IsInput(arguments, arguments.timeline))
    return Fail("--timeline: expected a file that is not an input, found " + arguments.timeline);
  if (arguments.follow || !arguments.send.empty())
    return RunFollowed(arguments, options, selection);
  absl::StatusOr<AuditResult> result;
  {
    ProgressLine line(arguments.quiet);
    result = RunAudit(options, [&line](const AuditProgress& progress) { line.Show(progress); });
  }
  return Report(arguments, selection, std::move(result));
}

}  // namespace

void RegisterAudit(CLI::App& app, int* status) {
  auto arguments = std::make_shared<AuditArguments>();
  CLI::App* command = app.add_subcommand(
      "audit",
      "Judges recorded runs: logs, tables of trackers, traces, checkpoints, dumps, run records");
  AddAuditOptions(command, arguments.get());
  command->callback([arguments, status] { *status = RunAudit(*arguments); });
}

}  // namespace plumbline::audit
