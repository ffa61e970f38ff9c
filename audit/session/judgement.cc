#include "audit/session/judgement.h"

#include <algorithm>
#include <queue>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "analysis/processes/processes.h"
#include "audit/session/counted_rows.h"
#include "audit/session/emptied_columns.h"
#include "audit/session/log_endings.h"
#include "audit/session/repeats.h"
#include "audit/session/series_fold.h"

namespace plumbline::audit {
namespace {

// Reads sources in parallel. Always continues with the source that is at the lowest step, so that
// the engine joins ranks with few open steps.
class Merge {
 public:
  // `on_batch` is called with each batch before the engine adds it.
  Merge(std::vector<std::unique_ptr<Source>> sources, rules::Engine* engine, ClosedSteps* closed,
        const std::function<void(const v1::Batch&)>& on_batch,
        const std::function<void(const AuditProgress&)>& on_progress, AuditProgress progress)
      : sources_(std::move(sources)),
        engine_(engine),
        closed_(closed),
        on_batch_(on_batch),
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

  // Returns the attempts that were read, by run. Complete after Run.
  const std::map<std::string, std::set<uint32_t>>& attempts() const { return attempts_; }

 private:
  using Entry = std::pair<Position, size_t>;  // ties by index, the order of the inputs
  struct Read {
    uint64_t bytes = 0;
    size_t files = 0;
  };

  void Enter(size_t i) {
    queue_.emplace(sources_[i]->position(), i);
    for (const v1::Source& process : sources_[i]->processes()) {
      engine_->Expect(process);
      closed_->Expect(process);
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
      on_batch_(batch);
      const auto shared = std::make_shared<const v1::Batch>(std::move(batch));
      if (absl::Status status = engine_->Add(shared); !status.ok()) {
        source.Refused(status);
      } else {
        closed_->Take(shared);
      }
      queue_.emplace(source.position(), i);
    }
    const Read read{source.bytes_read(), source.files_done()};
    progress_.bytes_done += read.bytes - read_[i].bytes;
    progress_.files_done += read.files - read_[i].files;
    read_[i] = read;
    if (on_progress_) on_progress_(progress_);
  }

  // Handles the end of a source: its processes will not report again, so others need not wait for
  // them. If a later attempt follows, that attempt decides about the open steps.
  void Leave(const Source& source) {
    for (const v1::Source& process : source.processes()) {
      attempts_[process.run()].insert(process.attempt());
      size_t& open = open_[Key(process)];  // 0: the process appeared only while its input was read
      if (open > 0) --open;
      if (open == 0 && process.attempt() == newest_attempt_[process.run()]) {
        engine_->MarkGone(process);
        closed_->MarkGone(process);
      }
    }
  }

  static std::tuple<std::string, uint32_t, int, uint32_t> Key(const v1::Source& process) {
    return {process.run(), process.attempt(), process.role(), process.rank()};
  }

  std::vector<std::unique_ptr<Source>> sources_;
  rules::Engine* engine_;
  ClosedSteps* closed_;
  const std::function<void(const v1::Batch&)>& on_batch_;
  const std::function<void(const AuditProgress&)>& on_progress_;
  AuditProgress progress_;
  std::vector<Read> read_;  // by source
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
  std::map<std::tuple<std::string, uint32_t, int, uint32_t>, size_t> open_;
  std::map<std::string, uint32_t> newest_attempt_;
  std::map<std::string, std::set<uint32_t>> attempts_;
};

// Returns notes on runs with several attempts. Several executions under one name are treated as
// restarts of one run: then a finding on one of them names "the run", and repeated steps count as
// overwritten.
std::vector<std::string> NotesOn(const std::map<std::string, std::set<uint32_t>>& attempts) {
  std::vector<std::string> notes;
  for (const auto& [run, numbers] : attempts) {
    if (numbers.size() < 2) continue;
    notes.push_back(absl::StrCat("run ", run, ": ", numbers.size(), " attempts (",
                                 absl::StrJoin(numbers, ", "),
                                 "), judged as one run that was restarted. Put records of "
                                 "different runs into separate folders."));
  }
  return notes;
}

// If inputs were refused, this is why nothing was judged. It replaces the reason about probes.
v1::Verdict OfRefusedInputs(v1::Verdict verdict) {
  v1::Finding& finding = *verdict.mutable_finding();
  finding.set_explanation("Inputs were refused (see Inputs), and there was no other input.");
  finding.set_fix("Fix the problems of the inputs, and audit them again.");
  return verdict;
}

// Lowers the level if other runs were judged: a folder may hold a file without judged series, such
// as a table of accuracies. It is an error only if no run was judged.
v1::Verdict NextToOthers(v1::Verdict verdict) {
  verdict.mutable_finding()->set_level(v1::LEVEL_NOTE);
  return verdict;
}

// Returns true if some series has a role that rules judge. Without one there is no verdict, and a
// note on a series of no role must not look like one.
bool HoldsJudgedSeries(const std::deque<InputReport>& inputs, const SeriesRoles& roles) {
  const auto judged = [&](const SeriesSeen& series) {
    return UnknownSeries::IsJudged(roles.Of(series.name));
  };
  return std::any_of(inputs.begin(), inputs.end(), [&](const InputReport& input) {
    return std::any_of(input.series.begin(), input.series.end(), judged);
  });
}

// Returns a key of a verdict of ReportSoFar. The key stays the same while only the counts grow.
std::string KeyOf(const std::string& run, const v1::Finding& finding) {
  const v1::FindingSite& site = finding.site();
  return absl::StrCat(run, "\n", site.op(), "\n", site.step_first(), "\n",
                      absl::StrJoin(site.ranks(), ","));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Judgement>> Judgement::Create(const rules::EngineConfig& config,
                                                             bool collect_series) {
  std::unique_ptr<Judgement> judgement(new Judgement);
  auto engine = rules::Engine::Create(
      config, [j = judgement.get()](const v1::Verdict& verdict) { j->Take(verdict); });
  if (!engine.ok()) return engine.status();
  judgement->engine_ = *std::move(engine);
  judgement->engine_->SetOnWhole([j = judgement.get()](const rules::RunSummary& run) {
    return j->result_.report.NotLookedAtSince(run);
  });
  if (collect_series) {
    judgement->engine_->SetOnSeries(
        [j = judgement.get()](const rules::StepSeries& step) { j->result_.series.Take(step); });
  }
  judgement->result_.suppressions = config.suppressions;
  judgement->result_.roles = config.roles;
  return judgement;
}

void Judgement::Take(const v1::Verdict& verdict) {
  judged_any_ |= verdict.rule().rfind("meta/", 0) != 0;
  if (verdict.finding().cause().id() == "no-verdict") {
    unjudged_.push_back(verdict);
    return;
  }
  result_.report.Add(verdict);
  if (verdict.kind() == v1::Verdict::KIND_FINDING) ++findings_reported_;
}

void Judgement::TakeTimelines(const v1::Batch& batch) {
  for (const v1::Evidence& evidence : batch.evidence()) {
    if (!evidence.has_timeline()) continue;
    const v1::Source& source = batch.sources(static_cast<int>(evidence.source()));
    result_.timelines.push_back(
        {source.run(), source.rank(), evidence.site().layer(), evidence.timeline()});
  }
}

// Records the newest step of each run. Rows are in ascending order.
void Judgement::TakeNewest(const v1::Batch& batch) {
  for (const v1::SeriesRows& rows : batch.series()) {
    if (rows.step().empty() || rows.source().empty()) continue;
    const int source = static_cast<int>(rows.source(rows.source_size() - 1));
    if (source >= batch.sources_size()) continue;
    int64_t& newest = newest_[batch.sources(source).run()];
    newest = std::max(newest, rows.step(rows.step_size() - 1));
  }
}

void Judgement::ReportSentences(const std::string& path) {
  for (const auto& [run, newest] : newest_) {
    if (newest_.size() > 1 && !path.ends_with(run)) continue;
    if (auto verdict = EndingVerdict(path, newest))
      engine_->Emit(run, analysis::kRunDiedRule, *std::move(verdict));
    if (auto verdict = ScalerVerdict(path, newest))
      engine_->Emit(run, "health/loss-scale", *std::move(verdict));
    return;
  }
}

void Judgement::Read(std::vector<std::unique_ptr<Source>> sources,
                     const std::function<void(const AuditProgress&)>& on_progress,
                     AuditProgress progress) {
  const std::function<void(const v1::Batch&)> on_batch = [this](const v1::Batch& batch) {
    if (keep_timelines_) TakeTimelines(batch);
    Note(batch);
  };
  Merge merge(std::move(sources), engine_.get(), &closed_, on_batch, on_progress, progress);
  merge.Run();
  for (const auto& [run, numbers] : merge.attempts())
    attempts_[run].insert(numbers.begin(), numbers.end());
}

void Judgement::Note(const v1::Batch& batch) {
  TakeNewest(batch);
  unknown_.Take(batch);
  rank_ends_.Take(batch);
}

absl::Status Judgement::Add(v1::Batch batch) {
  Note(batch);
  for (const v1::Source& source : batch.sources()) attempts_[source.run()].insert(source.attempt());
  const auto shared = std::make_shared<const v1::Batch>(std::move(batch));
  const absl::Status added = engine_->Add(shared);
  if (added.ok()) closed_.Take(shared);
  return added;
}

// Adds the verdicts of judges that are not rules of the engine.
void Judgement::EmitWatched() {
  if (!closed_.watched()) return;
  for (WatcherVerdict& of : closed_.Finish())
    engine_->Emit(of.run, of.rule.c_str(), std::move(of.verdict));
}

bool Judgement::ReportSoFar(const RankEnds::May& may) {
  std::set<std::string> now;
  const auto report = [&](std::vector<std::pair<std::string, v1::Verdict>> verdicts,
                          const char* rule) {
    for (auto& [run, verdict] : verdicts) {
      std::string key = KeyOf(run, verdict.finding());
      if (!reported_so_far_.contains(key)) engine_->Emit(run, rule, std::move(verdict));
      now.insert(std::move(key));
    }
  };
  if (unknown_.holds_judged()) report(unknown_.Verdicts(), "health/loss-non-finite");
  report(rank_ends_.Verdicts(may), analysis::kRunDiedRule);
  const bool holds =
      std::includes(now.begin(), now.end(), reported_so_far_.begin(), reported_so_far_.end());
  reported_so_far_ = std::move(now);
  return holds;
}

AuditResult Judgement::Finish(std::deque<InputReport> inputs) {
  result_.notes = NotesOn(attempts_);
  result_.inputs = std::move(inputs);
  for (auto& [run, verdict] : EmptiedVerdicts(result_.inputs, result_.roles))
    engine_->Emit(run, "health/loss-non-finite", std::move(verdict));
  if (HoldsJudgedSeries(result_.inputs, result_.roles)) {
    for (auto& [run, verdict] : unknown_.Verdicts())
      engine_->Emit(run, "health/loss-non-finite", std::move(verdict));
  }
  for (auto& [run, verdict] : rank_ends_.Verdicts())
    engine_->Emit(run, analysis::kRunDiedRule, std::move(verdict));
  EmitWatched();
  // Also if nothing could be read: the absence of a verdict is a finding.
  engine_->Finish();
  for (v1::Verdict& verdict : unjudged_) {
    if (judged_any_) {
      verdict = NextToOthers(std::move(verdict));
    } else if (result_.inputs_failed()) {
      verdict = OfRefusedInputs(std::move(verdict));
    }
    result_.report.Add(verdict);
  }
  StateCountedRows(result_.inputs, &result_.report);
  StateFallBacks(result_.inputs, &result_.report);
  const Repeats repeats = FindRepeats(result_.inputs, result_.report.findings(), result_.roles);
  result_.selection.repeated = repeats.fingerprints;
  if (!repeats.note.empty()) result_.notes.push_back(repeats.note);
  const SeriesFold fold =
      FoldSeries(result_.report.findings(), repeats.fingerprints, result_.roles);
  result_.report.Amend([&](v1::Finding* finding) { fold.Amend(finding); });
  result_.selection.repeated.insert(fold.fingerprints.begin(), fold.fingerprints.end());
  result_.coverage = engine_->coverage();
  result_.judged_any = judged_any_;
  return std::move(result_);
}

}  // namespace plumbline::audit
