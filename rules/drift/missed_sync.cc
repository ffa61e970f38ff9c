#include <cmath>
#include <memory>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/drift/drift.h"
#include "analysis/frame/frame.h"
#include "rules/bases/drift_rule.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# drift/missed-sync

From one step on, tokens that are labelled with the newest weights drift as if older weights had sampled them.

**Why.** A weight update that skips one worker of eight, or one tensor of three hundred (a tied embedding, a new
quantisation scale), raises no error: the engine answers and labels its tokens with the new version, and no
message shows that the ratio e^d is wrong. In simulation, four versions of 0.03 a logit raise the mean of d² from
6e-4 to 8e-3: 13-fold.

**Bad.** `at step 412 the drift of lag-0 tokens rose 13-fold (18 standard errors) and stayed`.

**Good.** A straight series, or one that grows evenly (`drift/drift-growth`).

**How to fix it.** Compare checksums of the engine's weights, tensor by tensor and worker by worker, with the
trainer's after each update; the strata by worker show which worker missed it.

**What it checks.** Per step, the log of the mean of d² over the tokens labelled lag 0. One upward jump is fitted at
every step and compared with the best straight line. A finding where the best one is at least ln 2 and at least 6
standard errors, leaves at most half of the squares that the line leaves, and has 8 steps on each side: before that it
is not reported, because the step would be wrong. If the drift falls back again, one stretch of steps with more drift is
fitted: 8 standard errors, at most 40 % of the line's squares, at least 4 steps in, before and after it, and nine of ten steps
on the right side of the middle; the finding states the stretch. Also, from the recorded versions alone: the engine keeps
one version for at least 8 updates of the trainer, four times as long as ever else, and changes it at least 8 times
elsewhere. `step_at_least` and `step_at_most` are the steps that are a
twentieth as likely as the one named, or more. Each step is a version of its own, so that a jump between steps is one
at a version change.

**Cause.** Another arithmetic on one side, dropout, other prompts, other token ids and another model begin in one step, too.
The cause is `missed-sync` if the drift grows in the steps after the jump (8 or more, the slope of ln d² by 6 standard errors, by a factor of 1.5 in all),
or if the stretch ended and k3 is at most ten times 5e-3. It is `batch-variance` if the trainer scores recurring tokens
differently within a step. Otherwise it is `unknown`, and the finding names what remains.

**Strength.** `statistical`, a warning; versions that stand are `heuristic`. Six standard errors with 14 or more degrees of freedom are 3e-5 at one
place; the three conditions together fired in none of 10,000 simulated healthy runs. A stretch was found in none of
4,000 healthy or evenly growing series of 16 to 115 steps.

**Inconclusive when** no lag is recorded (`no-lag`), fewer than 16 steps have tokens of lag 0 (`few-steps`), the jump has fewer
than 8 steps on one side (`near-the-end`), tokens of equal log μ have less than half of the jump, as where a harder
task makes tokens rarer (`other-tokens`), the record is not true (`record-invalid`, `supports-differ`),
both columns are the same numbers (`same-numbers`), or the sides redacted their ids under different keys (`keys-differ`).

**What it cannot see.** An update missed in the first 8 steps or the last 8; one that is repaired within 4 steps; tokens
that are honestly labelled stale (`drift/staleness`), unless the version stands.

**Cost.** One pass over the steps, at each look.

**Sources.** Bai, "Estimation of a change point in multiple regression models", 1997.
)page";

constexpr RuleInfo kInfo = {
    "drift/missed-sync", "a weight update did not arrive", v1::LEVEL_WARNING, "0.1.0", kPage, {}};

class MissedSyncRule : public DriftRule {
 public:
  explicit MissedSyncRule(const Options& /*options*/) {}

 protected:
  v1::Verdict JudgeSite(const DriftSite& site) const override {
    v1::Verdict verdict = Judged(site);
    AssumeDrift(site, verdict);
    return verdict;
  }

 private:
  static v1::Verdict Judged(const DriftSite& site) {
    const VersionCourse::Stand stand = site.statistics.versions.Find();
    if (stand.found) return Stood(site, stand);
    if (const std::string doubt = site.RecordDoubt(); !doubt.empty()) return Inconclusive(doubt);
    if (site.statistics.with_lag == 0)
      return Inconclusive(
          "no-lag: no weight version is recorded; drift/drift-growth reports a jump");
    const StepChange jump = site.Jump();
    if (!jump.judged) {
      return Inconclusive(
          absl::StrFormat("few-steps: %d steps have tokens of lag 0; the rule needs %d with drift",
                          jump.steps, 2 * StepChange::kFewestAside));
    }
    const DriftEpisode episode = jump.found ? DriftEpisode() : site.Patterns().episode;
    v1::Verdict verdict = jump.found          ? Found(site, jump)
                          : episode.found     ? Repaired(site, episode)
                          : jump.at_edge      ? Inconclusive(AtEdge(jump))
                          : jump.other_tokens ? Inconclusive(OtherTokens(jump))
                                              : Pass("no jump fits better than a line");
    google::protobuf::Struct& details = *verdict.mutable_details();
    Put(details, "steps", static_cast<double>(jump.steps));
    if (jump.jump > 0 && !episode.found) {
      Put(details, "step", static_cast<double>(jump.step));
      Put(details, "step_at_least", static_cast<double>(jump.step_low));
      Put(details, "step_at_most", static_cast<double>(jump.step_high));
      Put(details, "jump", jump.jump);
      Put(details, "standard_error", jump.standard_error);
      Put(details, "residual_share", jump.residual_share);
    }
    if (jump.found || episode.found) site.statistics.strata.Describe(details);
    return verdict;
  }

  static std::string AtEdge(const StepChange& jump) {
    return absl::StrFormat(
        "near-the-end: drift rose %.3g-fold at step %d; the rule needs %d steps on each side to "
        "distinguish a jump from growth",
        std::exp(jump.jump), jump.step, StepChange::kFewestAside);
  }

  static std::string OtherTokens(const StepChange& jump) {
    return absl::StrFormat(
        "other-tokens: drift rose %.3g-fold at step %d, and tokens of equal log mu have less than "
        "half of that: other tokens are drawn since then, as from another task",
        std::exp(jump.jump), jump.step);
  }

  // Other faults begin in one step, too. A flat jump does not show which it is.
  static std::string TitleFor(const DriftCause& cause, const char* title) {
    return cause.id == "missed-sync" ? title
                                     : "drift of the newest weights' tokens rose at one step";
  }

  static v1::Verdict Found(const DriftSite& site, const StepChange& jump) {
    const DriftCause cause = site.Cause();
    v1::Verdict verdict = DriftFinding(
        site, jump.step, cause,
        FindingBuilder(v1::LEVEL_WARNING, v1::STRENGTH_STATISTICAL)
            .Title(TitleFor(cause, kInfo.title))
            .Explain(absl::StrFormat("At step %d the drift of lag-0 tokens rose %.3g-fold (%.0f "
                                     "standard errors) and stayed high.%s",
                                     jump.step, std::exp(jump.jump),
                                     jump.jump / jump.standard_error, PossibleCauses(cause)))
            .Measured("jump of the log mean square of d", jump.jump, "nats")
            .Threshold(std::numbers::ln2, "ln 2, 6 standard errors, half of the line's squares"),
        {"measured", 3e-4}, jump.steps);
    verdict.mutable_finding()->add_assumptions(
        "the levels of steps are independent, except for the jump or the line");
    return verdict;
  }

  static v1::Verdict Repaired(const DriftSite& site, const DriftEpisode& episode) {
    const DriftCause cause = site.Cause();
    v1::Verdict verdict = DriftFinding(
        site, episode.first, cause,
        FindingBuilder(v1::LEVEL_WARNING, v1::STRENGTH_STATISTICAL)
            .Title(TitleFor(cause, "weight updates did not arrive for a while"))
            .Explain(absl::StrFormat(
                "From step %d to step %d the drift of lag-0 tokens was %.3g-fold (%.0f standard "
                "errors). It fell back in step %d.%s",
                episode.first, episode.last, std::exp(episode.rise),
                episode.rise / episode.standard_error, episode.after, PossibleCauses(cause)))
            .Measured("rise of the log mean square of d", episode.rise, "nats")
            .Threshold(std::numbers::ln2, "ln 2, 8 standard errors, 60 % of the line's squares"),
        {"measured", 3e-4}, episode.steps);
    verdict.mutable_site()->set_step_last(episode.last);
    verdict.mutable_finding()->add_assumptions(
        "the levels of steps are independent, except for the stretch or the line");
    return verdict;
  }

  // Reports versions that stand, which the record states.
  static v1::Verdict Stood(const DriftSite& site, const VersionCourse::Stand& stand) {
    v1::Verdict verdict =
        FindingBuilder(v1::LEVEL_WARNING, v1::STRENGTH_HEURISTIC)
            .Title("the engine kept one weight version for many updates")
            .Explain(absl::StrFormat(
                "From step %d to step %d the tokens have weight version %d, while the trainer made "
                "%d updates. The longest other stretch has %d.%s",
                stand.first, stand.last, stand.version, stand.missed, stand.longest_other,
                stand.ended ? " Newer versions came after it." : ""))
            .Cause("missed-sync", 0.9)
            .Measured("updates of the trainer at one version of the engine",
                      static_cast<double>(stand.missed), "updates")
            .Threshold(8, "customary; and four times the longest other stretch")
            .Fix(
                "Look for the weight update that failed or waited at the first of these steps, in "
                "the logs of the trainer and of the engine.")
            .Samples(site.batches)
            .Take();
    site.Place(verdict);
    verdict.mutable_site()->set_step_first(stand.first);
    verdict.mutable_site()->set_step_last(stand.last);
    Put(*verdict.mutable_details(), "version", static_cast<double>(stand.version));
    Put(*verdict.mutable_details(), "missed_updates", static_cast<double>(stand.missed));
    return verdict;
  }
};

}  // namespace

CatalogueEntry missed_sync() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<MissedSyncRule>(options);
          }};
}

}  // namespace plumbline::rules
