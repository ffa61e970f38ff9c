#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/drift/drift.h"
#include "analysis/frame/frame.h"
#include "rules/bases/drift_rule.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# drift/logit-drift

The inference engine and the trainer give one token different probabilities. The rule states how much they differ,
and whether this is noise or a bias.

**Why.** The ratio e^d weighs every gradient. A trainer at temperature 1.1 against samples at 1.0 has |d| of 0.1 to
0.5 on ordinary tokens, always in the same direction: each update flattens or sharpens the policy by that much, and
200 updates compound. FP8 noise of the same size averages out over a batch of 10,000 tokens to a hundredth of it.

**Bad.** `d follows log pi + H with slope +0.1, R^2 0.97: the trainer is at temperature 0.9`.

**Good.** `k3 6.2e-4 over 65,536 tokens; healthy dense bf16: k3 about 6e-4`.

**How to fix it.** The fix depends on the cause that the finding names. `unknown` means that two causes have the
same effect; the text names both.

**What it checks.** d = log π − log μ of every sampled token, trainer less rollout, and, with full logits, both
divergences of every row. All sums unclamped and in the log domain; tokens that are not finite are counted apart;
tokens of lag 0 (or of no recorded lag) are judged, staler ones are `drift/staleness`'s.
- *A bias* is (a) a slope of d on log π + H, H the entropy of π, that explains 60 % of d: the trainer then samples
  at temperature 1 − slope. The slope on log μ + H must have its sign and explain 30 %: noise of the trainer's own
  (dropout that was left on) is in the first and not in the second. Without entropies the slope of d on log μ gives the
  sign, and counts only beyond var(d)/var(log μ), which honest noise reaches, and below 0.05 only where it explains
  30 % (few distinct tokens give small slopes by chance). Looked for in all tokens and in those of
  each worker, each version, even and odd steps, within one chance of a false alarm: workers at 0.85 and 1.15 have no
  slope together. A context that is repeated (the same bits of the entropy, else the same token and log μ) has the same noise
  again: standard errors are over contexts as well as over sequences, the larger counts, and a slope
  through fewer than eight contexts means nothing. (b) d that moves with the advantage: what was rewarded is scored
  otherwise. (c) With full logits, the slope of the affine fit of one side's logits on the other's.
- *First tokens.* Where the first 8 tokens of responses have ten times the mean square of later tokens with about the
  same log mu, by 5 standard errors: if not in the record's first step, or only in sequences with cached tokens, a prefix cache
  holds keys and values of older weights (`stale-cache`). If from the run's first step or weights on, or without cached tokens: in
  90 % of the sequences the two sides have different prompts (`template`: chat template, BOS), in less than 80 % documents attend to the
  one before in their pack (`packing`). A slower decay with the distance from the prompt counts for `template` and `packing` too. Otherwise the cause
  is unknown and its words name those that remain. Without recorded versions, weights that were updated inside
  sequences do the same as a cache, unless the next 24 tokens have less than a third of it.
- *Weights.* Drift that is as small as rounding first and grows fourfold with the versions: the engine keeps its first weights, or an adapter is not
  merged (`missed-sync`, if recurring tokens have the same log mu to the last bit in different steps). k2 above 0.02 without any other mark: the trainer scores
  one token in one context differently within a step (`batch-variance`: dropout); or the same again, with k3 above ten limits from the first step on
  (`other-model`, as if log pi does not follow log mu at all). Without such tokens both remain.
- *Onset.* Drift that begins in one step: see `drift/missed-sync`, *Cause*. Token ids that differ (`retokenisation`): at least 10 tokens differ by a
  factor above 100, ten times as many on one side; in their sequences two thirds of the others agree to a factor of 2, and first tokens do not have most of them.
- *One worker.* A shift by one or a temperature that only one worker has is looked for in its own tokens.
- *Noise* has no slope. k1 = −d still has the mean KL(μ‖π): a negative mean of d is not a bias. k3 = e^d − 1 − d and
  KL are its size.
- *A noise floor*, where one is recorded: a batch scored twice by the trainer, its third pass (`behaviour_logprobs`) at
  lag 0, or the engine rescoring its own tokens (`rescore_k2`). Half of k2 or more is then named batch variance. Logits
  rounded to 16 bits are named from values on that grid, from d on multiples of a power of two, or from full logits.
- Also printed: tails beyond factors of 1.1, 2, 5 and 100, the effective sample size, mean squares by log μ,
  position, turn, worker and lag, and the row of the context table that the size falls in.

**Context.** Healthy dense bf16 has k3 of about 6e-4 and mean |d| of 0.010 to 0.013, mixtures of experts 1.5e-3, FP8
rollouts up to 3e-3; deterministic stacks have exactly 0.

**Course.** The finding has the level of the worst look, and states the worst and the newest steps (at most 16 stretches of equal length,
8 steps or more). Drift *ended* if the last 8 steps or more have k3 of at most 3e-3 and a quarter of the worst, and are more than ever between bad steps.

**Level.** A bias is a warning, an error where the slope passes 0.1 (without an entropy column only if it explains 60 %
of the squares). Without one: an error where k3 or KL is above ten times 5e-3 at lag 0 by 5 standard errors (twenty
times if no versions are recorded, because such tokens may be stale), of all steps or of one stretch; a warning where k3 or KL(μ‖π) is
above 5e-3 (k3 by its 99 % lower bound, KL by 5 standard errors) or in first tokens, a note above 3e-3, else a pass. Small drift can collapse a run and large drift can
be benign: size is reported, harm is not predicted.

**Strength.** A bias `statistical`: the chance of 5 standard errors over sequences and contexts, at each doubling of the tokens. Sizes
`heuristic`: 5e-3 is customary.

**Inconclusive when** there are fewer than 256 finite tokens of lag 0 (`few-tokens`), or none at all (`no-tokens`,
`non-finite`, `stale-only`; of full logits `no-usable-row`); when only one side is recorded (`one-half`), its tensors are damaged
(`bad-tensor`), or the sides redacted their ids under different keys (`keys-differ`); when both columns of
one record hold the same numbers, so that nothing shows that two programs computed them (`same-numbers`).

**What it cannot see.** A temperature in a record of few contexts; a bias that both sides share
(`drift/sampler-mismatch`); one whose slope explains less
than 60 % of d in the presence of larger noise; whether the trainer or the engine is wrong.

**Cost.** About 0.1 µs a token, once for all rules for drift; 100 bytes per step.

**Sources.** Schulman, "Approximating KL divergence", 2020, for k1, k2, k3; Yao et al., "Your efficient RL framework
secretly brings you off-policy RL training", 2025, on mismatch between engines; Liang and Zeger, 1986, on clusters.
)page";

constexpr RuleInfo kInfo = {"drift/logit-drift",
                            "inference and training give one token different probabilities",
                            v1::LEVEL_ERROR,
                            "0.1.0",
                            kPage,
                            {}};

constexpr uint64_t kFewCompared = 256;
constexpr char kFixUnknown[] =
    "Record entropies and weight versions together with the log-probabilities: they distinguish "
    "the causes.";
constexpr double kErrorSlope = 0.1;
// Probability that a normal variable deviates by more than 5 standard errors in either direction.
constexpr double kBiasChance = 5.7e-7;

// Returns a lower bound of a mean of values in [0, 1] (for KL: of values near 0). If there are few
// sequences, treats tokens as independent, with the largest variance that such values can have, and
// subtracts 5 standard errors.
double LowerBound(const ClusteredMean& mean, double deviations) {
  const double error = mean.standard_error();
  if (std::isfinite(error)) return mean.mean() - deviations * error;
  return mean.mean() - kDriftDeviations * std::sqrt(std::fabs(mean.mean()) / mean.count());
}

v1::Verdict Found(v1::Level level, v1::Strength strength, std::string title,
                  std::string explanation) {
  FindingBuilder found(level, strength);
  found.Title(std::move(title)).Explain(std::move(explanation));
  if (strength == v1::STRENGTH_STATISTICAL) {
    found.FalseAlarm("probability", kBiasChance);
  }
  return found.Take();
}

void Measure(v1::Finding& f, const char* name, double value, const char* unit, double threshold,
             const char* source) {
  f.mutable_measured()->set_name(name);
  f.mutable_measured()->set_value(value);
  f.mutable_measured()->set_unit(unit);
  f.mutable_threshold()->set_value(threshold);
  f.mutable_threshold()->set_source(source);
}

class LogitDriftRule : public DriftRule {
 public:
  explicit LogitDriftRule(const Options& /*options*/) {}

  void Judge(const SiteStep& step, VerdictSink& out) override {
    DriftRule::Judge(step, out);
    for (const Item& item : step.items) {
      if (!item.evidence->has_logits()) continue;
      LogitsSite& site = logits_[{step.site.layer(), step.site.op()}];
      site.drift.Take(item.evidence->logits(), step.step);
      if (site.drift.usable < site.next_look) continue;
      site.next_look = 2 * site.drift.usable;
      ReportLogits(step.site.layer(), step.site.op(), site, false, out);
    }
  }

  void JudgeRun(const RunSummary& run, VerdictSink& out) override {
    DriftRule::JudgeRun(run, out);
    for (auto& [key, site] : logits_) ReportLogits(key.first, key.second, site, true, out);
  }

  void Persist(Archive& archive) override {
    DriftRule::Persist(archive);
    archive.Version(2, 2);
    archive(logits_);
  }

 protected:
  v1::Verdict JudgeSite(const DriftSite& site) const override {
    v1::Verdict verdict = Size(site);
    if (verdict.kind() == v1::Verdict::KIND_FINDING) {
      v1::Finding& f = *verdict.mutable_finding();
      const DriftCause cause = site.Cause();
      f.set_explanation(absl::StrCat(f.explanation(), ". Cause: ", cause.words, "."));
      cause.Fill(f);
      if (f.fix().empty()) f.set_fix(kFixUnknown);
      f.set_sample_size(site.statistics.fresh.count());
      DrawDrift(site.statistics, f);
    }
    DescribeDrift(site.statistics, *verdict.mutable_details());
    AssumeDrift(site, verdict);
    return verdict;
  }

 private:
  struct LogitsSite {
    LogitDrift drift;
    LogitLooks looks;
    uint64_t next_look = 64;
    v1::Verdict kept;  // the finding of the worst look
    void Persist(Archive& a) { a(drift, looks, next_look, kept); }
  };

  static std::string Figures(const DriftMoments& m) {
    return absl::StrFormat("k3 %.2g, mean |d| %.2g over %d tokens; %s", m.k3(), m.mean_abs(),
                           m.count(), DriftContext(m.k3()));
  }

  static v1::Verdict Size(const DriftSite& site) {
    const DriftStatistics& s = site.statistics;
    const DriftMoments& m = s.fresh;
    if (s.judged == 0) {
      return Inconclusive(site.unreadable.empty()
                              ? "no-tokens: no token has log-probabilities of both sides"
                              : site.unreadable);
    }
    if (s.all().count() == 0)
      return Inconclusive("non-finite: no token has finite values on both sides");
    if (std::string copied = site.Copied(); !copied.empty()) return Inconclusive(copied);
    if (m.count() == 0) {
      return Inconclusive(
          "stale-only: no token has lag 0, so numerical errors and staleness cannot be "
          "distinguished");
    }
    const TemperatureMark mark = FindTemperature(s);
    if (mark.found()) return Biased(mark, m);
    const AdvantageBias rewarded = FindAdvantageBias(s);
    if (rewarded.found) return Rewarded(rewarded, m);
    // Tokens without a version may be stale, so the limit for them is twice as high.
    const double far = (s.with_lag > 0 ? 10 : 20) * kDriftWarning;
    const double worst = site.Course().largest_least;
    if ((worst > far || LowerBound(s.bounded_k3, kDriftDeviations) > far ||
         LowerBound(s.minus_d, kDriftDeviations) > far) &&
        !IsCut(site))
      return Far(m, far);
    const FirstTokensExcess first = s.first_tokens.Excess();
    if (first.found) return AtFirst(first, s, m);
    // If the record is true, -d estimates the same KL as k3, but with far more noise. So it needs a
    // higher confidence.
    if (LowerBound(s.bounded_k3, 2.326) > kDriftWarning || worst > kDriftWarning ||
        LowerBound(s.minus_d, kDriftDeviations) > kDriftWarning)
      return Noisy(v1::LEVEL_WARNING, m);
    if (m.count() < kFewCompared) {
      return Inconclusive(absl::StrFormat(
          "few-tokens: %d finite tokens of lag 0; the rule needs %d", m.count(), kFewCompared));
    }
    if (m.k3() > kDriftHealthy) return Noisy(v1::LEVEL_NOTE, m);
    return Pass(Figures(m));
  }

  // Returns true if only the engine excludes tokens (top-p, a grammar). Then both policies are the
  // same.
  static bool IsCut(const DriftSite& site) {
    return site.tests.record == RecordOutcome::kSupport ||
           LosesMass(site.statistics, kDriftDeviations) || site.Cause().id == "truncation";
  }

  static v1::Verdict Biased(const TemperatureMark& mark, const DriftMoments& m) {
    const double c = mark.fit.slope;
    const bool explains = mark.by_entropy || mark.fit.r2 >= kSignExplains;
    const bool large = explains && std::fabs(c) > kErrorSlope;
    v1::Verdict verdict =
        Found(large ? v1::LEVEL_ERROR : v1::LEVEL_WARNING, v1::STRENGTH_STATISTICAL,
              "the trainer's probabilities are biased relative to the rollout's",
              absl::StrFormat("d changes with %s by %+.3g ± %.1g per nat; %s",
                              mark.by_entropy ? "log pi + H" : "log mu", c, mark.fit.standard_error,
                              Figures(m)));
    Measure(*verdict.mutable_finding(),
            mark.by_entropy ? "slope of d on log pi + H" : "slope of d on log mu", c, "nat per nat",
            large ? kErrorSlope : 0, "no bias; error above 0.1");
    return verdict;
  }

  static v1::Verdict Rewarded(const AdvantageBias& bias, const DriftMoments& m) {
    v1::Verdict verdict = Found(
        v1::LEVEL_WARNING, v1::STRENGTH_STATISTICAL, "the two sides differ in rewarded tokens",
        absl::StrFormat("d changes by %+.2g per standard deviation of the advantage; %s",
                        bias.per_deviation, Figures(m)));
    Measure(*verdict.mutable_finding(), "change of d with the advantage", bias.per_deviation,
            "nats per standard deviation", 1e-3, "the size of rounding errors");
    return verdict;
  }

  // Reports that the first tokens of responses differ most. If versions are not recorded, updates
  // inside sequences may have the same effect, unless only the first tokens differ.
  static v1::Verdict AtFirst(const FirstTokensExcess& first, const DriftStatistics& s,
                             const DriftMoments& m) {
    const bool named = s.with_lag > 0 || first.sharp;
    v1::Verdict verdict = Found(
        named ? v1::LEVEL_WARNING : v1::LEVEL_NOTE, v1::STRENGTH_STATISTICAL,
        "the first tokens of responses differ far more than later ones",
        absl::StrFormat("The mean of min(d^2, 1/4) is %.2g in the first %d tokens of responses, "
                        "%.2g in later tokens of equal probability; %s",
                        first.square, FirstTokens::kFirst, first.expected, Figures(m)));
    Measure(*verdict.mutable_finding(), "mean square of the first tokens over that of later ones",
            first.ratio(), "", 10, "ten times, by 5 standard errors over sequences");
    return verdict;
  }

  static v1::Verdict Noisy(v1::Level level, const DriftMoments& m) {
    v1::Verdict verdict = Found(level, v1::STRENGTH_HEURISTIC, "inference and training drift apart",
                                absl::StrCat(Figures(m), ". No slope and no advantage explain it"));
    const bool by_k3 = m.k3() >= m.k1();
    Measure(*verdict.mutable_finding(), by_k3 ? "mean k3" : "mean k1, an estimate of KL",
            by_k3 ? m.k3() : m.k1(), "nats",
            level == v1::LEVEL_NOTE ? kDriftHealthy : kDriftWarning,
            "customary; healthy FP8 rollouts reach 3e-3");
    return verdict;
  }

  static v1::Verdict Far(const DriftMoments& m, double limit) {
    v1::Verdict verdict = Found(
        v1::LEVEL_ERROR, v1::STRENGTH_STATISTICAL, "inference and training are different policies",
        absl::StrCat(Figures(m), ". No rounding and no healthy configuration reaches this size"));
    const bool by_k3 = m.k3() >= m.k1();
    Measure(*verdict.mutable_finding(), by_k3 ? "mean k3" : "mean k1, an estimate of KL",
            by_k3 ? m.k3() : m.k1(), "nats", limit,
            "ten times the customary limit, twenty without versions, by 5 standard errors");
    return verdict;
  }

  // `worst`: mean KL of the worst look.
  static v1::Verdict JudgeLogits(const LogitDrift& d, double worst) {
    if (d.usable == 0) {
      return Inconclusive(absl::StrFormat(
          "no-usable-row: none of %d rows has finite values and a common support", d.rows));
    }
    const double mean = std::max(d.mean_kl_train_rollout(), d.mean_kl_rollout_train());
    const double kl = mean <= worst ? worst : mean;  // NaN stays
    const std::string figures = absl::StrFormat(
        "KL is %.2g and %.2g nats per row over %d rows; the most likely token differs in a share "
        "of %.2g",
        d.mean_kl_train_rollout(), d.mean_kl_rollout_train(), d.usable, d.top1_disagreement());
    v1::Verdict verdict;
    if (d.biased()) {
      const double c = d.temperature_slope();
      const bool large = std::fabs(c) > kErrorSlope;
      verdict = Found(large ? v1::LEVEL_ERROR : v1::LEVEL_WARNING, v1::STRENGTH_STATISTICAL,
                      "the trainer's logits are scaled relative to the rollout's",
                      absl::StrFormat("The trainer's logits are %.4g times the rollout's: a "
                                      "temperature of %.4g. %s.",
                                      d.slope.mean, 1 - c, Capitalised(figures)));
      Measure(*verdict.mutable_finding(), "temperature minus 1", -c, "", large ? kErrorSlope : 0,
              "no bias; error above 0.1");
      verdict.mutable_finding()->mutable_cause()->set_id("temperature");
      verdict.mutable_finding()->mutable_cause()->set_confidence(1);
      verdict.mutable_finding()->set_fix(
          "Divide both sides' logits by the sampler's temperature, in fp32.");
    } else if (!(kl <= kDriftHealthy)) {
      const bool warn = !(kl <= kDriftWarning);
      verdict = Found(warn ? v1::LEVEL_WARNING : v1::LEVEL_NOTE, v1::STRENGTH_HEURISTIC,
                      "inference and training logits drift apart", Capitalised(figures) + ".");
      Measure(*verdict.mutable_finding(), "mean KL of the worst look, the larger direction", kl,
              "nats", warn ? kDriftWarning : kDriftHealthy,
              "customary; healthy FP8 rollouts reach 3e-3");
      const bool masked = !std::isfinite(kl) && d.support_differs > 0;
      const bool rounded = !masked && d.rounded();
      v1::Finding& f = *verdict.mutable_finding();
      f.mutable_cause()->set_id(masked ? "truncation" : rounded ? "rounded-logits" : "unknown");
      f.mutable_cause()->set_confidence(masked ? 1 : rounded ? 0.85 : 0);
      f.set_fix(
          masked ? "Apply the sampler's top-p and top-k mask on both sides, or on neither."
          : rounded
              ? "Compute logits in fp32 on both sides: they differ only by rounding to 16 bits."
              : "Record log-probabilities with versions and entropies: they distinguish the "
                "causes.");
    } else {
      return Pass(figures);
    }
    v1::Finding& f = *verdict.mutable_finding();
    f.set_sample_size(d.usable);
    if (!d.worst.empty()) Put(*f.mutable_witness(), "worst_row", d.worst);
    return verdict;
  }

  static void ReportLogits(const std::string& layer, const std::string& op, LogitsSite& site,
                           bool last, VerdictSink& out) {
    site.looks.Take(site.drift);
    v1::Verdict verdict = JudgeLogits(site.drift, site.looks.worst());
    site.drift.Describe(*verdict.mutable_details());
    SetPlace(verdict, layer, op, site.drift.step_first, site.drift.step_last, std::set<uint32_t>());
    const bool changed = verdict.kind() == v1::Verdict::KIND_FINDING && Keep(verdict, site.kept);
    const bool any = site.kept.kind() == v1::Verdict::KIND_FINDING;
    if (!any && last) out.Add(std::move(verdict));
    if (!any || (!changed && !last)) return;
    v1::Verdict report = site.kept;
    v1::Finding& f = *report.mutable_finding();
    f.set_explanation(f.explanation() + site.looks.Words());
    site.looks.Describe(*report.mutable_details());
    out.Add(std::move(report));
  }

  std::map<std::pair<std::string, std::string>, LogitsSite> logits_;
};

}  // namespace

CatalogueEntry logit_drift() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<LogitDriftRule>(options);
          }};
}

}  // namespace plumbline::rules
