#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "rules/catalogue.h"
#include "rules/lib/drift_details.h"
#include "rules/lib/drift_rule.h"
#include "rules/lib/verdicts.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# drift/staleness

Most of the drift comes from tokens that older weights drew.

**What it checks.** Half the mean square of d, k2, as a function of the version lag (optimizer updates between the
weights that drew a token and those that train on it): k2 = a at lag 0, a + b·lag + c·lag² above, b and c not
negative, a from the tokens of lag 0 alone. A finding where b·lag + c·lag² exceeds a at the median lag of the stale
tokens, by the lower end of a 99 % interval (a sequence is one observation). Versions are per token: a sequence that
was under way during an update has several.

**Why.** An update of 3e-2 on each logit, eight versions ago, has k2 of 4e-3 where numerics alone have 3e-4: nine
tenths of the drift is then the price of asynchrony, bounded by the lag, and no kernel needs to be hunted.

**Bad.** `at the median lag of 4 versions staleness adds 2.1e-3 to k2, numerics are 3.2e-4`.

**Good.** `at the median lag of 1 staleness adds 4e-5 to k2, numerics are 3.2e-4`.

**How to fix it.** Nothing, if the algorithm corrects for it (importance ratios of the version that drew the token,
clipped). Otherwise bound the lag, or update the engine more often.

**Strength.** `statistical`, 99 % by sequences, a note.

**Inconclusive when** no lag is recorded, no token has lag 0 (then a cannot be told from the rest), none is stale,
fewer than 8 sequences have lags, or the record is not true.

**What it cannot see.** Staleness and sharpening of one lag only; the exponent of lag is printed and nothing is inferred from
it: independent updates give 1, one push or momentum 2. Sequences drawn by the same weights share their change, so that over
few versions the interval speaks of those versions alone.

**Cost.** Eight sums a token.

**Sources.** Espeholt et al., "IMPALA", 2018; Fu et al., "AReaL", 2025, on staleness in asynchronous training.
)page";

constexpr RuleInfo kInfo = {"drift/staleness",
                            "most of the drift comes from older weights",
                            v1::LEVEL_NOTE,
                            RuleStatus::kBuilt,
                            "0.1.0",
                            kPage,
                            {}};

constexpr double kDeviations = 2.576;  // 99 %

class Staleness : public DriftRule {
 public:
  explicit Staleness(const Options& /*options*/) {}

 protected:
  v1::Verdict JudgeSite(const DriftSite& site) const override {
    v1::Verdict verdict = Judged(site);
    AssumeDrift(site, verdict);
    return verdict;
  }

 private:
  static v1::Verdict Judged(const DriftSite& site) {
    const DriftStatistics& s = site.statistics;
    if (const std::string doubt = site.RecordDoubt(); !doubt.empty()) return Inconclusive(doubt);
    if (s.with_lag == 0) return Inconclusive("no-lag: no weight version is recorded");
    const double median = s.strata.MedianStaleLag();
    const LagFit fit = s.by_lag.Fit(median);
    if (fit.zero_count == 0) {
      return Inconclusive(
          "no-fresh-tokens: none has lag 0, and numerics cannot be told from staleness");
    }
    if (fit.stale_count == 0) return Inconclusive("no-stale-tokens: all have lag 0");
    if (fit.sequences < kFewestClusters) {
      return Inconclusive(absl::StrFormat("few-sequences: %d with lags, of %d needed",
                                          fit.sequences, kFewestClusters));
    }
    const std::string words = absl::StrFormat(
        "At the median lag of %g version%s staleness adds %.2g to k2, numerics are %.2g", median,
        median == 1 ? "" : "s", fit.stale_part, fit.at_zero);
    v1::Verdict verdict =
        fit.excess > kDeviations * fit.excess_error ? Found(site, fit, words) : Pass(words);
    Describe(s, fit, median, *verdict.mutable_details());
    return verdict;
  }

  static v1::Verdict Found(const DriftSite& site, const LagFit& fit, const std::string& words) {
    v1::Verdict verdict;
    verdict.set_kind(v1::Verdict::KIND_FINDING);
    v1::Finding& f = *verdict.mutable_finding();
    f.set_level(v1::LEVEL_NOTE);
    f.set_strength(v1::STRENGTH_STATISTICAL);
    f.set_title(kInfo.title);
    const DriftCause cause = site.Cause();
    f.set_explanation(absl::StrCat(words, ". Cause: ", cause.words, "."));
    f.mutable_measured()->set_name("k2 that staleness adds at the median lag");
    f.mutable_measured()->set_value(fit.stale_part);
    f.mutable_measured()->set_unit("nats");
    f.mutable_threshold()->set_value(fit.at_zero);
    f.mutable_threshold()->set_source("k2 of tokens of lag 0");
    f.mutable_false_alarm()->set_kind("probability");
    f.mutable_false_alarm()->set_value(0.005);
    f.set_sample_size(static_cast<uint64_t>(fit.zero_count + fit.stale_count));
    cause.Fill(f);
    return verdict;
  }

  static void Describe(const DriftStatistics& s, const LagFit& fit, double median,
                       google::protobuf::Struct& details) {
    Put(details, "k2_at_lag_0", fit.at_zero);
    Put(details, "k2_per_lag", fit.linear);
    Put(details, "k2_per_lag_squared", fit.quadratic);
    Put(details, "median_lag", median);
    Put(details, "stale_part", fit.stale_part);
    Put(details, "excess_standard_error", fit.excess_error);
    const double exponent = s.strata.LagExponent();
    if (!std::isnan(exponent)) Put(details, "lag_exponent", exponent);
    Put(details, "tokens_at_lag_0", fit.zero_count);
    Put(details, "stale_tokens", fit.stale_count);
  }
};

}  // namespace

CatalogueEntry staleness() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<Staleness>(options);
          }};
}

}  // namespace plumbline::rules
