#include <algorithm>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "analysis/frame/frame.h"
#include "analysis/processes/processes.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# meta/probe-coverage

Probes are installed, but they deliver no evidence.

**Why.** A run without evidence looks like a healthy run. A hook on a module that is not called in
training mode once observed 0 of 10,000 steps, and no message showed it.

**Bad.** `run.observe_routing("layers.3", ...)` is in a branch that `torch.compile` removed: the
site is declared in step 0 and never seen again.

**Good.** Every declared site reports, and at least one rule reaches a verdict.

**How to fix it.** `plumb doctor` lists what can be hooked here. Move the observation to code that runs
in every step, and call it on the values the trainer really uses.

**What it checks.** Four things, at the end of a run. No rule gave a verdict, not even
`inconclusive`: error. A site was declared and then never sent evidence, though the run went on for
`quiet-steps` steps or more: warning. And modules that `run.watch` could not hook (for example, sharded parameters):
warning, with what would make it possible; libraries of a compiled trainer of which `plumb run` saw no call: note, or
warning if the program contains them (linked statically); sums of several processes that no wrapper makes, which a trainer may do by
itself: note. A run of
3 updates or more in which no rank's loss was seen (`the loss`): note, for no rule on losses judges it. And processes
that reported fewer ranks than their world has: warning, with the ranges of the ranks that sent nothing. plumbd reports
it as soon as it no longer waits for them.

**What it cannot see.** Code that no probe was ever placed in. A site of micro-batches (`accumulation`) may be silent:
one micro-batch per step is not a sum.

**Cost.** None.

**Strength.** `proved`: the counts are exact.
)page";

// A remedy begins with one of these prefixes. `kUnseen` gives a note instead of a warning, because
// the trainer may do the work itself without a call that the probe sees.
constexpr char kUnhooked[] = "unhooked: ", kUnseen[] = "unseen: ";
constexpr char kTheLoss[] = "the loss";  // the name that run.watch uses

constexpr OptionInfo kOptions[] = {
    {.name = "quiet-steps",
     .type = OptionInfo::Type::kInteger,
     .unit = "steps",
     .default_value = "2",
     .reason = "a run that ends in its first step may not have reached the site",
     .low = 1,
     .high = 1e9},
};

constexpr RuleInfo kInfo = {"meta/probe-coverage",
                            "probes that deliver no evidence",
                            v1::LEVEL_ERROR,
                            "0.1.0",
                            kPage,
                            kOptions};

v1::Verdict Make(v1::Level level, const std::string& title, const std::string& explanation,
                 const std::string& fix) {
  FindingBuilder found(level, v1::STRENGTH_PROVED);
  found.Title(title).Explain(explanation).Fix(fix);
  found.finding().mutable_cause()->set_confidence(1);
  return found.Take();
}

class ProbeCoverage : public Rule {
 public:
  explicit ProbeCoverage(const Options& options) : quiet_steps_(options.Integer("quiet-steps")) {}

  void JudgeRun(const RunSummary& run, VerdictSink& out) override {
    uint64_t evidence = 0;
    for (const auto& [key, site] : run.sites) {
      evidence += site.evidence;
      const char* prefix = key.second.starts_with(kUnhooked) ? kUnhooked
                           : key.second.starts_with(kUnseen) ? kUnseen
                                                             : nullptr;
      if (prefix != nullptr && site.declared_ranks > 0) {
        if (key.first == kTheLoss) {
          if (!HasLoss(run)) NoLoss(run, key.second.substr(std::strlen(prefix)), site, out);
          continue;
        }
        Unhooked(run, key, prefix, site, out);
        continue;
      }
      // A sum of one addend is not recorded, so a trainer with one micro-batch per step sends no
      // sums.
      const bool may_be_silent = key.second == "accumulation";
      if (site.evidence == 0 && site.declared_ranks > 0 && !may_be_silent)
        SilentSite(run, key, site, out);
    }
    for (const RunSummary::AbsentRanks& absent : run.absent) out.Add(AbsentVerdict(run, absent));
    if (run.verdicts == 0 && !run.meta_alone) NoVerdict(run, evidence, out);
  }

  // Stores nothing: this rule judges the summary of the run, which the engine stores.
  void Persist(Archive& /*archive*/) override {}

 private:
  // Reports the parts that a binding could not hook. The binding declares each part as a site whose
  // op states the remedy.
  static void Unhooked(const RunSummary& run, const std::pair<std::string, std::string>& key,
                       const char* prefix, const RunSummary::SiteCount& site, VerdictSink& out) {
    const std::string remedy = key.second.substr(std::strlen(prefix));
    v1::Verdict verdict = Make(
        prefix == kUnseen ? v1::LEVEL_NOTE : v1::LEVEL_WARNING, "part of the model is not observed",
        absl::StrCat(key.first, " could not be hooked on ", site.declared_ranks,
                     site.declared_ranks == 1 ? " rank" : " ranks",
                     ": their results are not observed, and no rule judges them."),
        remedy.empty() ? "See `python -m plumbline doctor`." : remedy);
    verdict.mutable_site()->set_layer(key.first);
    verdict.mutable_site()->set_op("unhooked");
    verdict.mutable_site()->set_step_first(site.declared_step);
    verdict.mutable_site()->set_step_last(run.step_last);
    v1::Finding& finding = *verdict.mutable_finding();
    finding.mutable_cause()->set_id("not-hooked");
    Quantify(finding, "ranks", static_cast<double>(site.declared_ranks), "ranks", 0,
             "the whole model is observed");
    out.Add(std::move(verdict));
  }

  // Returns true if any rank has a loss (with pipelining only the last stage has one), or if the
  // trainer recorded a loss itself.
  static bool HasLoss(const RunSummary& run) {
    return std::any_of(run.sites.begin(), run.sites.end(), [](const auto& entry) {
      return entry.second.evidence > 0 && entry.first.second.find("loss") != std::string::npos &&
             entry.first.second != "loss_scale";
    });
  }

  static void NoLoss(const RunSummary& run, const std::string& remedy,
                     const RunSummary::SiteCount& site, VerdictSink& out) {
    v1::Verdict verdict = Make(v1::LEVEL_NOTE, "no loss was observed",
                               "The optimizer steps, but backward() was never called on a loss. No "
                               "rule for losses judges this run.",
                               remedy);
    verdict.mutable_site()->set_layer(kTheLoss);
    verdict.mutable_site()->set_op("unhooked");
    verdict.mutable_site()->set_step_first(site.declared_step);
    verdict.mutable_site()->set_step_last(run.step_last);
    v1::Finding& finding = *verdict.mutable_finding();
    finding.mutable_cause()->set_id("no-loss");
    Quantify(finding, "losses", 0, "losses", 1, "a training run has a loss");
    out.Add(std::move(verdict));
  }

  void SilentSite(const RunSummary& run, const std::pair<std::string, std::string>& key,
                  const RunSummary::SiteCount& site, VerdictSink& out) const {
    const int64_t steps = run.step_last - site.declared_step + 1;
    if (steps < quiet_steps_) return;
    v1::Verdict verdict =
        Make(v1::LEVEL_WARNING,
             absl::StrCat("site ", key.first, "/", key.second, " was declared but never observed"),
             absl::StrCat("It was declared at step ", site.declared_step, "; ", steps,
                          " steps later it has sent no evidence."),
             "Move the observation to code that runs in every step; see `plumb doctor`.");
    verdict.mutable_site()->set_layer(key.first);
    verdict.mutable_site()->set_op(key.second);
    verdict.mutable_site()->set_step_first(site.declared_step);
    verdict.mutable_site()->set_step_last(run.step_last);
    v1::Finding& finding = *verdict.mutable_finding();
    finding.mutable_cause()->set_id("silent-site");
    Quantify(finding, "steps without evidence", static_cast<double>(steps), "steps",
             static_cast<double>(quiet_steps_), "option quiet-steps");
    Put(*finding.mutable_witness(), "declared_step", static_cast<double>(site.declared_step));
    Put(*finding.mutable_witness(), "declared_ranks", static_cast<double>(site.declared_ranks));
    out.Add(std::move(verdict));
  }

  void NoVerdict(const RunSummary& run, uint64_t evidence, VerdictSink& out) const {
    v1::Verdict verdict =
        Make(v1::LEVEL_ERROR, "no rule found evidence to judge",
             evidence == 0
                 ? "The run contains no evidence."
                 : absl::StrCat(evidence,
                                " items of evidence were read, but no selected rule judges them."),
             "Check that the probes ran (`plumb doctor`), and check the audited path and --rules.");
    verdict.mutable_site()->set_step_first(run.step_first);
    verdict.mutable_site()->set_step_last(run.step_last);
    v1::Finding& finding = *verdict.mutable_finding();
    finding.mutable_cause()->set_id("no-verdict");
    Quantify(finding, "verdicts", 0, "verdicts", 1, "a run with evidence has at least one verdict");
    Put(*finding.mutable_witness(), "evidence", static_cast<double>(evidence));
    finding.set_sample_size(evidence);
    out.Add(std::move(verdict));
  }

  static void Quantify(v1::Finding& finding, const char* name, double value, const char* unit,
                       double threshold, const char* source) {
    finding.mutable_measured()->set_name(name);
    finding.mutable_measured()->set_value(value);
    finding.mutable_measured()->set_unit(unit);
    finding.mutable_threshold()->set_value(threshold);
    finding.mutable_threshold()->set_source(source);
  }

  int64_t quiet_steps_;
};

}  // namespace

CatalogueEntry probe_coverage() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<ProbeCoverage>(options);
          }};
}

}  // namespace plumbline::rules
