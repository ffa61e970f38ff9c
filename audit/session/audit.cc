#include "audit/session/audit.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "audit/readers/input/file.h"
#include "audit/readers/input/spelling.h"
#include "audit/readers/scalars/scalar_reader.h"
#include "audit/session/inputs.h"
#include "audit/session/judgement.h"

namespace plumbline::audit {
namespace {

// Reports names of --map that no input has, so that a mistyped name is noticed.
void ReportUnused(const AuditOptions& options, std::deque<InputReport>* inputs) {
  std::set<std::string, std::less<>> names;
  InputReport *of_series = nullptr, *requested = nullptr;
  bool found = false;
  for (InputReport& input : *inputs) {
    for (const SeriesSeen& series : input.series) names.insert(series.name);
    if (!input.series.empty() && of_series == nullptr) of_series = &input;
    if (input.step_stated != StepStated::kNotRequested && requested == nullptr) requested = &input;
    found |= input.step_stated == StepStated::kFound;
  }
  if (requested != nullptr && !found) {
    requested->Add(
        0, absl::StrCat("expected a column ", Quoted(options.readers.scalars.step),
                        ", which --map declares as the step, found no file with this column"));
  }
  if (of_series == nullptr) return;
  const std::vector<std::string_view> known(names.begin(), names.end());
  for (const auto& [name, role] : options.engine.roles.stated()) {
    if (names.contains(name)) continue;
    const auto meant = MeantName(name, known);
    of_series->Note(absl::StrCat(
        "expected a series ", Quoted(name), ", which --map declares as ", NameOf(role),
        ", found none",
        meant ? absl::StrCat("; did you mean ", std::string(*meant), "?") : std::string()));
  }
}

bool RequestsBlocks(const rules::EngineConfig& engine) {
  return std::any_of(engine.settings.begin(), engine.settings.end(), [](const std::string& set) {
    return set.starts_with("precision/format-fit.blocks=");
  });
}

// Returns true if no named path exists, and nothing else was read: then no evidence is missing.
bool NothingThere(const std::deque<InputReport>& inputs) {
  return !inputs.empty() && std::all_of(inputs.begin(), inputs.end(), [](const InputReport& in) {
    std::error_code error;
    return in.named && !std::filesystem::exists(in.path, error);
  });
}

}  // namespace

bool AuditResult::inputs_failed() const {
  return std::any_of(inputs.begin(), inputs.end(),
                     [](const InputReport& input) { return input.failed(); });
}

absl::StatusOr<AuditResult> RunAudit(const AuditOptions& options,
                                     const std::function<void(const AuditProgress&)>& on_progress) {
  auto judgement = Judgement::Create(options.engine, options.collect_series);
  if (!judgement.ok()) return judgement.status();
  if (options.collect_timelines) (*judgement)->KeepTimelines();
  OwnRules own_rules(options.own_rules);
  if (!options.own_rules.files.empty()) (*judgement)->Show(&own_rules);
  for (StepWatcher* watcher : options.watchers) (*judgement)->Show(watcher);
  Inputs inputs =
      FindInputs(options.paths, options.forced, options.mapped, options.readers.scalars.step);
  std::vector<std::unique_ptr<Source>> sources;
  std::vector<std::string> logs;  // their paths
  AuditProgress progress;
  ReaderOptions readers = options.readers;
  readers.block_fits |= RequestsBlocks(options.engine);
  const Reader* first = nullptr;  // the first scalar reader: --run names its run
  for (const Inputs::Set& set : inputs.sets) {
    const bool scalars = dynamic_cast<const ScalarReader*>(set.reader) != nullptr;
    if (scalars && first == nullptr) first = set.reader;
    if (scalars) {
      // Attach the note to the largest file, so not to a copy that is not read.
      InputReport* const largest =
          *std::max_element(set.files.begin(), set.files.end(),
                            [](const auto* a, const auto* b) { return a->bytes < b->bytes; });
      readers.scalars =
          NextToFormat(options.readers.scalars, set.reader->format(), first->format(), largest);
    }
    if (set.reader->format() == "trainer-log") {
      for (const InputReport* file : set.files) logs.push_back(file->path);
    }
    for (auto& source : set.reader->OpenWith(set.files, readers))
      sources.push_back(std::move(source));
  }
  for (const InputReport& report : inputs.reports) {
    if (report.format == "unknown" || report.failed()) continue;
    ++progress.files;
    progress.bytes += report.bytes;
  }
  (*judgement)->Read(std::move(sources), on_progress, progress);
  for (const std::string& path : logs) (*judgement)->ReportSentences(path);
  ReportUnused(options, &inputs.reports);
  AuditResult result = (*judgement)->Finish(std::move(inputs.reports));
  result.notes.insert(result.notes.end(), inputs.notes.begin(), inputs.notes.end());
  result.nothing_there = NothingThere(result.inputs);
  own_rules.TakeReports(&result.inputs);
  return result;
}

}  // namespace plumbline::audit
