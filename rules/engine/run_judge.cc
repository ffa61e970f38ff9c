#include "rules/engine/run_judge.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "analysis/frame/frame.h"
#include "rules/engine/rows_judge.h"

namespace plumbline::rules {
namespace {

// Names only the first ranks of a run, because the cost of each verdict must not grow with the
// number of ranks.
void NameRanksOf(const RunState& state, v1::FindingSite* site) {
  constexpr int kNamed = 1024;
  for (const uint32_t rank : state.ranks()) {
    if (site->ranks_size() >= kNamed) return;
    site->add_ranks(rank);
  }
}

// Fills in the site of a verdict where its rule left it open. `step` is what was judged; nullptr:
// the run as a whole, or one of its steps. Layer, steps or ranks that a rule set are kept.
void FillSite(const RunState& state, const SiteStep* step, v1::FindingSite* site) {
  site->set_run(state.summary().run);
  if (step == nullptr) {
    if (site->ranks().empty()) NameRanksOf(state, site);
    return;
  }
  if (site->layer().empty() && site->op().empty()) {
    site->set_layer(step->site.layer());
    site->set_op(step->site.op());
  }
  if (site->step_first() == 0 && site->step_last() == 0) {
    site->set_step_first(step->step);
    site->set_step_last(step->step);
  }
  if (!site->ranks().empty()) return;
  // Items are sorted by rank, so several items of one rank are adjacent.
  for (const Item& item : step->items) {
    const uint32_t rank = item.source->rank();
    if (site->ranks().empty() || site->ranks(site->ranks_size() - 1) != rank) site->add_ranks(rank);
  }
}

// Names the line of the trainer that first reported the finding's site, or else another site of its
// layer.
void NameLine(const RunSummary& run, v1::FindingSite* site) {
  auto line = run.lines.find({site->layer(), site->op()});
  if (line == run.lines.end() && !site->layer().empty()) {
    line = run.lines.lower_bound({site->layer(), ""});
    if (line != run.lines.end() && line->first.first != site->layer()) line = run.lines.end();
  }
  if (line == run.lines.end()) return;
  site->set_file(line->second.file);
  site->set_line(line->second.line);
}

}  // namespace

// Completes a verdict from the call's context, counts it and passes it on.
class RunJudge::Sink : public VerdictSink {
 public:
  Sink(RunJudge* judge, EngineRun& run, const char* rule, const SiteStep* step = nullptr)
      : judge_(judge), run_(run), rule_(rule), step_(step) {}

  void Add(v1::Verdict verdict) override {
    verdict.set_rule(rule_);
    FillSite(run_.state, step_, verdict.mutable_site());
    if (verdict.kind() == v1::Verdict::KIND_FINDING) {
      v1::Finding& finding = *verdict.mutable_finding();
      finding.set_rule(rule_);
      *finding.mutable_site() = verdict.site();
      NameLine(run_.state.summary(), finding.mutable_site());
      finding.set_fingerprint(Fingerprint(rule_, verdict.site()));
      if (!finding.has_details()) *finding.mutable_details() = verdict.details();
      if (finding.assumptions().empty()) *finding.mutable_assumptions() = verdict.assumptions();
      judge_->suppressions_.Mark(&finding);
    }
    judge_->Count(run_, verdict);
  }

 private:
  RunJudge* judge_;
  EngineRun& run_;
  const char* rule_;
  const SiteStep* step_;
};

// Calls `what` with each rule that judges the run, in order. `step` is the judged step; nullptr:
// not a single one.
template <typename What>
void RunJudge::Each(EngineRun& run, const SiteStep* step, const What& what) {
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
void RunJudge::EachReader(EngineRun& run, const SiteStep& step, const What& what) {
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
  ReportFullSeries(run);
}

OnClose RunJudge::Judging(EngineRun& run) {
  return {[this, &run](const SiteStep& step) {
            run.rules.Show(step);
            EachReader(run, step, [&](Rule& rule, Sink& sink) {
              if (!step.late || rule.judges_late()) rule.Judge(step, sink);
            });
          },
          host_.series,
          [this, &run](const StepEnd& step) {
            run.rules.EachAtStepEnd([&](size_t i, Rule& rule) {
              Sink sink(this, run, run.rules.Id(i));
              rule.JudgeStep(step, sink);
            });
            run.rules.WeighIfDue(SettingAside(run));
          },
          [this, &run](const std::string& cause, uint64_t items) { JudgeLate(run, cause, items); },
          [this, &run](const RunEnds& ends) { ReportEnds(run, ends, false); },
          JudgingRows(run),
          [this, &run](const std::string& cause, uint64_t items) {
            if (host_.lost) host_.lost(run.name(), cause, items);
          }};
}

// Returns nullptr if rules are weighed, because that happens between steps.
std::function<void(const StepRows&)> RunJudge::JudgingRows(EngineRun& run) {
  if (run.rules.most_bytes() > 0) return nullptr;
  return [this, &run](const StepRows& steps) {
    RowsJudge(&run.rules, steps).Judge([&](size_t i, const SiteStep* step, v1::Verdict verdict) {
      Sink(this, run, run.rules.Id(i), step).Add(std::move(verdict));
    });
    ReportFullSeries(run);
  };
}

RunRules::OnSetAside RunJudge::SettingAside(EngineRun& run) {
  return [this, &run](size_t i, uint64_t bytes) {
    v1::Verdict verdict = Inconclusive(absl::StrCat(
        "memory-full: the state of this rule for the sites and ranks of the run takes ",
        bytes >> 10, " KiB, which exceeds its limit; the rule stops judging this run"));
    verdict.mutable_site()->set_step_first(run.state.closed_step());
    verdict.mutable_site()->set_step_last(run.state.closed_step());
    Add(run, run.rules.Id(i), std::move(verdict));
  };
}

void RunJudge::JudgeWhole(EngineRun& run, bool over) {
  run.state.CloseAll(Judging(run));
  const RunEnds ends = run.state.Ends(over);
  ReportEnds(run, ends, false);
  for (const JudgedSeries::LeftOut& of : run.rules.series().AllLeftOut())
    ReportSeries(run, of, SeriesLimitReason(of.role, most_series_, of.count));
  Each(run, nullptr, [&](Rule& rule, Sink& sink) { rule.JudgeRun(run.state.Summarize(), sink); });
  // A foreign log may count the steps of its series differently, so only a process can be overdue.
  if (host_.whole && !ends.ends.empty()) {
    for (v1::Verdict& verdict : host_.whole(run.state.Summarize())) {
      const std::string rule = verdict.rule();
      Add(run, rule.c_str(), std::move(verdict));
    }
  }
  const auto ran = [&](const std::string& glob) {
    for (size_t i = 0; i < run.rules.size(); ++i) {
      const Rule* rule = run.rules.At(i);
      if (rule != nullptr && rule->judges_evidence() && GlobMatch(glob, run.rules.Id(i)))
        return true;
    }
    return false;
  };
  ReportSuppressions(run, suppressions_.Unused(run.name(), ran));
}

// Reports late items. 0 items: evidence that arrived earlier was judged now.
void RunJudge::JudgeLate(EngineRun& run, const std::string& cause, uint64_t items) {
  if (host_.late && items > 0) host_.late(run.name(), cause, items);
  Each(run, nullptr, [&](Rule& rule, Sink& sink) { rule.JudgeLate(run.state.summary(), sink); });
  run.rules.WeighIfDue(SettingAside(run));
}

void RunJudge::ReportEnds(EngineRun& run, const RunEnds& ends, bool findings) {
  auto verdict = IsActive(kRunDiedRule) ? DiedVerdict(ends) : std::nullopt;
  if (!verdict || (findings && verdict->kind() != v1::Verdict::KIND_FINDING)) return;
  Add(run, kRunDiedRule, *std::move(verdict));
}

void RunJudge::ReportAbsent(EngineRun& run) {
  if (!IsActive(kAbsentRule)) return;
  const RunSummary& summary = run.state.Summarize();
  for (const RunSummary::AbsentRanks& absent : summary.absent)
    Add(run, kAbsentRule, AbsentVerdict(summary, absent));
}

// Each rule that reads such series reports once that it judges no more of them.
void RunJudge::ReportFullSeries(EngineRun& run) {
  if (!run.rules.series().any_full()) return;
  for (const JudgedSeries::LeftOut& of : run.rules.series().TakeFull())
    ReportSeries(run, of, SeriesLimitReason(of.role, most_series_));
}

// Adds an inconclusive verdict of each rule that would read such series.
void RunJudge::ReportSeries(EngineRun& run, const JudgedSeries::LeftOut& of,
                            const std::string& reason) {
  for (size_t i = 0; i < run.rules.size(); ++i) {
    Rule* const rule = run.rules.At(i);
    if (rule == nullptr || !Reads(rule, of.first)) continue;
    v1::Verdict verdict = Inconclusive(reason);
    verdict.mutable_site()->set_step_first(run.state.closed_step());
    verdict.mutable_site()->set_step_last(run.state.closed_step());
    Add(run, run.rules.Id(i), std::move(verdict));
  }
}

void RunJudge::ReportExpiredSuppressions(EngineRun& run) {
  ReportSuppressions(run, suppressions_.Expired(run.name()));
}

void RunJudge::ReportSuppressions(EngineRun& run, std::vector<v1::Verdict> verdicts) {
  constexpr const char* kRule = "meta/unused-suppression";
  if (!IsActive(kRule)) return;
  for (v1::Verdict& verdict : verdicts) Add(run, kRule, std::move(verdict));
}

void RunJudge::Add(EngineRun& run, const char* rule, v1::Verdict verdict) {
  Sink(this, run, rule).Add(std::move(verdict));
}

void RunJudge::Count(EngineRun& run, const v1::Verdict& verdict) {
  const bool inconclusive = verdict.kind() == v1::Verdict::KIND_INCONCLUSIVE;
  const bool meta = verdict.rule().compare(0, 5, "meta/") == 0;
  // The way processes end does not count as a verdict on their computation.
  const bool ends = verdict.rule() == kRunDiedRule;
  if (!meta && !ends) ++run.state.summary().verdicts;
  if (inconclusive && !ends) ++inconclusive_;
  if (!inconclusive && !meta && !ends) ++judged_;
  host_.verdict(verdict);
}

bool RunJudge::IsActive(std::string_view rule) const {
  return std::any_of(active_->begin(), active_->end(),
                     [rule](const ActiveRule& active) { return active.entry->info->id == rule; });
}

}  // namespace plumbline::rules
