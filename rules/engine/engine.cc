#include "rules/engine/engine.h"

#include <algorithm>
#include <exception>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "analysis/processes/processes.h"
#include "rules/engine/active_rules.h"
#include "rules/engine/batch_check.h"
#include "rules/engine/checkpoint.h"
#include "rules/engine/run_state.h"

namespace plumbline::rules {

class Engine::Impl {
 public:
  Impl(std::vector<ActiveRule> active, const EngineConfig& config, OnVerdict on_verdict)
      : active_(std::move(active)),
        options_{config.window_steps, config.hosted, config.run_bytes},
        globs_(config.rules),
        on_verdict_(std::move(on_verdict)),
        rules_(MakeRules()),
        sets_([this](const v1::Site& site) {
          return std::any_of(rules_.begin(), rules_.end(),
                             [&](const auto& rule) { return rule->ReadsScalar(site); });
        }) {
    suppressor_.Set(config.suppressions, config.today);
  }

  void SetSuppressions(std::vector<Suppression> list, int32_t today) {
    suppressor_.Set(std::move(list), today);
    for (const auto& [name, run] : runs_) TellExpired(*run);
  }

  void Tell(const std::string& name, const char* rule, v1::Verdict verdict) {
    const auto known = runs_.find(name);
    const bool selected =
        globs_.empty() || std::any_of(globs_.begin(), globs_.end(), [&](const std::string& glob) {
          return GlobMatch(glob, rule);
        });
    if (known == runs_.end() || !selected) return;
    Guarded(name, [&] { Sink(this, *known->second, rule).Add(std::move(verdict)); });
  }

  bool SuppressionsAre(const std::vector<Suppression>& list, int32_t today) const {
    return suppressor_.Is(list, today);
  }

  void SetOnSeries(OnSeries on_series) { on_series_ = std::move(on_series); }
  void SetOnLate(OnLate on_late) { on_late_ = std::move(on_late); }
  void SetGuard(RunGuard* guard) { guard_ = guard; }

  absl::Status CheckSeries(const v1::Batch& batch) const { return sets_.Check(batch); }

  void Add(const std::shared_ptr<const v1::Batch>& batch) {
    sets_.Declare(*batch);
    if (SaysNothing(*batch)) return;
    std::set<std::string_view> runs;  // a batch may speak of several
    for (const v1::Source& source : batch->sources()) {
      if (!runs.insert(source.run()).second) continue;
      const std::string& run = source.run();
      Guarded(run, [&] {
        Run& state = RunOf(run);
        state.state.Take(batch, Judging(state));
        Weigh(&state);
      });
    }
  }

  void JudgeEnds(const std::string& name) {
    OfKnown(name, [&](Run& run) { TellEnds(run, run.state.Ends(false), true); });
  }

  void MarkGone(const v1::Source& source, LateCause cause, EndWay way) {
    OfKnown(source.run(), [&](Run& run) { run.state.MarkGone(source, cause, Judging(run), way); });
  }

  void MarkAbsent(const v1::Source& source) {
    OfKnown(source.run(), [&](Run& run) { run.state.MarkAbsent(source, Judging(run)); });
  }

  void CloseThrough(const std::string& name, uint32_t attempt, v1::Role role, int64_t through) {
    OfKnown(name, [&](Run& run) { run.state.CloseThrough(attempt, role, through, Judging(run)); });
  }

  void MakeRoom(const std::string& name, uint64_t bytes) {
    OfKnown(name, [&](Run& run) { run.state.MakeRoom(bytes, Judging(run)); });
  }

  void Drop(const std::string& name) {
    const auto found = runs_.find(name);
    if (found == runs_.end()) return;
    finished_losses_ += Losses(*found->second);
    open_bytes_ -= found->second->weight;
    runs_.erase(found);
    sets_.ForgetRun(name);
  }

  std::vector<Lag> Lagging(const std::string& name) const {
    const Run* run = Known(name);
    return run == nullptr ? std::vector<Lag>() : run->state.Lagging();
  }

  std::vector<std::string> Runs() const {
    std::vector<std::string> names;
    for (const auto& [name, run] : runs_) names.push_back(name);
    return names;
  }

  std::vector<GroupProgress> Groups(const std::string& name) const {
    const Run* run = Known(name);
    return run == nullptr ? std::vector<GroupProgress>() : run->state.Groups();
  }

  void Finish() {
    // An input without a single source still gets the one verdict that says so.
    if (runs_.empty()) RunOf("");
    while (!runs_.empty()) FinishRun(runs_.begin()->first, false);
  }

  // By value: the name may be the one that goes with the run.
  // `over`: its processes have all ended, or are gone; else there is just no more input.
  void FinishRun(std::string name, bool over) {  // NOLINT(performance-unnecessary-value-param)
    OfKnown(name, [&](Run& run) { JudgeWhole(name, run, over); });
    Drop(name);
  }

  Coverage coverage() const {
    Coverage total{judged_, inconclusive_, finished_losses_};
    for (const auto& [name, run] : runs_) total.dropped += Losses(*run);
    return total;
  }

  uint64_t open_bytes(const std::string& name) const {
    const auto found = runs_.find(name);
    return found == runs_.end() ? 0 : found->second->state.open_bytes();
  }

  uint64_t open_bytes() const { return open_bytes_; }

  std::string LargestRun() const {
    std::string largest;
    uint64_t bytes = 0;
    for (const auto& [name, run] : runs_) {
      if (run->weight <= bytes) continue;
      bytes = run->weight;
      largest = name;
    }
    return largest;
  }

  uint64_t closed_for_room() const {
    uint64_t steps = 0;
    for (const auto& [name, run] : runs_) steps += run->state.closed_for_room();
    return steps;
  }

  int64_t closed_step(const std::string& name) const {
    const auto found = runs_.find(name);
    return found == runs_.end() ? -1 : found->second->state.closed_step();
  }

  std::string Checkpoint() {
    return SealCheckpoint(Maker(), [this](Archive& archive) { Persist(archive); });
  }

  absl::Status Restore(std::string_view bytes) {
    if (!runs_.empty() || !sets_.empty() || judged_ + inconclusive_ + finished_losses_ > 0)
      return absl::FailedPreconditionError("checkpoint: expected an engine that has seen nothing");
    absl::Status status =
        OpenCheckpoint(bytes, Maker(), [this](Archive& archive) { Persist(archive); });
    if (!status.ok()) Forget();
    return status;
  }

 private:
  struct Run {
    Run(std::string name, RunState::Options options, SeriesSets* sets)
        : state(std::move(name), options, sets) {}
    RunState state;
    std::vector<std::unique_ptr<Rule>> rules;  // parallel to active_
    uint64_t weight = 0;                       // of open_bytes_
  };

  // What a state depends on beside the evidence.
  std::string Maker() const {
    std::string maker =
        absl::StrCat("window ", options_.window_steps, options_.hosted ? " hosted" : "",
                     "\nrun bytes ", options_.max_bytes);
    for (const ActiveRule& rule : active_)
      absl::StrAppend(&maker, "\n", rule.entry->info->id, " ", rule.options.Words());
    return maker;
  }

  // rules_ judge nothing; on_series_, on_late_ and guard_ are the host's; open_bytes_ is weighed
  // anew.
  void Persist(Archive& archive) {
    archive(judged_, inconclusive_, finished_losses_, sets_, suppressor_);
    std::vector<std::string> names;
    for (const auto& [name, run] : runs_) names.push_back(name);
    archive(names);
    for (const std::string& name : names) {
      if (!archive.ok()) return;
      Run& run = KnownOrNew(name);
      archive.Section("run", [&] { run.state.Persist(archive); });
      Weigh(&run);
      for (size_t i = 0; i < run.rules.size(); ++i)
        archive.Section(active_[i].entry->info->id, [&] { run.rules[i]->Persist(archive); });
    }
  }

  void Forget() {
    runs_.clear();
    open_bytes_ = 0;
    sets_.Clear();
    judged_ = inconclusive_ = finished_losses_ = 0;
    suppressor_ = Suppressor();
  }

  // Completes a verdict from the call's context, counts it and hands it on.
  class Sink : public VerdictSink {
   public:
    Sink(Impl* impl, Run& run, const char* rule, const SiteStep* step = nullptr)
        : impl_(impl), run_(run), rule_(rule), step_(step) {}

    void Add(v1::Verdict verdict) override {
      verdict.set_rule(rule_);
      FillSite(*verdict.mutable_site());
      if (verdict.kind() == v1::Verdict::KIND_FINDING) {
        v1::Finding& finding = *verdict.mutable_finding();
        finding.set_rule(rule_);
        *finding.mutable_site() = verdict.site();
        finding.set_fingerprint(Fingerprint(rule_, verdict.site()));
        if (!finding.has_details()) *finding.mutable_details() = verdict.details();
        if (finding.assumptions().empty()) *finding.mutable_assumptions() = verdict.assumptions();
        impl_->suppressor_.Mark(&finding);
      }
      impl_->Count(run_, verdict);
    }

   private:
    void FillSite(v1::FindingSite& site) const {
      site.set_run(run_.state.summary().run);
      if (step_ == nullptr) {
        if (site.ranks().empty()) {
          constexpr int kNamed = 1024;  // each verdict would cost as much as there are ranks
          for (uint32_t rank : run_.state.ranks()) {
            if (site.ranks_size() >= kNamed) break;
            site.add_ranks(rank);
          }
        }
        return;
      }
      if (site.layer().empty() && site.op().empty()) {
        site.set_layer(step_->site.layer());
        site.set_op(step_->site.op());
      }
      if (site.step_first() == 0 && site.step_last() == 0) {
        site.set_step_first(step_->step);
        site.set_step_last(step_->step);
      }
      if (!site.ranks().empty()) return;
      for (const Item& item : step_->items) {
        const uint32_t rank = item.source->rank();
        if (site.ranks().empty() || site.ranks(site.ranks_size() - 1) != rank) site.add_ranks(rank);
      }
    }

    Impl* impl_;
    Run& run_;
    const char* rule_;
    const SiteStep* step_;
  };

  // Declarations alone: a stream that came back says its sets again, also when its run is over.
  static bool SaysNothing(const v1::Batch& batch) {
    return !batch.series_sets().empty() && batch.evidence().empty() && batch.series().empty() &&
           batch.progress().empty() && batch.losses().empty() && batch.declarations().empty();
  }

  void JudgeWhole(const std::string& name, Run& run, bool over) {
    run.state.CloseAll(Judging(run));
    TellEnds(run, run.state.Ends(over), false);
    for (size_t i = 0; i < run.rules.size(); ++i) {
      Sink sink(this, run, active_[i].entry->info->id);
      run.rules[i]->JudgeRun(run.state.Summarize(), sink);
    }
    const auto ran = [&](const std::string& glob) {
      for (size_t i = 0; i < run.rules.size(); ++i) {
        if (run.rules[i]->judges_evidence() && GlobMatch(glob, active_[i].entry->info->id))
          return true;
      }
      return false;
    };
    TellOfSuppressions(run, suppressor_.Unused(name, ran));
  }

  // As the guard says; a run that cannot be judged is forgotten alone.
  template <typename What>
  void Guarded(const std::string& name, const What& judge) {
    if (guard_ == nullptr) return judge();
    if (!guard_->Begin(name)) return;
    std::string failed;
    try {
      judge();
    } catch (const std::exception& e) {
      failed = e.what();
      if (failed.empty()) failed = "an exception";
      Drop(name);
    }
    guard_->End();
    if (!failed.empty()) guard_->Failed(name, failed);
  }

  template <typename What>
  void OfKnown(const std::string& name, const What& judge) {
    Run* run = Known(name);
    if (run == nullptr) return;
    Guarded(name, [&] {
      judge(*run);
      Weigh(run);
    });
  }

  // Asked after each batch: it must not cost as much as there are runs.
  void Weigh(Run* run) {
    open_bytes_ += run->state.open_bytes() - std::exchange(run->weight, run->state.open_bytes());
  }

  Run* Known(const std::string& name) const {
    const auto found = runs_.find(name);
    return found == runs_.end() ? nullptr : found->second.get();
  }

  std::vector<std::unique_ptr<Rule>> MakeRules() const {
    std::vector<std::unique_ptr<Rule>> rules;
    for (const ActiveRule& rule : active_) rules.push_back(rule.entry->make(rule.options));
    return rules;
  }

  Run& KnownOrNew(const std::string& name) {
    auto& run = runs_[name];
    if (run == nullptr) {
      run = std::make_unique<Run>(name, options_, &sets_);
      run->rules = MakeRules();
    }
    return *run;
  }

  Run& RunOf(const std::string& name) {
    const auto known = runs_.find(name);
    if (known != runs_.end()) return *known->second;
    Run& run = KnownOrNew(name);
    TellExpired(run);
    return run;
  }

  void TellExpired(Run& run) {
    TellOfSuppressions(run, suppressor_.Expired(run.state.summary().run));
  }

  void TellOfSuppressions(Run& run, std::vector<v1::Verdict> verdicts) {
    constexpr const char* kRule = "meta/unused-suppression";
    const bool runs = std::any_of(active_.begin(), active_.end(), [](const ActiveRule& rule) {
      return std::string_view(rule.entry->info->id) == kRule;
    });
    if (!runs) return;
    Sink sink(this, run, kRule);
    for (v1::Verdict& verdict : verdicts) sink.Add(std::move(verdict));
  }

  RunState::OnClose Judging(Run& run) {
    return {[this, &run](const SiteStep& step) {
              for (size_t i = 0; i < run.rules.size(); ++i) {
                if (step.late && !run.rules[i]->judges_late()) continue;
                Sink sink(this, run, active_[i].entry->info->id, &step);
                run.rules[i]->Judge(step, sink);
              }
            },
            on_series_,
            [this, &run](const StepEnd& step) {
              for (size_t i = 0; i < run.rules.size(); ++i) {
                Sink sink(this, run, active_[i].entry->info->id);
                run.rules[i]->JudgeStep(step, sink);
              }
            },
            [this, &run](const std::string& cause, uint64_t items) { Late(run, cause, items); },
            [this, &run](const RunEnds& ends) { TellEnds(run, ends, false); }};
  }

  // `findings`: those alone.
  void TellEnds(Run& run, const RunEnds& ends, bool findings) {
    const bool runs = std::any_of(active_.begin(), active_.end(), [](const ActiveRule& rule) {
      return std::string_view(rule.entry->info->id) == kRunDiedRule;
    });
    auto verdict = runs ? DiedVerdict(ends) : std::nullopt;
    if (!verdict || (findings && verdict->kind() != v1::Verdict::KIND_FINDING)) return;
    Sink(this, run, kRunDiedRule).Add(*std::move(verdict));
  }

  // No items: some that had come before have been judged.
  void Late(Run& run, const std::string& cause, uint64_t items) {
    if (on_late_ && items > 0) on_late_(run.state.summary().run, cause, items);
    for (size_t i = 0; i < run.rules.size(); ++i) {
      Sink sink(this, run, active_[i].entry->info->id);
      run.rules[i]->JudgeLate(run.state.summary(), sink);
    }
  }

  void Count(Run& run, const v1::Verdict& verdict) {
    const bool inconclusive = verdict.kind() == v1::Verdict::KIND_INCONCLUSIVE;
    const bool meta = verdict.rule().compare(0, 5, "meta/") == 0;
    // How processes end is no word on what they computed.
    const bool ends = verdict.rule() == kRunDiedRule;
    if (!meta && !ends) ++run.state.summary().verdicts;
    if (inconclusive && !ends) ++inconclusive_;
    if (!inconclusive && !meta && !ends) ++judged_;
    on_verdict_(verdict);
  }

  static uint64_t Losses(const Run& run) {
    uint64_t total = 0;
    for (const auto& [key, loss] : run.state.summary().losses) total += loss.count;
    return total;
  }

  std::vector<ActiveRule> active_;
  const RunState::Options options_;
  const std::vector<std::string> globs_;  // that selected the rules
  OnVerdict on_verdict_;
  OnSeries on_series_;
  OnLate on_late_;
  RunGuard* guard_ = nullptr;
  std::vector<std::unique_ptr<Rule>> rules_;  // judge nothing: they are asked what they read
  SeriesSets sets_;
  Suppressor suppressor_;
  std::map<std::string, std::unique_ptr<Run>> runs_;
  uint64_t open_bytes_ = 0;
  uint64_t judged_ = 0;
  uint64_t inconclusive_ = 0;
  uint64_t finished_losses_ = 0;
};

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineConfig& config,
                                                       OnVerdict on_verdict) {
  auto active = SelectRules(config.rules);
  if (!active.ok()) return active.status();
  for (const std::string& setting : config.settings) {
    if (auto status = ApplySetting(setting, *active); !status.ok()) return status;
  }
  return std::unique_ptr<Engine>(
      new Engine(std::make_unique<Impl>(std::move(*active), config, std::move(on_verdict))));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

absl::Status Engine::Add(v1::Batch batch) {
  return Add(std::make_shared<const v1::Batch>(std::move(batch)));
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): shared with what the engine keeps
absl::Status Engine::Add(std::shared_ptr<const v1::Batch> batch) {
  if (auto status = CheckBatch(*batch); !status.ok()) return status;
  if (auto status = impl_->CheckSeries(*batch); !status.ok()) return status;
  impl_->Add(batch);
  return absl::OkStatus();
}

void Engine::SetOnSeries(OnSeries on_series) { impl_->SetOnSeries(std::move(on_series)); }
void Engine::SetSuppressions(std::vector<Suppression> list, int32_t today) {
  impl_->SetSuppressions(std::move(list), today);
}
void Engine::Tell(const std::string& run, const char* rule, v1::Verdict verdict) {
  impl_->Tell(run, rule, std::move(verdict));
}
bool Engine::SuppressionsAre(const std::vector<Suppression>& list, int32_t today) const {
  return impl_->SuppressionsAre(list, today);
}
void Engine::SetOnLate(OnLate on_late) { impl_->SetOnLate(std::move(on_late)); }
void Engine::SetGuard(RunGuard* guard) { impl_->SetGuard(guard); }
void Engine::Drop(const std::string& run) { impl_->Drop(run); }
void Engine::MakeRoom(const std::string& run, uint64_t bytes) { impl_->MakeRoom(run, bytes); }
void Engine::JudgeEnds(const std::string& run) { impl_->JudgeEnds(run); }
void Engine::MarkGone(const v1::Source& source, LateCause cause, EndWay way) {
  impl_->MarkGone(source, cause, way);
}
void Engine::MarkAbsent(const v1::Source& source) { impl_->MarkAbsent(source); }
void Engine::CloseThrough(const std::string& run, uint32_t attempt, v1::Role role,
                          int64_t through) {
  impl_->CloseThrough(run, attempt, role, through);
}
std::vector<Lag> Engine::Lagging(const std::string& run) const { return impl_->Lagging(run); }
std::vector<std::string> Engine::Runs() const { return impl_->Runs(); }
std::vector<GroupProgress> Engine::Groups(const std::string& run) const {
  return impl_->Groups(run);
}
void Engine::Finish() { impl_->Finish(); }
void Engine::FinishRun(const std::string& run) { impl_->FinishRun(run, true); }
Coverage Engine::coverage() const { return impl_->coverage(); }
uint64_t Engine::open_bytes(const std::string& run) const { return impl_->open_bytes(run); }
uint64_t Engine::open_bytes() const { return impl_->open_bytes(); }
std::string Engine::LargestRun() const { return impl_->LargestRun(); }
uint64_t Engine::closed_for_room() const { return impl_->closed_for_room(); }
int64_t Engine::closed_step(const std::string& run) const { return impl_->closed_step(run); }
std::string Engine::Checkpoint() const { return impl_->Checkpoint(); }
absl::Status Engine::Restore(std::string_view bytes) { return impl_->Restore(bytes); }

}  // namespace plumbline::rules
