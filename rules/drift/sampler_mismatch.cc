#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/drift/drift.h"
#include "analysis/frame/frame.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# drift/sampler-mismatch

The sampler is not what the record claims: tokens are likelier, or less likely, than their own distribution has them.

**Why.** If both sides log raw log-probabilities while the engine samples at temperature 0.7, the log looks perfect: ln pi - ln mu
is 0 to rounding, k3 is 0, and every importance ratio is 1. But the policy that explores is not the one that is learnt: at T = 0.7
a token of probability 0.05 is drawn 0.014 of the time, 3.6 times too seldom, and no weight corrects this.

**Bad.** `-ln mu - H is -0.31 nats on average over 4,096 tokens: drawn as if at temperature 0.71; ln wealth 84`.

**Good.** Mean surprise and mean entropy agree within their noise, at any temperature, when what is logged is what
was drawn from.

**How to fix it.** Sample at temperature 1 with top_p = 1 and top_k off; or log processed log-probabilities (vLLM
`logprobs_mode=processed_logprobs`) and let the trainer divide its logits by the same temperature.

**What it checks.** The surprise -ln mu of a token drawn from mu is its entropy H on average, whatever mu is. So
x = -ln mu - H sums to nothing but noise. Where the sum leaves the noise, the tokens were drawn from something else.
The best of these that the record has columns for is used:
- *Full logits*: the exact law of x is known; bets on ±theta x, theta = 1/2 .. 1/128, may be evaluated at any time.
- *The rollout's entropy and varentropy*: bets of second order, whose mean these two columns give exactly.
- *The rollout's entropy alone*, or *the trainer's entropy*: Student's t over sequences of x, or of
  rho (-ln pi - H_pi), whose mean is 0 under any true record, drifted or not. Approximate; one look, at the run's end.

All of it is done for all tokens together and for parts of them, within the same chance of a false alarm: each
worker's, each weight version's, even and odd steps'. Workers at 0.85 and 1.15 cancel when they are taken together, and
one of four at 0.9 is hardly seen in 12,000 tokens; by itself it is (`part` names it), with a vocabulary of thousands in all
simulated runs, with one of 64 tokens in 7 of 10, where the best test of all finds 8.

**Strength.** `statistical`, at this site's share of one in a million; exact for logits and for bets of second order. A
warning where the test is approximate. `proved`, an error, if the record declares a temperature other than 1 (and not 0)
together with raw values: the ratios then use a distribution that was not sampled, and no statistics are needed.

**Inconclusive when** no entropy is recorded on either side (`no-entropy`); values are missing for rare tokens, as
the other side's values of these show, or for more than 0.1 % of the tokens on both sides (`missing-by-token`); the test
fails without masked tokens that hold values of both sides and not with them (`mask-follows-ratio`); only the trainer's is and the record is processed with
top-p or top-k (the trainer's support is another: `truncated-support`); sequences were `filtered` without a kept_share, or
values `rescored`; no token has a finite value and entropy (`non-finite`); fewer than 1,000 tokens (`few-tokens`), or 50
sequences for the approximate tests (`few-sequences`); the sides redacted their ids under different keys (`keys-differ`); or
`drift/record-invalid` fires (`record-invalid`): then the record cannot be used.

**What it cannot see.** A sampler whose wrong distribution has the entropy of the claimed one in cross-entropy; entropies
that were computed from the wrong distribution as well; penalties for repetition, unless they shift the mean surprise.

**Cost.** 0.3 microseconds a token with the rollout's columns, less without.

**Sources.** Ville 1939; Howard et al., "Time-uniform Chernoff bounds via nonnegative supermartingales", 2020.
)page";

constexpr RuleInfo kInfo = {"drift/sampler-mismatch",
                            "the sampler differs from the record",
                            v1::LEVEL_ERROR,
                            "0.1.0",
                            kPage,
                            {},
                            kSamplerAlphaWeight};

constexpr char kFix[] =
    "Sample at temperature 1 without top-p and top-k. Or log the processed log-probabilities, and "
    "divide the trainer's logits by the same temperature.";
constexpr uint64_t kFewSampled = 1000;

using By = SamplerTest::By;

// A site and its state, for either kind of evidence.
struct SamplerSubject {
  const DriftRun::Key& key;
  const SamplerTest& test;
  const RecordTest& record;
  bool rows;
  int64_t step_first, step_last;
  const std::set<uint32_t>& ranks;
  const DriftSite* drift;  // null for rows

  bool record_failed() const {
    if (drift == nullptr) return record.alarmed_up() || record.alarmed_down();
    return drift->RecordAlarmedUp() || drift->RecordAlarmedDown();
  }
  SamplerSide Alarm(bool last) const {
    if (drift != nullptr) return drift->SamplerAlarm(last);
    return test.alarmed() == SamplerSide::kNone && last ? test.FinalLook() : test.alarmed();
  }
};

const char* Words(By by) {
  switch (by) {
    case By::kLogits:
      return "full-logits";
    case By::kRollout:
      return "rollout-entropy-varentropy";
    case By::kRolloutEntropy:
      return "rollout-entropy";
    case By::kTrainer:
      return "train-entropy";
    case By::kNothing:
      break;
  }
  return "nothing";
}

bool Approximate(By by) { return by == By::kRolloutEntropy || by == By::kTrainer; }

class SamplerMismatch : public Rule {
 public:
  explicit SamplerMismatch(const Options& /*options*/) {}

  void Judge(const SiteStep& step, VerdictSink& out) override { Look(run_.Take(step), out); }

  void JudgeRun(const RunSummary& summary, VerdictSink& out) override {
    DriftRun& run = run_.Finish(summary);
    Look(run, out);
    ForEach(run, [&](const SamplerSubject& s) {
      const bool reported = reported_.contains({s.key, s.rows});
      const SamplerSide side = s.Alarm(true);
      if (reported) return;
      const bool found = side != SamplerSide::kNone && !s.record_failed();
      out.Add(found ? Found(s, side) : Complete(s, Outcome(s)));
    });
  }

  void Persist(Archive& archive) override {
    archive.Version(1);
    archive(run_, reported_);
  }

 private:
  template <typename Visit>
  static void ForEach(DriftRun& run, const Visit& visit) {
    for (const auto& [key, site] : run.sites()) {
      visit(SamplerSubject{key, site.sampler, site.record, false, site.step_first, site.step_last,
                           site.ranks, &site});
    }
    for (const auto& [key, site] : run.logit_sites()) {
      visit(SamplerSubject{key, site.sampler, site.record, true, site.step_first, site.step_last,
                           site.ranks, nullptr});
    }
  }

  void Look(DriftRun& run, VerdictSink& out) {
    ForEach(run, [&](const SamplerSubject& s) {
      const auto first = [&] { return reported_.insert({s.key, s.rows}).second; };
      if (Contradicts(s) && first()) out.Add(Declared(s));
      const SamplerSide side = s.Alarm(false);
      if (side == SamplerSide::kNone || s.record_failed()) return;
      if (first()) out.Add(Found(s, side));
    });
  }

  // Returns true if the record declares a temperature other than 1, but log-probabilities at
  // temperature 1. Greedy sampling (0) has no distribution to log.
  static bool Contradicts(const SamplerSubject& s) {
    if (s.drift == nullptr || s.drift->statistics.judged == 0) return false;
    const DriftDeclared& declared = s.drift->statistics.declared;
    return declared.mode == v1::LOGPROB_MODE_RAW && declared.heats && declared.temperature != 0;
  }

  static v1::Verdict Declared(const SamplerSubject& s) {
    const double temperature = s.drift->statistics.declared.temperature;
    const std::string at = std::isfinite(temperature) ? absl::StrFormat("%g", temperature)
                                                      : "other than 1 in some sequences";
    FindingBuilder found(v1::LEVEL_ERROR, v1::STRENGTH_PROVED);
    found.Title("the logged probabilities are not those of the sampler")
        .Explain(absl::StrCat(
            "The record declares that tokens are sampled at a temperature of ", at,
            ", and that the rollout's log-probabilities are raw, of temperature 1. Ratios to them "
            "use a distribution that was not sampled. No statistics are needed."))
        .Cause(kByDeclaredHeat.cause, 0.95)
        .Measured("declared temperature", temperature, "")
        .Threshold(1, "the temperature of raw log-probabilities")
        .Fix(kFix)
        .Samples(s.drift->statistics.judged)
        .Assume("temperature and logprob_mode of the record are correct")
        .Witness("temperature", at)
        .Witness("logprob_mode", "raw_logprobs");
    return Complete(s, found.Take());
  }

  static v1::Verdict Found(const SamplerSubject& s, SamplerSide side) {
    const SamplerTest& test = s.test;
    const bool approximate = Approximate(test.by());
    const bool below = side == SamplerSide::kBelow;
    const double value = approximate ? -std::log(test.p_value()) : test.log_wealth();
    const SamplerTest::Leader leader = test.leader();
    std::string text = absl::StrFormat(
        "-ln p - H of the sampled tokens is %+.4g nats on average over %d tokens%s. Samples from "
        "the logged distribution average 0, so the tokens are too %s.",
        leader.mean, leader.tokens, leader.name.pool() ? "" : " of " + leader.name.Words(),
        below ? "likely" : "unlikely");
    if (std::isfinite(leader.temperature))
      absl::StrAppend(&text,
                      absl::StrFormat(" They seem to be sampled at a temperature of about %.2f%s.",
                                      leader.temperature,
                                      below ? ", or with a truncated tail (top-p, top-k)" : ""));
    if (test.declared())
      absl::StrAppend(&text, " The record declares this temperature, but logs raw values.");
    FindingBuilder found(approximate || test.declared() ? v1::LEVEL_WARNING : v1::LEVEL_ERROR,
                         v1::STRENGTH_STATISTICAL);
    found
        .Title(below ? "tokens are sampled more sharply than the record states"
                     : "tokens are sampled more flatly than the record states")
        .Explain(std::move(text))
        .Cause("unknown", 0)
        .Measured(approximate ? "-ln p-value" : "ln wealth", value, "nats")
        .Threshold(-std::log(test.alpha()), "ln 1/alpha of this site")
        .Fix(kFix);
    Name(s, below, found.finding());
    if (s.drift != nullptr) DrawDrift(s.drift->statistics, found.finding());
    found.Samples(test.tokens()).FalseAlarm("probability", test.alpha());
    if (approximate) {
      found.Assume(absl::StrFormat(
          "approximate: sums over %d sequences are treated as nearly normal", leader.groups));
    }
    if (!leader.name.pool()) Put(*found.verdict().mutable_details(), "part", leader.name.Words());
    return Complete(s, found.Take());
  }

  // Writes the cause. For log-probabilities, it is the cause of the whole run's drift. For rows of
  // logits, only this test exists: a sampler flatter than logged has a temperature above 1. A
  // sharper one has a temperature below 1 or a truncated tail, so its cause is unknown unless
  // declared.
  static void Name(const SamplerSubject& s, bool below, v1::Finding& f) {
    if (s.drift != nullptr) {
      s.drift->Cause().Fill(f);
      return;
    }
    const bool stated = s.test.declared() && s.test.declared_temperature() != 1;
    const bool named = !below || stated;
    f.mutable_cause()->set_id(named ? "temperature" : "unknown");
    f.mutable_cause()->set_confidence(named ? .9 : 0);
  }

  static v1::Verdict Outcome(const SamplerSubject& s) {
    const SamplerTest& test = s.test;
    const auto out = [&](SamplerTest::Entry reason) { return test.left_out(reason); };
    if (s.record_failed()) {
      return Inconclusive(
          "record-invalid: the logged probabilities are not those that were sampled, so the "
          "sampler cannot be judged");
    }
    if (test.tokens() == 0 && test.cut() > 0) {
      return Inconclusive(
          "truncated-support: values are after top-p or top-k, or of a selection, and only the "
          "trainer's entropy is recorded");
    }
    if (test.tokens() == 0 && out(SamplerTest::Entry::kFiltered) > 0)
      return Inconclusive("filtered: sequences were dropped, and no kept_share is recorded");
    if (test.tokens() == 0 && out(SamplerTest::Entry::kRescored) > 0)
      return Inconclusive("rescored: the engine computed the values again");
    if (test.tokens() == 0 && test.non_finite() > 0)
      return Inconclusive("non-finite: no token has a finite value and entropy");
    if (test.tokens() == 0 && s.drift != nullptr && s.drift->keys_differ)
      return Inconclusive(s.drift->KeyDoubt());
    if (test.tokens() == 0) return Inconclusive("no-entropy: neither side's entropy is recorded");
    if (std::string doubt = s.drift == nullptr ? "" : s.drift->MaskDoubt(); !doubt.empty())
      return Inconclusive(doubt);
    if (test.missing().depend()) {
      return Inconclusive(
          absl::StrCat("missing-by-token: ", test.missing().Words(),
                       ", so the recorded tokens are sharper or flatter than the sampled ones"));
    }
    if (test.tokens() < kFewSampled) {
      return Inconclusive(absl::StrCat("few-tokens: ", test.tokens(),
                                       " tokens were used; the rule needs ", kFewSampled));
    }
    if (Approximate(test.by()) && test.groups() < ClusterSum::kFewest) {
      return Inconclusive(absl::StrCat("few-sequences: ", test.groups(),
                                       " sequences; the rule needs ", ClusterSum::kFewest,
                                       " for the approximate test"));
    }
    return Pass(absl::StrFormat(
        "-ln p - H is %+.4g nats on average over %d tokens, within the noise of correct samples",
        test.pool().mean, test.tokens()));
  }

  static v1::Verdict Complete(const SamplerSubject& s, v1::Verdict verdict) {
    SetPlace(verdict, s.key.first, s.key.second, s.step_first, s.step_last, s.ranks);
    Describe(s.test, *verdict.mutable_details());
    RestOn(Assumptions(s), verdict);
    return verdict;
  }

  static std::vector<std::string> Assumptions(const SamplerSubject& s) {
    std::vector<std::string> list;
    if (s.record.assumed_all())
      list.push_back("no sequence was dropped because of its content (selection is not recorded)");
    if (s.test.by() == By::kTrainer)
      list.push_back("the rollout's distribution can draw every token that the trainer's can");
    if (s.drift != nullptr && s.drift->statistics.copies > 0)
      list.push_back(CopiesAssumed(s.drift->statistics));
    if (s.test.non_finite() > 0 && !s.test.missing().depend())
      list.push_back("whether a value is missing does not depend on the token drawn");
    return list;
  }

  static void Describe(const SamplerTest& test, google::protobuf::Struct& d) {
    const auto count = [&](const char* name, uint64_t value) {
      if (value > 0) Put(d, name, static_cast<double>(value));
    };
    Put(d, "tokens", static_cast<double>(test.tokens()));
    Put(d, "test", Words(test.by()));
    count("non_finite", test.non_finite());
    count("tokens_of_cut_support", test.cut());
    count("later_epoch_sequences", test.left_out(SamplerTest::Entry::kLaterEpoch));
    count("copied_sequences", test.left_out(SamplerTest::Entry::kCopy));
    count("filtered_sequences", test.left_out(SamplerTest::Entry::kFiltered));
    count("rescored_sequences", test.left_out(SamplerTest::Entry::kRescored));
    if (test.tokens() == 0) return;
    const SamplerTest::Leader pool = test.pool();
    Put(d, "mean_excess_surprise", pool.mean);
    if (std::isfinite(pool.temperature)) Put(d, "temperature", pool.temperature);
    if (Approximate(test.by())) {
      Put(d, "sequences", static_cast<double>(test.groups()));
      Put(d, "p_value", test.p_value());
    } else {
      Put(d, "ln_wealth", test.log_wealth());
    }
    Put(d, "ln_alarm", -std::log(test.alpha()));
  }

  SharedDriftRun run_;
  std::set<std::pair<DriftRun::Key, bool>> reported_;
};

}  // namespace

CatalogueEntry sampler_mismatch() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<SamplerMismatch>(options);
          }};
}

}  // namespace plumbline::rules
