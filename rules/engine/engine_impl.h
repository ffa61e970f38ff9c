// The state of an engine: its runs, each with its state and its rules, and what runs share.
// engine.h defines the calls and which may be made at the same time. engine.cc forwards to this
// class. In order: the calls; checkpoints (Persist); judging (Each, Guarded, Judging); the count of
// verdicts.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "analysis/frame/frame.h"
#include "analysis/processes/processes.h"
#include "base/mutex.h"
#include "rules/engine/active_rules.h"
#include "rules/engine/checkpoint.h"
#include "rules/engine/engine.h"
#include "rules/engine/rows_judge.h"
#include "rules/engine/run_rules.h"
#include "rules/engine/run_state.h"

namespace plumbline::rules {

class Engine::Impl {
 public:
  Impl(std::vector<ActiveRule> active, const EngineConfig& config, OnVerdict on_verdict)
      : active_(std::move(active)),
        options_{config.window_steps, config.hosted, config.run_bytes},
        rule_bytes_each_(config.run_bytes / EngineConfig::kRulesPart),
        globs_(config.rules),
        roles_(config.roles),
        most_series_(config.most_series),
        on_verdict_(std::move(on_verdict)),
        rules_(MakeRules()),
        sets_([this](const v1::Site& site) {
          return std::any_of(rules_.begin(), rules_.end(),
                             [&](const auto& rule) { return rule->ReadsScalar(site); });
        }) {
    suppressor_.Set(config.suppressions, config.today);
  }

  void SetSuppressions(std::vector<Suppression> list, int32_t today) {
    {
      const MutexLock lock(suppressor_mutex_);
      suppressor_.Set(std::move(list), today);
    }
    for (const std::string& name : Runs()) {
      if (Run* const run = Known(name)) TellExpired(*run);
    }
  }

  void Tell(const std::string& name, const char* rule, v1::Verdict verdict) {
    Run* const known = Known(name);
    const bool selected =
        globs_.empty() || std::any_of(globs_.begin(), globs_.end(), [&](const std::string& glob) {
          return GlobMatch(glob, rule);
        });
    if (known == nullptr || !selected) return;
    Guarded(name, [&] { Sink(this, *known, rule).Add(std::move(verdict)); });
  }

  bool SuppressionsAre(const std::vector<Suppression>& list, int32_t today) const {
    const MutexLock lock(suppressor_mutex_);
    return suppressor_.Is(list, today);
  }

  void SetOnSeries(OnSeries on_series) { on_series_ = std::move(on_series); }
  void SetOnLate(OnLate on_late) { on_late_ = std::move(on_late); }
  void SetOnLost(OnLost on_lost) { on_lost_ = std::move(on_lost); }
  void SetGuard(RunGuard* guard) { guard_ = guard; }
  void Expect(const v1::Source& source) { expected_[source.run()].push_back(source); }

  SeriesSets& sets() { return sets_; }

  void Add(const std::shared_ptr<const v1::Batch>& batch) {
    sets_.Declare(*batch);
    if (SaysNothing(*batch)) return;
    std::set<std::string_view> runs;  // a batch may hold several runs
    for (const v1::Source& source : batch->sources()) {
      if (!runs.insert(source.run()).second) continue;
      const std::string& run = source.run();
      Guarded(run, [&] {
        // If a run is over, a new process starts it anew. A process that was unreachable continues
        // it.
        if (const Run* known = Known(run);
            known != nullptr && known->state.over() && !known->state.Spoke(batch->stream_id()))
          Drop(run);
        const bool fresh = Known(run) == nullptr;
        Run& state = RunOf(run);
        NoteStream(&state, batch->stream_id(), fresh);
        state.state.Take(batch, Judging(state));
        Weigh(&state);
      });
    }
  }

  void JudgeEnds(const std::string& name) {
    OfKnown(name, [&](Run& run) { TellEnds(run, run.state.Ends(false), true); });
  }

  void MarkGone(const v1::Source& source, LateCause cause, EndKind way) {
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

  void MakeRulesRoom(const std::string& name, uint64_t bytes) {
    OfKnown(name, [&](Run& run) { run.rules.MakeRoom(bytes, SettingAside(run)); });
  }

  void Drop(const std::string& name) {
    std::unique_ptr<Run> run;
    {
      const MutexLock lock(runs_mutex_);
      const auto found = runs_.find(name);
      if (found == runs_.end()) return;
      run = std::move(found->second);
      runs_.erase(found);
    }
    finished_losses_ += Losses(*run);
    open_bytes_ -= run->weight;
    rule_bytes_ -= run->rules_weight;
    sets_.Trim();
  }

  std::vector<Lag> Lagging(const std::string& name) const {
    const Run* run = Known(name);
    return run == nullptr ? std::vector<Lag>() : run->state.Lagging();
  }

  std::vector<std::string> Runs() const {
    std::vector<std::string> names;
    const MutexLock lock(runs_mutex_);
    for (const auto& [name, run] : runs_) names.push_back(name);
    return names;
  }

  std::vector<GroupProgress> Groups(const std::string& name) const {
    const Run* run = Known(name);
    return run == nullptr ? std::vector<GroupProgress>() : run->state.Groups();
  }

  void Finish() {
    // An input without any source still gets its one verdict, which reports this.
    if (Runs().empty()) RunOf("");
    for (const std::string& name : Runs()) FinishRun(name, false);
  }

  // By value, because the name may belong to the run that is dropped. `over` is true if all
  // processes of the run ended or are gone; false if the input just ended.
  void FinishRun(std::string name, bool over) {  // NOLINT(performance-unnecessary-value-param)
    bool may_return = false;
    OfKnown(name, [&](Run& run) {
      if (run.state.over()) return;
      JudgeWhole(name, run, over);
      may_return = over && options_.hosted && run.state.MayReturn();
      run.state.SetOver();
    });
    if (!may_return) Drop(name);
  }

  bool Knows(const std::string& name) const { return Known(name) != nullptr; }

  std::vector<std::string> RunsOver() const {
    std::vector<std::string> names;
    const MutexLock lock(runs_mutex_);
    for (const auto& [name, run] : runs_) {
      if (run->over) names.push_back(name);
    }
    return names;
  }

  Coverage coverage() const {
    Coverage total{judged_, inconclusive_, finished_losses_};
    const MutexLock lock(runs_mutex_);
    for (const auto& [name, run] : runs_) total.dropped += Losses(*run);
    return total;
  }

  uint64_t open_bytes(const std::string& name) const {
    const Run* run = Known(name);
    return run == nullptr ? 0 : run->weight.load();
  }

  uint64_t open_bytes() const { return open_bytes_; }

  void ForEachName(const std::string& name, const OnName& on_name) const {
    const Run* run = Known(name);
    if (run == nullptr) return;
    const RunSummary& summary = run->state.summary();
    for (const auto& [site, count] : summary.sites) on_name(site.first, site.second, "");
    for (const auto& [loss, count] : summary.losses)
      on_name(std::get<0>(loss), std::get<1>(loss), std::get<2>(loss));
  }

  uint64_t rule_bytes(const std::string& name) const {
    const Run* run = Known(name);
    return run == nullptr ? 0 : run->rules_weight.load();
  }
  uint64_t rule_bytes() const { return rule_bytes_; }
  uint64_t rules_set_aside() const {
    uint64_t rules = 0;
    const MutexLock lock(runs_mutex_);
    for (const auto& [name, run] : runs_) rules += run->set_aside;
    return rules;
  }

  uint64_t series_left_out() const {
    uint64_t series = 0;
    const MutexLock lock(runs_mutex_);
    for (const auto& [name, run] : runs_) series += run->series_left_out;
    return series;
  }
  uint64_t series_left_out(const std::string& name) const {
    const MutexLock lock(runs_mutex_);
    const auto found = runs_.find(name);
    return found == runs_.end() ? 0 : found->second->series_left_out.load();
  }

  std::string LargestRun() const {
    std::string largest;
    uint64_t bytes = 0;
    const MutexLock lock(runs_mutex_);
    for (const auto& [name, run] : runs_) {
      if (run->weight <= bytes) continue;
      bytes = run->weight;
      largest = name;
    }
    return largest;
  }

  uint64_t closed_for_room() const {
    uint64_t steps = 0;
    const MutexLock lock(runs_mutex_);
    for (const auto& [name, run] : runs_) steps += run->state.closed_for_room();
    return steps;
  }

  int64_t closed_step(const std::string& name) const {
    const Run* run = Known(name);
    return run == nullptr ? -1 : run->state.closed_step();
  }

  std::string Checkpoint() {
    return SealCheckpoint(Maker(), [this](Archive& archive) { Persist(archive); });
  }
  void Checkpoint(const Archive::Sink& sink) {
    SealCheckpoint(
        Maker(), [this](Archive& archive) { Persist(archive); }, sink);
  }

  absl::Status Restore(std::string_view bytes) {
    if (!Runs().empty() || !sets_.empty() || judged_ + inconclusive_ + finished_losses_ > 0)
      return absl::FailedPreconditionError("checkpoint: expected an engine that has seen nothing");
    absl::Status status =
        OpenCheckpoint(bytes, Maker(), [this](Archive& archive) { Persist(archive); });
    if (!status.ok()) Forget();
    return status;
  }

 private:
  struct Run {
    Run(std::string name, RunState::Options options, SeriesSets* sets, RunRules of_run)
        : state(std::move(name), options, sets), rules(std::move(of_run)) {}
    RunState state;
    RunRules rules;
    // Written by the thread that judges the run, read by all threads.
    std::atomic<uint64_t> weight{0};        // of open_bytes_
    std::atomic<uint64_t> rules_weight{0};  // of rule_bytes_
    std::atomic<uint64_t> set_aside{0};     // rules that judge it no further
    std::atomic<uint64_t> series_left_out{0};
    std::atomic<bool> over{false};
  };

  // Everything that a state depends on, except the evidence.
  std::string Maker() const {
    std::string maker =
        absl::StrCat("window ", options_.window_steps, options_.hosted ? " hosted" : "",
                     "\nrun bytes ", options_.max_bytes);
    if (most_series_ != EngineConfig().most_series)
      absl::StrAppend(&maker, "\nseries of a role ", most_series_);
    for (const auto& [name, role] : roles_.said())
      absl::StrAppend(&maker, "\nseries ", name.size(), ":", name, " ", static_cast<int>(role));
    for (const ActiveRule& rule : active_)
      absl::StrAppend(&maker, "\n", rule.entry->info->id, " ", rule.options.Words());
    return maker;
  }

  // Not stored: rules_ judge nothing; the host sets on_series_, on_late_, on_lost_, guard_ and
  // expected_; open_bytes_ and rule_bytes_ are computed again. runs_mutex_ and suppressor_mutex_
  // guard what is stored; runs_ is locked for each name.
  void Persist(Archive& archive) {
    uint64_t judged = judged_, inconclusive = inconclusive_, losses = finished_losses_;
    archive(judged, inconclusive, losses, sets_);
    {
      const MutexLock lock(suppressor_mutex_);
      archive(suppressor_);
    }
    judged_ = judged;
    inconclusive_ = inconclusive;
    finished_losses_ = losses;
    std::vector<std::string> names = Runs();
    archive(names);
    for (const std::string& name : names) {
      if (!archive.ok()) return;
      Run& run = KnownOrNew(name);
      archive.Section("run", [&] {
        const uint32_t version = run.state.Persist(archive);
        if (archive.ok() && version >= RunState::kRulesCounted)
          run.rules.PersistCounts(archive, version >= RunState::kSeriesCounted);
      });
      Weigh(&run);
      run.rules.PersistRules(archive);
    }
  }

  void Forget() {
    {
      const MutexLock lock(runs_mutex_);
      runs_.clear();
    }
    open_bytes_ = 0;
    rule_bytes_ = 0;
    sets_.Clear();
    judged_ = inconclusive_ = finished_losses_ = 0;
    const MutexLock lock(suppressor_mutex_);
    suppressor_ = Suppressor();
  }

  // Completes a verdict from the call's context, counts it and passes it on.
  class Sink : public VerdictSink {
   public:
    Sink(Impl* impl, Run& run, const char* rule, const SiteStep* step = nullptr)
        : impl_(impl), run_(run), rule_(rule), step_(step) {}

    void Add(v1::Verdict verdict) override {
      verdict.set_rule(rule_);
      FillSite(run_.state, step_, verdict.mutable_site());
      if (verdict.kind() == v1::Verdict::KIND_FINDING) {
        v1::Finding& finding = *verdict.mutable_finding();
        finding.set_rule(rule_);
        *finding.mutable_site() = verdict.site();
        finding.set_fingerprint(Fingerprint(rule_, verdict.site()));
        if (!finding.has_details()) *finding.mutable_details() = verdict.details();
        if (finding.assumptions().empty()) *finding.mutable_assumptions() = verdict.assumptions();
        impl_->Mark(&finding);
      }
      impl_->Count(run_, verdict);
    }

   private:
    Impl* impl_;
    Run& run_;
    const char* rule_;
    const SiteStep* step_;
  };

  // Records the stream, because a run that is over may be forgotten and its streams may return.
  void NoteStream(Run* run, uint64_t stream_id, bool fresh) {
    if (!options_.hosted || run->state.Spoke(stream_id)) return;
    const bool before = sets_.NoteRun(stream_id, run->state.summary().run);
    if (fresh && before) run->state.SetResumed();
  }

  // Returns true if the batch only declares sets: a stream that returns declares its sets again,
  // even if its run is over.
  static bool SaysNothing(const v1::Batch& batch) {
    return !batch.series_sets().empty() && batch.evidence().empty() && batch.series().empty() &&
           batch.progress().empty() && batch.losses().empty() && batch.declarations().empty();
  }

  void JudgeWhole(const std::string& name, Run& run, bool over) {
    run.state.CloseAll(Judging(run));
    TellEnds(run, run.state.Ends(over), false);
    TellSeriesLeftOut(run);
    Each(run, nullptr, [&](Rule& rule, Sink& sink) { rule.JudgeRun(run.state.Summarize(), sink); });
    const auto ran = [&](const std::string& glob) {
      for (size_t i = 0; i < run.rules.size(); ++i) {
        const Rule* rule = run.rules.At(i);
        if (rule != nullptr && rule->judges_evidence() && GlobMatch(glob, run.rules.Id(i)))
          return true;
      }
      return false;
    };
    std::vector<v1::Verdict> unused;
    {
      const MutexLock lock(suppressor_mutex_);
      unused = suppressor_.Unused(name, ran);
    }
    TellOfSuppressions(run, std::move(unused));
  }

  // Calls `what` with each rule that judges the run, in order. `step` is the judged step; nullptr:
  // not a single one.
  template <typename What>
  void Each(Run& run, const SiteStep* step, const What& what) {
    for (size_t i = 0; i < run.rules.size(); ++i) {
      Rule* rule = run.rules.At(i);
      if (rule == nullptr) continue;
      if (step != nullptr) run.rules.Sees(i);
      Sink sink(this, run, run.rules.Id(i), step);
      what(*rule, sink);
    }
  }

  // For a step of scalars, calls only the rules that read them, because there are millions of such
  // steps.
  template <typename What>
  void EachReader(Run& run, const SiteStep& step, const What& what) {
    const auto scalar = [](const Item& item) { return item.evidence->has_scalar(); };
    // Only a site from rows has a number.
    const bool scalars =
        step.number != 0 || std::all_of(step.items.begin(), step.items.end(), scalar);
    // Other evidence at the site must not admit its scalars beyond the limit of series.
    if (!scalars && (std::none_of(step.items.begin(), step.items.end(), scalar) ||
                     run.rules.series().Admit(step.site)))
      return Each(run, &step, what);
    for (const size_t i : run.rules.ReadersOf(step)) {
      Rule* rule = run.rules.At(i);
      if (rule == nullptr) continue;
      run.rules.Sees(i);
      Sink sink(this, run, run.rules.Id(i), &step);
      what(*rule, sink);
    }
    TellSeriesLimit(run);
  }

  // Each rule that reads such series reports once that it judges no more of them.
  void TellSeriesLimit(Run& run) {
    if (!run.rules.series().any_full()) return;
    for (const JudgedSeries::LeftOut& of : run.rules.series().TakeFull())
      TellOfSeries(run, of, SeriesLimitReason(of.role, most_series_));
  }

  void TellSeriesLeftOut(Run& run) {
    for (const JudgedSeries::LeftOut& of : run.rules.series().AllLeftOut())
      TellOfSeries(run, of, SeriesLimitReason(of.role, most_series_, of.count));
  }

  // Adds an inconclusive verdict of each rule that would read such series.
  void TellOfSeries(Run& run, const JudgedSeries::LeftOut& of, const std::string& reason) {
    for (size_t i = 0; i < run.rules.size(); ++i) {
      const Rule* rule = run.rules.At(i);
      if (rule == nullptr || !rule->ReadsScalar(of.first)) continue;
      v1::Verdict verdict = Inconclusive(reason);
      verdict.mutable_site()->set_step_first(run.state.closed_step());
      verdict.mutable_site()->set_step_last(run.state.closed_step());
      Sink(this, run, run.rules.Id(i)).Add(std::move(verdict));
    }
  }

  RunRules::OnSetAside SettingAside(Run& run) {
    return [this, &run](size_t i, uint64_t bytes) {
      v1::Verdict verdict = Inconclusive(absl::StrCat(
          "memory-full: what this rule remembers of the run's sites and ranks takes ", bytes >> 10,
          " KiB, more than there is room for: it judges the run no further from here on"));
      verdict.mutable_site()->set_step_first(run.state.closed_step());
      verdict.mutable_site()->set_step_last(run.state.closed_step());
      Sink(this, run, run.rules.Id(i)).Add(std::move(verdict));
    };
  }

  // Judges the run if the guard allows it. If judging throws, only this run is forgotten.
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

  // Updates the run's counters. Called after each batch, so the cost must not grow with the number
  // of runs.
  void Weigh(Run* run) {
    const uint64_t bytes = run->state.open_bytes();
    open_bytes_ += bytes - run->weight.exchange(bytes);
    const uint64_t remembered = run->rules.bytes();
    rule_bytes_ += remembered - run->rules_weight.exchange(remembered);
    run->set_aside = run->rules.set_aside();
    run->series_left_out = run->rules.series().left_out();
    run->over = run->state.over();
  }

  Run* Known(const std::string& name) const {
    const MutexLock lock(runs_mutex_);
    const auto found = runs_.find(name);
    return found == runs_.end() ? nullptr : found->second.get();
  }

  std::vector<std::unique_ptr<Rule>> MakeRules() const {
    std::vector<std::unique_ptr<Rule>> rules;
    for (const ActiveRule& rule : active_) rules.push_back(rule.entry->make(rule.options));
    return rules;
  }

  RunRules NewRules() const {
    return RunRules(&active_, rule_bytes_each_, JudgedSeries(&roles_, most_series_));
  }

  Run& KnownOrNew(const std::string& name) {
    if (Run* known = Known(name)) return *known;
    auto run = std::make_unique<Run>(name, options_, &sets_, NewRules());
    run->state.summary().meta_alone =
        std::all_of(active_.begin(), active_.end(),
                    [](const ActiveRule& rule) { return rule.entry->info->group() == "meta"; });
    if (const auto expected = expected_.find(name); expected != expected_.end()) {
      for (const v1::Source& source : expected->second) run->state.Expect(source);
    }
    const MutexLock lock(runs_mutex_);
    return *(runs_[name] = std::move(run));
  }

  Run& RunOf(const std::string& name) {
    if (Run* known = Known(name)) return *known;
    Run& run = KnownOrNew(name);
    TellExpired(run);
    return run;
  }

  void TellExpired(Run& run) {
    std::vector<v1::Verdict> expired;
    {
      const MutexLock lock(suppressor_mutex_);
      expired = suppressor_.Expired(run.state.summary().run);
    }
    TellOfSuppressions(run, std::move(expired));
  }

  bool IsActive(std::string_view rule) const {
    return std::any_of(active_.begin(), active_.end(),
                       [rule](const ActiveRule& active) { return active.entry->info->id == rule; });
  }

  void TellOfSuppressions(Run& run, std::vector<v1::Verdict> verdicts) {
    constexpr const char* kRule = "meta/unused-suppression";
    if (!IsActive(kRule)) return;
    Sink sink(this, run, kRule);
    for (v1::Verdict& verdict : verdicts) sink.Add(std::move(verdict));
  }

  RunState::OnClose Judging(Run& run) {
    return {[this, &run](const SiteStep& step) {
              run.rules.Show(step);
              EachReader(run, step, [&](Rule& rule, Sink& sink) {
                if (!step.late || rule.judges_late()) rule.Judge(step, sink);
              });
            },
            on_series_,
            [this, &run](const StepEnd& step) {
              run.rules.EachAtStepEnd([&](size_t i, Rule& rule) {
                Sink sink(this, run, run.rules.Id(i));
                rule.JudgeStep(step, sink);
              });
              run.rules.WeighIfDue(SettingAside(run));
            },
            [this, &run](const std::string& cause, uint64_t items) { Late(run, cause, items); },
            [this, &run](const RunEnds& ends) { TellEnds(run, ends, false); },
            JudgingRows(run),
            [this, &run](const std::string& cause, uint64_t items) {
              if (on_lost_) on_lost_(run.state.summary().run, cause, items);
            }};
  }

  // Returns nullptr if rules are weighed, because that happens between steps.
  std::function<void(const StepRows&)> JudgingRows(Run& run) {
    if (run.rules.most_bytes() > 0) return nullptr;
    return [this, &run](const StepRows& steps) {
      RowsJudge(&run.rules, steps).Judge([&](size_t i, const SiteStep* step, v1::Verdict verdict) {
        Sink(this, run, run.rules.Id(i), step).Add(std::move(verdict));
      });
      TellSeriesLimit(run);
    };
  }

  // `findings`: adds only a finding.
  void TellEnds(Run& run, const RunEnds& ends, bool findings) {
    auto verdict = IsActive(kRunDiedRule) ? DiedVerdict(ends) : std::nullopt;
    if (!verdict || (findings && verdict->kind() != v1::Verdict::KIND_FINDING)) return;
    Sink(this, run, kRunDiedRule).Add(*std::move(verdict));
  }

  // Reports late items. 0 items: evidence that arrived earlier was judged now.
  void Late(Run& run, const std::string& cause, uint64_t items) {
    if (on_late_ && items > 0) on_late_(run.state.summary().run, cause, items);
    Each(run, nullptr, [&](Rule& rule, Sink& sink) { rule.JudgeLate(run.state.summary(), sink); });
    run.rules.WeighIfDue(SettingAside(run));
  }

  void Count(Run& run, const v1::Verdict& verdict) {
    const bool inconclusive = verdict.kind() == v1::Verdict::KIND_INCONCLUSIVE;
    const bool meta = verdict.rule().compare(0, 5, "meta/") == 0;
    // The way processes end does not count as a verdict on their computation.
    const bool ends = verdict.rule() == kRunDiedRule;
    if (!meta && !ends) ++run.state.summary().verdicts;
    if (inconclusive && !ends) ++inconclusive_;
    if (!inconclusive && !meta && !ends) ++judged_;
    on_verdict_(verdict);
  }

  void Mark(v1::Finding* finding) {
    const MutexLock lock(suppressor_mutex_);
    if (!suppressor_.empty()) suppressor_.Mark(finding);
  }

  static uint64_t Losses(const Run& run) {
    uint64_t total = 0;
    for (const auto& [key, loss] : run.state.summary().losses) total += loss.count;
    return total;
  }

  std::vector<ActiveRule> active_;
  const RunState::Options options_;
  const uint64_t rule_bytes_each_;        // bytes that the rules of one run may remember
  const std::vector<std::string> globs_;  // select the rules
  const SeriesRoles roles_;
  const uint64_t most_series_;  // series of a role that the rules of one run judge
  OnVerdict on_verdict_;
  OnSeries on_series_;
  OnLate on_late_;
  OnLost on_lost_;
  RunGuard* guard_ = nullptr;
  std::map<std::string, std::vector<v1::Source>> expected_;  // by run
  std::vector<std::unique_ptr<Rule>> rules_;  // judge nothing: queried for what they read
  SeriesSets sets_;
  mutable Mutex suppressor_mutex_;  // guards the suppressor, which runs share
  Suppressor suppressor_ PLUMB_GUARDED_BY(suppressor_mutex_);
  // Guards only the map. A run belongs to the thread that judges it.
  mutable Mutex runs_mutex_;
  std::map<std::string, std::unique_ptr<Run>> runs_ PLUMB_GUARDED_BY(runs_mutex_);
  std::atomic<uint64_t> open_bytes_{0};
  std::atomic<uint64_t> rule_bytes_{0};
  std::atomic<uint64_t> judged_{0};
  std::atomic<uint64_t> inconclusive_{0};
  std::atomic<uint64_t> finished_losses_{0};
};

}  // namespace plumbline::rules
