#include "audit/commands/server_run.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "analysis/processes/processes.h"
#include "audit/live/client.h"
#include "rules/catalogue.h"
#include "rules/engine/close_events.h"
#include "rules/engine/engine.h"

namespace plumbline::audit {
namespace {

// Returns true if retention removed the data as configured. Any other gap is a loss.
bool Meant(const v1::Gap& gap) { return gap.reason().rfind("retention", 0) == 0; }

// Returns the server's settings, so that the judgement is the same, then the requested ones. The
// server's settings of rules that were not requested are dropped.
std::vector<std::string> SettingsOf(const v1::ReadRunHeader& header,
                                    const rules::EngineConfig& requested) {
  std::vector<std::string> settings;
  for (const std::string& setting : header.settings()) {
    const std::string rule = setting.substr(0, setting.substr(0, setting.find('=')).rfind('.'));
    const bool wanted = requested.rules.empty() ||
                        std::any_of(requested.rules.begin(), requested.rules.end(),
                                    [&](const auto& glob) { return rules::GlobMatch(glob, rule); });
    if (wanted) settings.push_back(setting);
  }
  settings.insert(settings.end(), requested.settings.begin(), requested.settings.end());
  return settings;
}

// Passes the server's stored data of a run to an engine, in the order in which the server judged
// it.
class Replay {
 public:
  Replay(const ServerRunOptions& options, const std::function<void(const AuditProgress&)>& progress)
      : options_(options), on_progress_(progress) {
    input_.path = absl::StrCat(options.server, "/", options.run);
    input_.format = "server";
    input_.named = true;
    progress_.files = 1;
  }

  absl::StatusOr<AuditResult> Run() {
    Client client(options_.server);
    absl::Status wrong;
    const absl::Status read = client.ReadRun(options_.run, [&](const v1::ReadRunResponse& message) {
      wrong = Take(message);
      return wrong.ok();
    });
    if (!wrong.ok()) return wrong;
    if (engine_ == nullptr) {
      return read.ok() ? absl::DataLossError(
                             absl::StrCat(options_.server, " sent nothing of run ", options_.run))
                       : read;
    }
    if (!read.ok()) {
      input_.Add(input_.bytes, absl::StrCat("expected the rest of the run, found: ",
                                            std::string(read.message())));
    }
    engine_->Finish();
    result_.coverage = engine_->coverage();
    result_.inputs.push_back(std::move(input_));
    return std::move(result_);
  }

 private:
  // Handles one message: the header comes first, then batches and events, then the end.
  absl::Status Take(const v1::ReadRunResponse& message) {
    if (message.has_header()) return Begin(message.header());
    if (engine_ == nullptr) return absl::DataLossError("the server sent an item before its header");
    if (message.has_end()) {
      End(message.end());
    } else if (message.item().has_event()) {
      Apply(message.item().event());
    } else {
      TakeBatch(message.item().batch());
    }
    if (on_progress_) on_progress_(progress_);
    return absl::OkStatus();
  }

  // Creates the engine with the server's settings, and reports the gaps of the journal.
  absl::Status Begin(const v1::ReadRunHeader& header) {
    rules::EngineConfig config = options_.engine;
    config.settings = SettingsOf(header, config);
    if (config.rules.empty()) config.rules = {header.rules().begin(), header.rules().end()};
    globs_ = config.rules;
    if (header.window_steps() > 0) config.window_steps = header.window_steps();
    config.run_bytes = header.run_bytes();
    config.hosted = header.closes_reported();
    auto engine = rules::Engine::Create(config, [this](const v1::Verdict& v) {
      if (v.site().run() == options_.run) result_.report.Add(v);
    });
    if (!engine.ok()) return engine.status();
    engine_ = std::move(*engine);
    engine_->SetOnWhole(
        [this](const rules::RunSummary& run) { return result_.report.NotLookedAtSince(run); });
    if (options_.collect_series)
      engine_->SetOnSeries([this](const rules::StepSeries& step) { result_.series.Take(step); });
    result_.suppressions = options_.engine.suppressions;
    for (const v1::Gap& gap : header.gaps()) input_.Add(0, Words(gap), !Meant(gap));
    return absl::OkStatus();
  }

  // Returns a gap as a line of the report.
  static std::string Words(const v1::Gap& gap) {
    if (gap.run().empty() && gap.step_last() == 0)  // the runs and steps of the gap are unknown
      return absl::StrCat("expected the complete journal, found ", gap.reason());
    const std::string items =
        gap.items() > 0 ? absl::StrCat(gap.items(), " items are") : "evidence is";
    return absl::StrCat("expected steps ", gap.step_first(), " to ", gap.step_last(),
                        " of attempt ", gap.attempt(), " whole, found that ", items, " missing (",
                        gap.reason(), ")");
  }

  // Returns true if the rule was requested.
  bool Selected(const char* rule) const {
    return globs_.empty() ||
           std::any_of(globs_.begin(), globs_.end(),
                       [&](const std::string& glob) { return rules::GlobMatch(glob, rule); });
  }

  // Judges a batch, without what belongs to other runs.
  void TakeBatch(const std::string& bytes) {
    v1::Batch batch;
    const uint64_t offset = input_.bytes;
    input_.bytes += bytes.size();
    progress_.bytes_done = progress_.bytes = input_.bytes;
    if (!batch.ParseFromString(bytes)) {
      input_.Add(offset, "expected a batch, found other bytes");
      return;
    }
    KeepRun(options_.run, &batch);
    input_.records += static_cast<uint64_t>(batch.evidence_size());
    for (const v1::SeriesRows& rows : batch.series())
      input_.records += static_cast<uint64_t>(rows.value_size());
    if (batch.sources().empty() && batch.series_sets().empty()) return;
    // If the engine refuses a batch, count and report it, as the server does.
    auto shared = std::make_shared<const v1::Batch>(std::move(batch));
    if (const absl::Status added = engine_->Add(shared); !added.ok()) {
      (void)engine_->AddRefused(*shared);
      input_.Add(offset, absl::StrCat("expected a batch that can be judged, found: ",
                                      std::string(added.message())));
    }
  }

  // Repeats an event of the server's judgement: closes, hangs, quarantine, suppressions, column
  // sets.
  void Apply(const v1::JudgeEvent& event) {
    rules::ApplyCloses(event, options_.run, engine_.get());
    if (event.has_hung() && event.hung().run() == options_.run)
      engine_->Emit(options_.run, rules::kHangRule, analysis::HangVerdict(event.hung()));
    const auto opened = analysis::QuarantineOpened(event);
    if (opened && opened->site().run() == options_.run && Selected(rules::kQuarantineRule))
      result_.report.Add(*opened);
    // Use the server's suppressions, unless the caller gave some.
    if (event.has_suppressions() && options_.engine.suppressions.empty())
      engine_->SetSuppressions(rules::FromMessage(event.suppressions()),
                               event.suppressions().today());
    if (!event.has_stream_sets()) return;
    v1::Batch declared;
    declared.set_stream_id(event.stream_sets().stream_id());
    declared.add_sources()->set_run(options_.run);
    *declared.mutable_series_sets() = event.stream_sets().sets();
    if (const absl::Status added = engine_->Add(std::move(declared)); !added.ok())
      input_.Add(input_.bytes,
                 absl::StrCat("expected series sets, found: ", std::string(added.message())));
  }

  // Reports data that the server had not judged yet.
  void End(const v1::ReadRunEnd& end) {
    progress_.files_done = 1;
    if (end.not_judged_live() == 0) return;
    input_.Add(input_.bytes,
               absl::StrCat("expected that the server has judged all ", end.items(),
                            " items, found that it has not yet judged the last ",
                            end.not_judged_live(), " of them"),
               false);
  }

  const ServerRunOptions& options_;
  const std::function<void(const AuditProgress&)>& on_progress_;
  AuditProgress progress_;
  InputReport input_;
  AuditResult result_;
  std::unique_ptr<rules::Engine> engine_;
  std::vector<std::string> globs_;  // requested rules; empty: all
};

// Keeps the elements whose source is kept, with the source's new number.
template <typename List>
void KeepOf(const std::vector<int>& place, List* list) {
  int kept = 0;
  for (int i = 0; i < list->size(); ++i) {
    const uint32_t source = list->Get(i).source();
    if (source >= place.size() || place[source] < 0) continue;
    list->Mutable(i)->set_source(static_cast<uint32_t>(place[source]));
    list->SwapElements(kept++, i);
  }
  list->DeleteSubrange(kept, list->size() - kept);
}

// Keeps the rows of kept sources. `absent` is a bitmap over the values, row by row.
void KeepRows(const std::vector<int>& place, v1::SeriesRows* rows) {
  const int count = rows->step_size();
  if (count == 0 || rows->source().empty() || rows->value_size() % count != 0) return;
  const int width = rows->value_size() / count;
  v1::SeriesRows kept;
  kept.set_set(rows->set());
  std::string absent;
  for (int r = 0; r < count; ++r) {
    const uint32_t source = rows->source(rows->source_size() == 1 ? 0 : r);
    if (source >= place.size() || place[source] < 0) continue;
    kept.add_source(static_cast<uint32_t>(place[source]));
    kept.add_step(rows->step(r));
    for (int c = 0; c < width; ++c) {
      const auto from =
          static_cast<size_t>(r) * static_cast<size_t>(width) + static_cast<size_t>(c);
      const auto to = static_cast<size_t>(kept.value_size());
      kept.add_value(rows->value(static_cast<int>(from)));
      if (to % 8 == 0) absent += '\0';
      if (from / 8 < rows->absent().size() && (rows->absent()[from / 8] >> (from % 8) & 1) != 0)
        absent[to / 8] = static_cast<char>(absent[to / 8] | 1 << (to % 8));
    }
  }
  if (!rows->absent().empty()) kept.set_absent(std::move(absent));
  *rows = std::move(kept);
}

}  // namespace

void KeepRun(const std::string& run, v1::Batch* batch) {
  std::vector<int> place;
  int kept = 0;
  for (const v1::Source& source : batch->sources())
    place.push_back(source.run() == run ? kept++ : -1);
  if (kept == batch->sources_size()) return;
  KeepOf(place, batch->mutable_evidence());
  KeepOf(place, batch->mutable_progress());
  KeepOf(place, batch->mutable_losses());
  KeepOf(place, batch->mutable_declarations());
  for (v1::SeriesRows& rows : *batch->mutable_series()) KeepRows(place, &rows);
  for (int i = batch->series_size() - 1; i >= 0; --i) {
    if (batch->series(i).step().empty()) batch->mutable_series()->DeleteSubrange(i, 1);
  }
  auto* sources = batch->mutable_sources();
  for (int i = sources->size() - 1; i >= 0; --i) {
    if (place[static_cast<size_t>(i)] < 0) sources->DeleteSubrange(i, 1);
  }
}

absl::StatusOr<AuditResult> AuditServerRun(
    const ServerRunOptions& options, const std::function<void(const AuditProgress&)>& on_progress) {
  return Replay(options, on_progress).Run();
}

}  // namespace plumbline::audit
