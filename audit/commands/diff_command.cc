// plumb diff A B: compares two recorded runs, or two groups of runs. If both paths hold only
// checkpoints, compares these (diff_checkpoints.h). Returns exit status 0 if they were compared,
// even if they differ. With --expect-equal, returns 1 if something differs; with --fail-on, 1 if B
// is worse. Returns 2 on bad usage, an input that could not be read whole, or if nothing could be
// compared.
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "audit/checkpoints/side.h"
#include "audit/commands/commands.h"
#include "audit/commands/diff_checkpoints.h"
#include "audit/diff/diff_result.h"
#include "audit/readers/rollout/column_map.h"
#include "audit/render/text_util.h"
#include "command_line/usage.h"

namespace plumbline::audit {
namespace {

struct DiffArguments {
  std::vector<std::string> a, b;  // the first of each is the positional argument
  std::string path_a, path_b;
  std::string format = "text";
  std::string output;
  std::string map;
  std::string before;
  std::string fail_on;
  std::string margin = "5%";
  bool expect_equal = false, quiet = false;
};

// Parses "5%" or "5" to a share. Otherwise returns nullopt.
std::optional<double> MarginOf(const std::string& text) {
  double percent = 0;
  if (!absl::SimpleAtod(absl::StripSuffix(text, "%"), &percent) || !(percent >= 0))
    return std::nullopt;
  return percent / 100;
}

v1::Level DiffFailLevel(const std::string& name) {  // checked by CLI11
  return name == "note" ? v1::LEVEL_NOTE : name == "warning" ? v1::LEVEL_WARNING : v1::LEVEL_ERROR;
}

// Prints the losses of B that end more than `margin` above A to standard error. Returns true if
// there are any.
bool EndsTooFarAbove(const DiffResult& result, double margin) {
  const std::vector<EndAbove> above = EndsAbove(result, margin);
  for (const EndAbove& one : above) {
    Fail(
        absl::StrFormat("%s: B ends %.3g %% above A (median of the newest %d common points), more "
                        "than %.3g %%",
                        one.name, 100 * one.share, one.points, 100 * margin));
  }
  return !above.empty();
}

// Prints the rewards of B that end more than `margin` below A to standard error. Returns true if
// there are any.
bool EndsTooFarBelow(const DiffResult& result, double margin) {
  bool below = false;
  for (const RewardDiff& reward : result.rewards) {
    if (!reward.apart || !(reward.shortfall() > margin)) continue;
    Fail(
        absl::StrFormat("%s: B ends at %.4g, A at %.4g (medians of the newest %d common steps), "
                        "more than %.3g %% below",
                        reward.name, reward.b, reward.a, reward.points, 100 * margin));
    below = true;
  }
  return below;
}

// Prints the losses of B that end before A's to standard error. Returns true if there are any.
bool EndsTooEarly(const DiffResult& result) {
  bool early = false;
  for (const SeriesDiff& series : result.series) {
    if (!EndsEarly(series)) continue;
    Fail(absl::StrFormat("%s: B ends at step %d, A at step %d", series.name, series.last_b,
                         series.last_a));
    early = true;
  }
  return early;
}

// Prints findings that B alone has to standard error. Returns true if there are any.
bool FindsMore(const DiffResult& result, v1::Level level) {
  bool more = false;
  for (const v1::Finding* finding : result.only_b) {
    if (finding->suppressed() || finding->level() < level) continue;
    Fail(absl::StrFormat("only B has a finding of %s: %s", finding->rule(), finding->title()));
    more = true;
  }
  return more;
}

// Applies --map. Returns an error message or "".
std::string TakeMap(const std::string& file, AuditOptions* options) {
  if (file.empty()) return "";
  bool taken = false;
  if (std::string wrong = TakeScalarMap(file, options, &taken); !wrong.empty() || taken)
    return wrong;
  const absl::StatusOr<ColumnMap> columns = ReadColumnMap(file);
  return "--map: " + (columns.ok() ? file +
                                         ": expected a map of series (docs/scalars.md), found a "
                                         "map of columns of rollout records"
                                   : std::string(columns.status().message()));
}

// Prints read errors, as plumb audit does. Returns true if the side failed.
bool SideFailed(const DiffSide& side) {
  for (const InputReport& input : side.audit.inputs) {
    for (const Problem& problem : input.problems) {
      if (problem.error)
        Fail(problem.offset > 0 ? input.Line(problem) : input.path + ": " + problem.text);
    }
  }
  return side.failed();
}

int RunDiff(DiffArguments arguments) {
  arguments.a.insert(arguments.a.begin(), arguments.path_a);
  arguments.b.insert(arguments.b.begin(), arguments.path_b);
  for (const auto* side : {&arguments.a, &arguments.b}) {
    for (const std::string& path : *side) {
      std::error_code error;
      if (!arguments.output.empty() && std::filesystem::equivalent(path, arguments.output, error))
        return Fail("--output: expected a file that is not an input, found " + path);
    }
  }
  const bool checkpoints = arguments.a.size() == 1 && arguments.b.size() == 1 &&
                           IsCheckpointPath(arguments.path_a) && IsCheckpointPath(arguments.path_b);
  if (checkpoints && !arguments.fail_on.empty())
    return Fail("--fail-on: expected two runs, found checkpoints (--expect-equal)");
  if (checkpoints) {
    return DiffCheckpoints({arguments.path_a, arguments.path_b, arguments.before, arguments.map,
                            arguments.format, arguments.output, arguments.expect_equal,
                            arguments.quiet});
  }
  if (arguments.expect_equal || !arguments.before.empty())
    return Fail(std::string(arguments.expect_equal ? "--expect-equal" : "--before") +
                ": expected two checkpoints, found other inputs");
  const std::optional<double> margin = MarginOf(arguments.margin);
  if (!margin) return Fail("--margin: expected a share such as 5%, found " + arguments.margin);
  AuditOptions options;
  if (const std::string wrong = TakeMap(arguments.map, &options); !wrong.empty())
    return Fail(wrong);
  absl::StatusOr<DiffSide> a = ReadSide(arguments.a, options), b = ReadSide(arguments.b, options);
  if (!a.ok()) return Fail(std::string(a.status().message()));
  if (!b.ok()) return Fail(std::string(b.status().message()));
  const bool failed_a = SideFailed(*a), failed_b = SideFailed(*b);
  if ((failed_a && a->runs.empty()) || (failed_b && b->runs.empty())) return kExitError;
  const auto result = CompareSides(*std::move(a), *std::move(b));
  const TextStyle style = arguments.output.empty() ? StyleFor(STDOUT_FILENO) : TextStyle{};
  const std::string text =
      arguments.format == "json" ? DiffJson(*result) : DiffText(*result, style);
  if (!WriteOutput(arguments.output, text)) return kExitError;
  if (!result->compared)
    return Fail(
        "expected a series with a common step on both sides, found none: nothing was compared");
  if (failed_a || failed_b) return kExitError;
  if (arguments.fail_on.empty()) return kExitClean;
  const bool above = EndsTooFarAbove(*result, *margin), early = EndsTooEarly(*result);
  const bool more = FindsMore(*result, DiffFailLevel(arguments.fail_on));
  const bool below = EndsTooFarBelow(*result, *margin);
  return more || above || early || below ? kExitFindings : kExitClean;
}

}  // namespace

void RegisterDiff(CLI::App& app, int* status) {
  auto arguments = std::make_shared<DiffArguments>();
  CLI::App* command = app.add_subcommand("diff",
                                         "Compares two recorded runs (settings, curves, numerics, "
                                         "findings, time), or two checkpoints, tensor by tensor");
  command
      ->add_option("A", arguments->path_a,
                   "First side: a file, or a directory (all runs in it are used)")
      ->type_name("PATH")
      ->required();
  command->add_option("B", arguments->path_b, "Second side")->type_name("PATH")->required();
  command->add_option("--more-a", arguments->a, "A run of A with another seed; may be repeated")
      ->type_name("PATH")
      ->allow_extra_args(false);
  command->add_option("--more-b", arguments->b, "A run of B with another seed; may be repeated")
      ->type_name("PATH")
      ->allow_extra_args(false);
  command
      ->add_option(
          "--map", arguments->map,
          "For runs: roles of the series, and names of step and rank (TOML; docs/scalars.md). For "
          "checkpoints: which name in A is which name in B (docs/checkpoints.md)")
      ->type_name("FILE");
  command->add_flag("--expect-equal", arguments->expect_equal,
                    "For two checkpoints: if a tensor has different bits, print the first "
                    "difference and return exit status 1");
  command
      ->add_option(
          "--fail-on", arguments->fail_on,
          "Return exit status 1 if B has a finding of this level that A does not have, if a "
          "loss of B ends above A's, or a reward below A's, by more than --margin and the noise, "
          "or if a loss ends in the first nine tenths of A's steps")
      ->check(OneOf({"note", "warning", "error"}));
  command
      ->add_option("--margin", arguments->margin,
                   "For --fail-on: how much higher a loss of B may end, or how much lower a reward "
                   "(median of the newest eighth of the common points, at least 3; rewards: 8)")
      ->type_name("PERCENT")
      ->capture_default_str();
  command
      ->add_option("--before", arguments->before,
                   "The checkpoint before A: the direction of each change is compared with the "
                   "change before")
      ->type_name("PATH");
  command->add_flag("--quiet", arguments->quiet, "Print no progress line");
  AddReportOptions(command, {"text", "json"}, &arguments->format, &arguments->output);
  command->callback([arguments, status] { *status = RunDiff(*arguments); });
}

}  // namespace plumbline::audit
