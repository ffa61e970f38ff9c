#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/drift/drift.h"
#include "analysis/frame/frame.h"
#include "rules/bases/drift_rule.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# drift/staleness

Most of the drift comes from tokens that older weights drew.

**Why.** An update of 3e-2 on each logit, eight versions ago, has k2 of 4e-3 where numerics alone have 3e-4: then
asynchrony causes nine tenths of the drift, the lag limits it, and it is not necessary to look for a faulty kernel.

**Bad.** `at the median lag of 4 versions staleness adds 2.1e-3 to k2, numerics are 3.2e-4`.

**Good.** `at the median lag of 1 staleness adds 4e-5 to k2, numerics are 3.2e-4`.

**How to fix it.** Nothing, if the algorithm corrects for it (importance ratios of the version that drew the token,
clipped). Otherwise bound the lag, or update the engine more often.

**What it checks.** Which part of d = log π − log μ the updates made since a token was drawn. By the best evidence
that the record has:
- *A third forward pass* (`behaviour_logprobs`: the trainer's own, at the version v that drew the token):
  d = [log π − log π_v] + [log π_v − log μ]. The halves of the mean squares of both parts over stale tokens, each with
  its 99 % interval; what the trainer differs from itself at lag 0 is taken off the first. A finding where the first
  exceeds the second, by the lower end of a 99 % interval (a sequence is one observation, here and below).
- *The version lag* (optimizer updates between the weights that drew a token and those that train on it): half the
  mean square of d is k2 = a at lag 0, a + b·lag + c·lag² above, b and c not negative, a from the tokens of lag 0
  alone. A finding where b·lag + c·lag² exceeds a at the median lag of the stale tokens. Versions are per token: a
  sequence that was under way during an update has several.
- *Updates in flight*: k2 of up to 16 tokens right before a change of version inside a sequence and right after it.
  The fall between them came from age, what is left after it is at least numerics: a finding where the fall exceeds
  what is left. This needs no token of lag 0. If both this and the lag are evidence, each gets half of the probability.

**Strength.** `statistical`, 99 % by sequences, a note.

**Inconclusive when** neither a lag nor a third pass is recorded (`no-lag`), no token has lag 0 and no sequence saw an update
(then a cannot be distinguished from the rest: `no-fresh-tokens`), none is stale (`no-stale-tokens`), fewer than 8 sequences have
what is needed (`few-sequences`), the record is not true (`record-invalid`, `supports-differ`),
both columns are the same numbers (`same-numbers`), or the sides redacted their ids under different keys (`keys-differ`).

**What it cannot see.** Staleness and sharpening of one lag only; the exponent of lag is printed and nothing is inferred from
it: independent updates give 1, one push or momentum 2. Sequences drawn by the same weights share their change, so with few
versions the interval describes only those versions. Without a third pass, drift that falls by half within 16
tokens for another reason than new weights.

**Cost.** Eight sums a token, six more with a third pass.

**Sources.** Espeholt et al., "IMPALA", 2018; Fu et al., "AReaL", 2025, on staleness in asynchronous training.
)page";

constexpr RuleInfo kInfo = {"drift/staleness",
                            "most of the drift comes from older weights",
                            v1::LEVEL_NOTE,
                            "0.1.0",
                            kPage,
                            {}};

constexpr double kDeviations = 2.576;  // 99 % confidence, two-sided

class Staleness : public DriftRule {
 public:
  explicit Staleness(const Options& /*options*/) {}

 protected:
  // The course is that of lag-0 tokens.
  bool follows_course() const override { return false; }
  v1::Verdict JudgeSite(const DriftSite& site) const override {
    v1::Verdict verdict = Judged(site);
    if (site.statistics.split.Fit().judged) {  // this test needs no versions
      AssumeHalves(site, verdict);
    } else {
      AssumeDrift(site, verdict);
    }
    return verdict;
  }

 private:
  using By = StalenessMark::By;

  static v1::Verdict Judged(const DriftSite& site) {
    const DriftStatistics& s = site.statistics;
    if (const std::string doubt = site.RecordDoubt(); !doubt.empty()) return Inconclusive(doubt);
    const StalenessMark mark = FindStaleness(s);
    if (mark.by == By::kNothing) return Inconclusive(Missing(s, mark));
    const std::string words = Words(mark);
    v1::Verdict verdict = mark.found ? Found(site, mark, words) : Pass(words);
    google::protobuf::Struct& details = *verdict.mutable_details();
    if (mark.split.judged) DescribeSplit(mark.split, details);
    if (mark.lag.fitted) DescribeLag(s, mark, details);
    if (mark.jumps.judged) DescribeJumps(mark.jumps, details);
    Assume(mark, verdict);
    return verdict;
  }

  static std::string Missing(const DriftStatistics& s, const StalenessMark& mark) {
    if (s.with_lag == 0) {
      return s.with_behaviour == 0
                 ? "no-lag: no weight version is recorded"
                 : absl::StrFormat("few-sequences: %d have a third pass; the rule needs %d",
                                   mark.split.sequences, kFewestClusters);
    }
    if (mark.lag.zero_count == 0)
      return "no-fresh-tokens: no token has lag 0, so numerical errors cannot be distinguished "
             "from staleness";
    if (mark.lag.stale_count == 0) return "no-stale-tokens: all tokens have lag 0";
    return absl::StrFormat("few-sequences: %d have lags; the rule needs %d", mark.lag.sequences,
                           kFewestClusters);
  }

  static std::string Words(const StalenessMark& mark) {
    if (mark.by == By::kSplit) {
      const SplitFit& split = mark.split;
      return absl::StrFormat(
          "Since the stale tokens were sampled, the trainer changed by k2 = %.2g ± %.1g. At that "
          "time it differed from the engine by %.2g ± %.1g",
          split.staleness, kDeviations * split.staleness_error, split.numerics,
          kDeviations * split.numerics_error);
    }
    if (mark.by == By::kJumps) {
      const JumpFit& jumps = mark.jumps;
      return absl::StrFormat(
          "When new weights arrive inside a sequence, k2 falls by %.2g ± %.1g, from %.2g to %.2g",
          jumps.fall, kDeviations * jumps.fall_error, jumps.before, jumps.after);
    }
    return absl::StrFormat(
        "At the median lag of %g version%s staleness adds %.2g to k2; numerical errors add %.2g",
        mark.median_lag, mark.median_lag == 1 ? "" : "s", mark.lag.stale_part, mark.lag.at_zero);
  }

  // The two values that the finding compares.
  struct Figures {
    const char* measured;
    double value, threshold;
    const char* source;
    double samples;
  };
  static Figures FiguresOf(const StalenessMark& mark) {
    switch (mark.by) {
      case By::kSplit:
        return {"k2 between the trainer and itself at the versions of the tokens",
                mark.split.staleness, mark.split.numerics,
                "k2 between the trainer and the engine at those versions", mark.split.stale_count};
      case By::kJumps:
        return {"fall of k2 when new weights arrive inside a sequence", mark.jumps.fall,
                mark.jumps.after, "k2 right after", mark.jumps.boundaries};
      default:
        return {"k2 that staleness adds at the median lag", mark.lag.stale_part, mark.lag.at_zero,
                "k2 of tokens of lag 0", mark.lag.zero_count + mark.lag.stale_count};
    }
  }

  static v1::Verdict Found(const DriftSite& site, const StalenessMark& mark,
                           const std::string& words) {
    const DriftCause cause = site.Cause();
    const Figures figures = FiguresOf(mark);
    return DriftFinding(site, site.step_first, cause,
                        FindingBuilder(v1::LEVEL_NOTE, v1::STRENGTH_STATISTICAL)
                            .Title(kInfo.title)
                            .Explain(absl::StrCat(words, ". Cause: ", cause.words, "."))
                            .Measured(figures.measured, figures.value, "nats")
                            .Threshold(figures.threshold, figures.source),
                        {"probability", 0.005}, static_cast<uint64_t>(figures.samples));
  }

  static void Assume(const StalenessMark& mark, v1::Verdict& verdict) {
    if (mark.by == By::kSplit)
      verdict.add_assumptions("behaviour values belong to the version that sampled each token");
    if (mark.by == By::kSplit && mark.split.fresh_count == 0)
      verdict.add_assumptions("the trainer agrees with itself at one version");
    if (mark.by == By::kJumps)
      verdict.add_assumptions(
          "within 16 tokens of an update drift changes only by the age of the weights");
  }

  static void DescribeSplit(const SplitFit& split, google::protobuf::Struct& details) {
    Put(details, "k2_staleness", split.staleness);
    Put(details, "k2_staleness_error", split.staleness_error);
    Put(details, "k2_numerics", split.numerics);
    Put(details, "k2_numerics_error", split.numerics_error);
    Put(details, "k2_cross", split.cross);
    if (split.fresh_count > 0) Put(details, "k2_trainer_itself", split.own);
    Put(details, "split_tokens", split.stale_count);
  }

  static void DescribeLag(const DriftStatistics& s, const StalenessMark& mark,
                          google::protobuf::Struct& details) {
    const LagFit& fit = mark.lag;
    Put(details, "k2_at_lag_0", fit.at_zero);
    Put(details, "k2_per_lag", fit.linear);
    Put(details, "k2_per_lag_squared", fit.quadratic);
    Put(details, "median_lag", mark.median_lag);
    Put(details, "stale_part", fit.stale_part);
    Put(details, "excess_standard_error", fit.excess_error);
    const double exponent = s.strata.LagExponent();
    if (!std::isnan(exponent)) Put(details, "lag_exponent", exponent);
    Put(details, "tokens_at_lag_0", fit.zero_count);
    Put(details, "stale_tokens", fit.stale_count);
  }

  static void DescribeJumps(const JumpFit& jumps, google::protobuf::Struct& details) {
    Put(details, "updates_in_flight", jumps.boundaries);
    Put(details, "k2_before_update", jumps.before);
    Put(details, "k2_after_update", jumps.after);
    Put(details, "k2_fall_error", jumps.fall_error);
    Put(details, "lag_before_update", jumps.lag_before);
    Put(details, "lag_after_update", jumps.lag_after);
  }
};

}  // namespace

CatalogueEntry staleness() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<Staleness>(options);
          }};
}

}  // namespace plumbline::rules
