#include "audit/session/audit.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <queue>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "audit/readers/input/file.h"
#include "audit/readers/input/spelling.h"
#include "audit/session/inputs.h"

namespace plumbline::audit {
namespace {

// Reads sources side by side, always on from the one furthest behind, so that the engine joins
// ranks with few steps open.
class Merge {
 public:
  Merge(std::vector<std::unique_ptr<Source>> sources, rules::Engine* engine,
        const std::function<void(const AuditProgress&)>& on_progress, AuditProgress progress)
      : sources_(std::move(sources)),
        engine_(engine),
        on_progress_(on_progress),
        progress_(progress) {
    read_.resize(sources_.size());
    for (size_t i = 0; i < sources_.size(); ++i) Enter(i);
  }

  void Run() {
    while (!queue_.empty()) {
      const size_t i = queue_.top().second;
      queue_.pop();
      Step(i);
    }
  }

  // The attempts that were read, by run; whole after Run.
  const std::map<std::string, std::set<uint32_t>>& attempts() const { return attempts_; }

 private:
  using Entry = std::pair<Position, size_t>;  // ties by index: the order of the inputs
  struct Read {
    uint64_t bytes = 0;
    size_t files = 0;
  };

  void Enter(size_t i) {
    queue_.emplace(sources_[i]->position(), i);
    for (const v1::Source& process : sources_[i]->processes()) {
      engine_->Expect(process);
      attempts_[process.run()].insert(process.attempt());
      ++open_[Key(process)];
      uint32_t& newest = newest_attempt_[process.run()];
      newest = std::max(newest, process.attempt());
    }
  }

  void Step(size_t i) {
    Source& source = *sources_[i];
    v1::Batch batch;
    if (!source.Next(&batch)) {
      Leave(source);
    } else {
      if (absl::Status status = engine_->Add(std::move(batch)); !status.ok())
        source.Refused(status);
      queue_.emplace(source.position(), i);
    }
    const Read read{source.bytes_read(), source.files_done()};
    progress_.bytes_done += read.bytes - read_[i].bytes;
    progress_.files_done += read.files - read_[i].files;
    read_[i] = read;
    if (on_progress_) on_progress_(progress_);
  }

  // A process whose input has ended will not report again, so others need not wait for it. Where a
  // later attempt follows, that attempt decides what becomes of the open steps.
  void Leave(const Source& source) {
    for (const v1::Source& process : source.processes()) {
      attempts_[process.run()].insert(process.attempt());
      size_t& open = open_[Key(process)];  // 0: a process that showed only as its input was read
      if (open > 0) --open;
      if (open == 0 && process.attempt() == newest_attempt_[process.run()]) {
        engine_->MarkGone(process);
      }
    }
  }

  static std::tuple<std::string, uint32_t, int, uint32_t> Key(const v1::Source& process) {
    return {process.run(), process.attempt(), process.role(), process.rank()};
  }

  std::vector<std::unique_ptr<Source>> sources_;
  rules::Engine* engine_;
  const std::function<void(const AuditProgress&)>& on_progress_;
  AuditProgress progress_;
  std::vector<Read> read_;  // by source
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
  std::map<std::tuple<std::string, uint32_t, int, uint32_t>, size_t> open_;
  std::map<std::string, uint32_t> newest_attempt_;
  std::map<std::string, std::set<uint32_t>> attempts_;
};

// Several executions under one name are taken for restarts of one run: a finding of one of them is
// then told of "the run", and steps that repeat are what a restart overwrote.
std::vector<std::string> NotesOn(const std::map<std::string, std::set<uint32_t>>& attempts) {
  std::vector<std::string> notes;
  for (const auto& [run, numbers] : attempts) {
    if (numbers.size() < 2) continue;
    notes.push_back(absl::StrCat("run ", run, ": ", numbers.size(), " attempts (",
                                 absl::StrJoin(numbers, ", "),
                                 "), judged as one run that was restarted. Records of runs that "
                                 "are not the same run belong into folders of their own."));
  }
  return notes;
}

// What --map says and nothing that was read has: it would go unnoticed that it holds for nothing.
void TellUnused(const AuditOptions& options, std::deque<InputReport>* inputs) {
  std::set<std::string, std::less<>> names;
  InputReport *of_series = nullptr, *asked = nullptr;
  bool found = false;
  for (InputReport& input : *inputs) {
    for (const SeriesSeen& series : input.series) names.insert(series.name);
    if (!input.series.empty() && of_series == nullptr) of_series = &input;
    if (input.step_said != StepSaid::kNotAsked && asked == nullptr) asked = &input;
    found |= input.step_said == StepSaid::kFound;
  }
  if (asked != nullptr && !found) {
    asked->Add(0, absl::StrCat("expected a column ", Quoted(options.readers.scalars.step),
                               ", which --map names as the step, found no file that has one"));
  }
  if (of_series == nullptr) return;
  const std::vector<std::string_view> known(names.begin(), names.end());
  for (const auto& [name, role] : options.engine.roles.said()) {
    if (names.contains(name)) continue;
    const auto meant = MeantName(name, known);
    of_series->Note(absl::StrCat(
        "expected a series ", Quoted(name), ", which --map calls ", NameOf(role), ", found none",
        meant ? absl::StrCat("; did you mean ", std::string(*meant), "?") : std::string()));
  }
}

// Paths that lead nowhere, and nothing else: nobody recorded anything, so nothing is missing in it.
bool NothingThere(const std::deque<InputReport>& inputs) {
  return !inputs.empty() && std::all_of(inputs.begin(), inputs.end(), [](const InputReport& in) {
    std::error_code error;
    return in.named && !std::filesystem::exists(in.path, error);
  });
}

// That nothing was judged has a reason nearer than the probes where inputs were refused.
v1::Verdict OfRefusedInputs(v1::Verdict verdict) {
  v1::Finding& finding = *verdict.mutable_finding();
  finding.set_explanation("Inputs were refused (see Inputs), and nothing else was there to judge.");
  finding.set_fix("Mend what is said of the inputs, and audit them again.");
  return verdict;
}

// A file of its own in which nothing is judged, beside others in which something is: a table of
// accuracies in the folder of a run. Only where nothing at all was judged is that an error.
v1::Verdict BesideOthers(v1::Verdict verdict) {
  verdict.mutable_finding()->set_level(v1::LEVEL_NOTE);
  return verdict;
}

}  // namespace

bool AuditResult::inputs_failed() const {
  return std::any_of(inputs.begin(), inputs.end(),
                     [](const InputReport& input) { return input.failed(); });
}

absl::StatusOr<AuditResult> RunAudit(const AuditOptions& options,
                                     const std::function<void(const AuditProgress&)>& on_progress) {
  AuditResult result;
  std::vector<v1::Verdict> unjudged;  // runs, told once it is known whether others were judged
  bool judged_any = false;
  auto engine = rules::Engine::Create(options.engine, [&](const v1::Verdict& v) {
    const bool none = v.finding().cause().id() == "no-verdict";
    judged_any |= v.rule().rfind("meta/", 0) != 0;
    if (none) {
      unjudged.push_back(v);
    } else {
      result.report.Add(v);
    }
  });
  if (!engine.ok()) return engine.status();
  if (options.collect_series)
    (*engine)->SetOnSeries([&result](const rules::StepSeries& step) { result.series.Take(step); });
  result.suppressions = options.engine.suppressions;
  Inputs inputs = FindInputs(options.paths, options.forced, options.mapped);
  std::vector<std::unique_ptr<Source>> sources;
  AuditProgress progress;
  for (const Inputs::Set& set : inputs.sets) {
    for (auto& source : set.reader->OpenWith(set.files, options.readers))
      sources.push_back(std::move(source));
  }
  for (const InputReport& report : inputs.reports) {
    if (report.format == "unknown" || report.failed()) continue;
    ++progress.files;
    progress.bytes += report.bytes;
  }
  Merge merge(std::move(sources), engine->get(), on_progress, progress);
  merge.Run();
  TellUnused(options, &inputs.reports);
  result.notes = NotesOn(merge.attempts());
  result.inputs = std::move(inputs.reports);
  result.nothing_there = NothingThere(result.inputs);
  result.roles = options.engine.roles;
  // Also where nothing could be read: that there is no verdict is a finding.
  (*engine)->Finish();
  for (v1::Verdict& verdict : unjudged) {
    if (judged_any) {
      verdict = BesideOthers(std::move(verdict));
    } else if (result.inputs_failed()) {
      verdict = OfRefusedInputs(std::move(verdict));
    }
    result.report.Add(verdict);
  }
  result.coverage = (*engine)->coverage();
  return result;
}

}  // namespace plumbline::audit
