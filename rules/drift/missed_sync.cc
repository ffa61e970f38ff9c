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
is not reported, because the step would be wrong. `step_at_least` and `step_at_most` are the steps that are a
twentieth as likely as the one named, or more. Each step is a version of its own, so that a jump between steps is one
at a version change.

**Strength.** `statistical`, a warning. Six standard errors with 14 or more degrees of freedom are 3e-5 at one
place; the three conditions together fired in none of 10,000 simulated healthy runs.

**Inconclusive when** no lag is recorded (`no-lag`), fewer than 16 steps have tokens of lag 0 (`few-steps`), the jump has fewer
than 8 steps on one side (`near-the-end`), tokens of equal log μ have less than half of the jump, as where a harder
task makes tokens rarer (`other-tokens`), the record is not true (`record-invalid`, `supports-differ`),
both columns are the same numbers (`same-numbers`), or the sides redacted their ids under different keys (`keys-differ`).

**What it cannot see.** An update missed in the first 8 steps or the last 8; one that the next update repairs; tokens
that are honestly labelled stale (`drift/staleness`).

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
    v1::Verdict verdict = jump.found          ? Found(site, jump)
                          : jump.at_edge      ? Inconclusive(AtEdge(jump))
                          : jump.other_tokens ? Inconclusive(OtherTokens(jump))
                                              : Pass("no jump fits better than a line");
    google::protobuf::Struct& details = *verdict.mutable_details();
    Put(details, "steps", static_cast<double>(jump.steps));
    if (jump.jump > 0) {
      Put(details, "step", static_cast<double>(jump.step));
      Put(details, "step_at_least", static_cast<double>(jump.step_low));
      Put(details, "step_at_most", static_cast<double>(jump.step_high));
      Put(details, "jump", jump.jump);
      Put(details, "standard_error", jump.standard_error);
      Put(details, "residual_share", jump.residual_share);
    }
    if (jump.found) site.statistics.strata.Describe(details);
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

  static v1::Verdict Found(const DriftSite& site, const StepChange& jump) {
    v1::Verdict verdict = DriftFinding(
        site, jump.step, site.Cause(),
        FindingBuilder(v1::LEVEL_WARNING, v1::STRENGTH_STATISTICAL)
            .Title(kInfo.title)
            .Explain(absl::StrFormat("At step %d the drift of lag-0 tokens rose %.3g-fold (%.0f "
                                     "standard errors) and stayed high.",
                                     jump.step, std::exp(jump.jump),
                                     jump.jump / jump.standard_error))
            .Measured("jump of the log mean square of d", jump.jump, "nats")
            .Threshold(std::numbers::ln2, "ln 2, 6 standard errors, half of the line's squares"),
        {"measured", 3e-4}, jump.steps);
    verdict.mutable_finding()->add_assumptions(
        "the levels of steps are independent, except for the jump or the line");
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
