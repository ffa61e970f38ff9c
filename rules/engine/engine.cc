#include "rules/engine/engine.h"

#include <algorithm>
#include <exception>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rules/engine/active_rules.h"
#include "rules/engine/batch_check.h"
#include "rules/engine/checkpoint.h"
#include "rules/engine/engine_runs.h"
#include "rules/engine/refused.h"
#include "rules/engine/run_judge.h"

namespace plumbline::rules {

class Engine::Impl {
 public:
  Impl(std::vector<ActiveRule> selected, const EngineConfig& config, OnVerdict on_verdict)
      : active(std::move(selected)),
        options{config.window_steps, config.hosted, config.run_bytes},
        rule_bytes_each(config.run_bytes / EngineConfig::kRulesPart),
        globs(config.rules),
        roles(config.roles),
        most_series(config.most_series),
        queried(MakeRules()),
        sets([this](const v1::Site& site) {
          return std::any_of(queried.begin(), queried.end(),
                             [&](const auto& rule) { return Reads(rule.get(), site); });
        }),
        judge(&active, most_series, std::move(on_verdict)) {
    judge.suppressions().Set(config.suppressions, config.today);
  }

  bool Selects(const char* rule) const {
    return globs.empty() || std::any_of(globs.begin(), globs.end(), [&](const std::string& glob) {
             return GlobMatch(glob, rule);
           });
  }

  void Add(const std::shared_ptr<const v1::Batch>& batch);
  void Drop(const std::string& name) {
    if (runs.Drop(name)) sets.Trim();
  }
  EngineRun& RunOf(const std::string& name) {
    if (EngineRun* known = runs.Find(name)) return *known;
    EngineRun& run = NewRun(name);
    judge.ReportExpiredSuppressions(run);
    return run;
  }
  void FinishRun(const std::string& name, bool over);
  absl::Status Restore(std::string_view bytes);
  std::string Maker() const;
  void Persist(Archive& archive);

  // Judges the run if the guard allows it. If judging throws, only this run is forgotten.
  template <typename What>
  void Guarded(const std::string& name, const What& what) {
    if (guard == nullptr) return what();
    if (!guard->Begin(name)) return;
    std::string failed;
    try {
      what();
    } catch (const std::exception& e) {
      failed = e.what();
      if (failed.empty()) failed = "an exception";
      Drop(name);
    }
    guard->End();
    if (!failed.empty()) guard->Failed(name, failed);
  }

  template <typename What>
  void OfKnown(const std::string& name, const What& what) {
    EngineRun* const run = runs.Find(name);
    if (run == nullptr) return;
    Guarded(name, [&] {
      what(*run);
      runs.Weigh(run);
    });
  }

  const std::vector<ActiveRule> active;
  const RunState::Options options;
  const uint64_t rule_bytes_each;        // bytes that the rules of one run may remember
  const std::vector<std::string> globs;  // select the rules
  const SeriesRoles roles;
  const uint64_t most_series;                               // number of series that the rules of
                                                            // one run judge
  const std::vector<std::unique_ptr<Rule>> queried;         // asked which series they read; judge
                                                            // nothing
  std::map<std::string, std::vector<v1::Source>> expected;  // by run
  RunGuard* guard = nullptr;
  SeriesSets sets;
  EngineRuns runs;
  RunJudge judge;

 private:
  std::vector<std::unique_ptr<Rule>> MakeRules() const {
    std::vector<std::unique_ptr<Rule>> rules;
    for (const ActiveRule& rule : active) rules.push_back(rule.entry->make(rule.options));
    return rules;
  }

  // Records the stream, because a run that is over may be forgotten and its streams may return.
  void NoteStream(EngineRun* run, uint64_t stream_id, bool fresh) {
    if (!options.hosted || run->state.Spoke(stream_id)) return;
    const bool before = sets.NoteRun(stream_id, run->name());
    if (fresh && before) run->state.SetResumed();
  }

  EngineRun& NewRun(const std::string& name) {
    auto run = std::make_unique<EngineRun>(
        name, options, &sets,
        RunRules(&active, rule_bytes_each, JudgedSeries(&roles, most_series)));
    run->state.summary().meta_alone =
        std::all_of(active.begin(), active.end(),
                    [](const ActiveRule& rule) { return rule.entry->info->group() == "meta"; });
    if (const auto sources = expected.find(name); sources != expected.end()) {
      for (const v1::Source& source : sources->second) run->state.Expect(source);
    }
    return runs.Put(std::move(run));
  }
};

namespace {

// Returns true if the batch only declares sets: a stream that returns declares its sets again, even
// if its run is over.
bool OnlyDeclaresSets(const v1::Batch& batch) {
  return !batch.series_sets().empty() && batch.evidence().empty() && batch.series().empty() &&
         batch.progress().empty() && batch.losses().empty() && batch.declarations().empty();
}

}  // namespace

void Engine::Impl::Add(const std::shared_ptr<const v1::Batch>& batch) {
  sets.Declare(*batch);
  if (OnlyDeclaresSets(*batch)) return;
  std::set<std::string_view> seen;  // a batch may hold several runs
  for (const v1::Source& source : batch->sources()) {
    if (!seen.insert(source.run()).second) continue;
    const std::string& name = source.run();
    Guarded(name, [&] {
      // If a run is over, a new process starts the run again. A process that was unreachable
      // continues the run.
      if (const EngineRun* known = runs.Find(name);
          known != nullptr && known->state.over() && !known->state.Spoke(batch->stream_id()))
        Drop(name);
      const bool fresh = runs.Find(name) == nullptr;
      EngineRun& run = RunOf(name);
      NoteStream(&run, batch->stream_id(), fresh);
      run.state.Take(batch, judge.Judging(run));
      runs.Weigh(&run);
    });
  }
}

// `over` is true if all processes of the run ended or are gone; false if the input just ended.
void Engine::Impl::FinishRun(const std::string& name, bool over) {
  bool may_return = false;
  OfKnown(name, [&](EngineRun& run) {
    if (run.state.over()) return;
    judge.JudgeWhole(run, over);
    may_return = over && options.hosted && run.state.MayReturn();
    run.state.SetOver();
  });
  if (!may_return) Drop(name);
}

// Returns everything that a state depends on, except the evidence.
std::string Engine::Impl::Maker() const {
  std::string maker = absl::StrCat("window ", options.window_steps, options.hosted ? " hosted" : "",
                                   "\nrun bytes ", options.max_bytes);
  if (most_series != EngineConfig().most_series)
    absl::StrAppend(&maker, "\nseries of a role ", most_series);
  for (const auto& [name, role] : roles.stated())
    absl::StrAppend(&maker, "\nseries ", name.size(), ":", name, " ", static_cast<int>(role));
  for (const ActiveRule& rule : active)
    absl::StrAppend(&maker, "\n", rule.entry->info->id, " ", rule.options.Words());
  return maker;
}

// Not stored: the host's settings, and the sums of bytes, which are computed again.
void Engine::Impl::Persist(Archive& archive) {
  uint64_t judged = judge.judged(), inconclusive = judge.inconclusive();
  uint64_t losses = runs.dropped_losses();
  archive(judged, inconclusive, losses, sets);
  judge.suppressions().Persist(archive);
  judge.SetCounts(judged, inconclusive);
  runs.SetDroppedLosses(losses);
  std::vector<std::string> names = runs.Names();
  archive(names);
  for (const std::string& name : names) {
    if (!archive.ok()) return;
    EngineRun* const known = runs.Find(name);
    EngineRun& run = known != nullptr ? *known : NewRun(name);
    archive.Section("run", [&] {
      const uint32_t version = run.state.Persist(archive);
      if (archive.ok() && version >= RunState::kRulesCounted)
        run.rules.PersistCounts(archive, version >= RunState::kSeriesCounted);
    });
    runs.Weigh(&run);
    run.rules.PersistRules(archive);
  }
}

absl::Status Engine::Impl::Restore(std::string_view bytes) {
  if (!runs.Names().empty() || !sets.empty() ||
      judge.judged() + judge.inconclusive() + runs.dropped_losses() > 0)
    return absl::FailedPreconditionError("checkpoint: expected an engine without evidence");
  absl::Status status =
      OpenCheckpoint(bytes, Maker(), [this](Archive& archive) { Persist(archive); });
  if (status.ok()) return status;
  runs.Clear();
  sets.Clear();
  judge.SetCounts(0, 0);
  judge.suppressions().Clear();
  return status;
}

// ---- the calls ---------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineConfig& config,
                                                       OnVerdict on_verdict) {
  auto active = SelectRules(config.rules);
  if (!active.ok()) return active.status();
  for (const std::string& setting : config.settings) {
    if (auto status = ApplySetting(setting, *active); !status.ok()) return status;
  }
  if (!config.roles.empty()) {
    const auto roles = std::make_shared<const SeriesRoles>(config.roles);
    for (ActiveRule& rule : *active) rule.options.SetRoles(roles);
  }
  return std::unique_ptr<Engine>(
      new Engine(std::make_unique<Impl>(std::move(*active), config, std::move(on_verdict))));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

void Engine::SetOnSeries(OnSeries on_series) { impl_->judge.host().series = std::move(on_series); }
void Engine::SetOnLate(OnLate on_late) { impl_->judge.host().late = std::move(on_late); }
void Engine::SetOnLost(OnLost on_lost) { impl_->judge.host().lost = std::move(on_lost); }
void Engine::SetOnWhole(OnWhole on_whole) { impl_->judge.host().whole = std::move(on_whole); }
void Engine::SetGuard(RunGuard* guard) { impl_->guard = guard; }
void Engine::Expect(const v1::Source& source) { impl_->expected[source.run()].push_back(source); }

absl::Status Engine::Add(v1::Batch batch) {
  return Add(std::make_shared<const v1::Batch>(std::move(batch)));
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): shared with what the engine keeps
absl::Status Engine::Add(std::shared_ptr<const v1::Batch> batch) {
  if (auto status = CheckBatch(*batch); !status.ok()) return status;
  return AddChecked(batch);
}

absl::Status Engine::AddChecked(const std::shared_ptr<const v1::Batch>& batch) {
  if (auto status = impl_->sets.Check(*batch); !status.ok()) return status;
  impl_->Add(batch);
  return absl::OkStatus();
}

absl::Status Engine::AddRefused(const v1::Batch& batch) { return Add(WithoutRefused(batch)); }
absl::Status Engine::DeclareSets(const v1::Batch& batch) {
  if (auto status = impl_->sets.Check(batch); !status.ok()) return status;
  impl_->sets.Declare(batch);
  return absl::OkStatus();
}
void Engine::ForgetStream(uint64_t stream_id) { impl_->sets.ForgetStream(stream_id); }
std::vector<uint64_t> Engine::Streams() const { return impl_->sets.Streams(); }

void Engine::SetSuppressions(std::vector<Suppression> list, int32_t today) {
  impl_->judge.suppressions().Set(std::move(list), today);
  for (const std::string& name : Runs()) {
    EngineRun* const run = impl_->runs.Find(name);
    if (run != nullptr) impl_->judge.ReportExpiredSuppressions(*run);
  }
}
bool Engine::SuppressionsAre(const std::vector<Suppression>& list, int32_t today) const {
  return impl_->judge.suppressions().Is(list, today);
}

void Engine::Emit(const std::string& run, const char* rule, v1::Verdict verdict) {
  EngineRun* const known = impl_->runs.Find(run);
  if (known == nullptr || !impl_->Selects(rule)) return;
  impl_->Guarded(run, [&] { impl_->judge.Add(*known, rule, std::move(verdict)); });
}
void Engine::JudgeEnds(const std::string& run) {
  impl_->OfKnown(run,
                 [&](EngineRun& of) { impl_->judge.ReportEnds(of, of.state.Ends(false), true); });
}
void Engine::MarkGone(const v1::Source& source, LateCause cause, EndKind way) {
  impl_->OfKnown(source.run(), [&](EngineRun& run) {
    run.state.MarkGone(source, cause, impl_->judge.Judging(run), way);
  });
}
void Engine::MarkAbsent(const v1::Source& source) {
  impl_->OfKnown(source.run(), [&](EngineRun& run) {
    run.state.MarkAbsent(source, impl_->judge.Judging(run));
    impl_->judge.ReportAbsent(run);
  });
}
void Engine::CloseThrough(const std::string& run, uint32_t attempt, v1::Role role,
                          int64_t through) {
  impl_->OfKnown(run, [&](EngineRun& of) {
    of.state.CloseThrough(attempt, role, through, impl_->judge.Judging(of));
  });
}
void Engine::MakeRoom(const std::string& run, uint64_t bytes) {
  impl_->OfKnown(run, [&](EngineRun& of) { of.state.MakeRoom(bytes, impl_->judge.Judging(of)); });
}
void Engine::MakeRulesRoom(const std::string& run, uint64_t bytes) {
  impl_->OfKnown(run,
                 [&](EngineRun& of) { of.rules.MakeRoom(bytes, impl_->judge.SettingAside(of)); });
}

void Engine::Finish() {
  // An input without any source still gets its one verdict, which reports this.
  if (Runs().empty()) impl_->RunOf("");
  for (const std::string& name : Runs()) impl_->FinishRun(name, false);
}
// The name may belong to the run that is dropped.
void Engine::FinishRun(const std::string& run) { impl_->FinishRun(std::string(run), true); }
void Engine::Drop(const std::string& run) { impl_->Drop(run); }

std::vector<std::string> Engine::Runs() const { return impl_->runs.Names(); }
std::vector<std::string> Engine::RunsOver() const { return impl_->runs.Over(); }
bool Engine::Knows(const std::string& run) const { return impl_->runs.Find(run) != nullptr; }
std::string Engine::LargestRun() const { return impl_->runs.Largest(); }
std::vector<Lag> Engine::Lagging(const std::string& run) const {
  const EngineRun* const of = impl_->runs.Find(run);
  return of == nullptr ? std::vector<Lag>() : of->state.Lagging();
}
std::vector<GroupProgress> Engine::Groups(const std::string& run) const {
  const EngineRun* const of = impl_->runs.Find(run);
  return of == nullptr ? std::vector<GroupProgress>() : of->state.Groups();
}
int64_t Engine::closed_step(const std::string& run) const {
  const EngineRun* const of = impl_->runs.Find(run);
  return of == nullptr ? -1 : of->state.closed_step();
}
Coverage Engine::coverage() const {
  return {impl_->judge.judged(), impl_->judge.inconclusive(), impl_->runs.losses()};
}
uint64_t Engine::open_bytes(const std::string& run) const {
  const EngineRun* const of = impl_->runs.Find(run);
  return of == nullptr ? 0 : of->weight.load();
}
uint64_t Engine::open_bytes() const { return impl_->runs.open_bytes(); }
uint64_t Engine::rule_bytes(const std::string& run) const {
  const EngineRun* const of = impl_->runs.Find(run);
  return of == nullptr ? 0 : of->rules_weight.load();
}
uint64_t Engine::rule_bytes() const { return impl_->runs.rule_bytes(); }
uint64_t Engine::rules_set_aside() const {
  return impl_->runs.Sum([](const EngineRun& run) { return run.set_aside.load(); });
}
uint64_t Engine::series_left_out(const std::string& run) const {
  return impl_->runs.series_left_out(run);
}
uint64_t Engine::series_left_out() const {
  return impl_->runs.Sum([](const EngineRun& run) { return run.series_left_out.load(); });
}
uint64_t Engine::closed_for_room() const {
  return impl_->runs.Sum([](const EngineRun& run) { return run.state.closed_for_room(); });
}
void Engine::ForEachName(const std::string& run, const OnName& on_name) const {
  const EngineRun* const of = impl_->runs.Find(run);
  if (of == nullptr) return;
  const RunSummary& summary = of->state.summary();
  for (const auto& [site, count] : summary.sites) on_name(site.first, site.second, "");
  for (const auto& [loss, count] : summary.losses)
    on_name(std::get<0>(loss), std::get<1>(loss), std::get<2>(loss));
}

std::string Engine::Checkpoint() const {
  return SealCheckpoint(impl_->Maker(), [this](Archive& archive) { impl_->Persist(archive); });
}
void Engine::Checkpoint(const Archive::Sink& sink) const {
  SealCheckpoint(
      impl_->Maker(), [this](Archive& archive) { impl_->Persist(archive); }, sink);
}
absl::Status Engine::Restore(std::string_view bytes) { return impl_->Restore(bytes); }

}  // namespace plumbline::rules
