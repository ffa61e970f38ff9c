#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/drift/drift.h"
#include "analysis/frame/frame.h"
#include "rules/bases/drift_rule.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# drift/record-invalid

What was logged is not what was sampled.

**Why.** Policy-gradient ratios divide by mu. With the engine at temperature 0.9 and raw log-probabilities
logged, the importance weights are wrong by 10 % on average for a token with -ln mu = 1, and by 40 % for a token with
-ln mu = 5. In every update this acts as a bonus for unlikely tokens. No k3 or KL threshold distinguishes this from
staleness; this test does, within 2,000 tokens.

**Bad.** `mean pi/mu 1.19 over 2,048 tokens where a true record gives at most 1; ln wealth 61, alarm at 24`.

**Good.** A trainer eight versions ahead, fp8 rollouts, router flips: ratios far from 1, their mean not above it.

**How to fix it.** Log what the sampler drew from (vLLM `logprobs_mode=processed_logprobs`, SGLang's `return_logprob` after temperature), or sample
at T = 1 and top_p = 1; log token ids, never text that is tokenised again; check the shift by one between logits and labels; write no placeholder zeros.

**What it checks.** The rollout's record states: this token was drawn with probability mu. If that is so, the
ratio rho = pi/mu to *any* other distribution pi, however stale, noisy or different, has a mean of at most 1
given the prefix: it sums pi over what mu can draw. Two bets are placed against the record, token by token:
- *Upward*: the product of 1 + lambda (rho - 1), mixed over lambda = 1 .. 1/256. Under a true record wealth of
  1/alpha is reached with probability alpha at most, at whatever time one looks.
- *Downward*: the product of max(0, 1 + lambda (1 - rho)) over what its mean may be at most, lambda = 1 .. 1/64:
  a mean of rho below 1. It needs a declared bound kappa on the mean square, under the trainer, of d = ln rho where
  that is above 0; the measured mean of rho d^2 over those must stay below it. With full logits the exact means are
  divided by and kappa is not used.

Both are kept for all tokens together and for parts of them: each worker's, each weight version's, even and odd steps'.
The rule checks the sum of the wealths, each times its share (one half for all, 1/8 for the first worker, 1/24 for the
second, ...; `analysis/rollout/slices.h`), so that the chance of a false alarm stays what it is. A worker that is wrong
alone is named (`part`). At the end of the run the finding states the worst and the newest steps' k3, and the step in which the drift ended.

Rounding of the logged values is subtracted first: half a unit of bf16 or f16 where all of a side's values lie on that grid, or of the text's last
decimal. Masked tokens do not enter, but a loss that rejects tokens by their ratio
(IcePop, truncated importance sampling) masks after the draw. So where masked tokens hold values of both sides (no placeholders,
which are 0 or equal in neighbouring tokens, and not a masked start of a sequence, its prompt), the same test with them must fail too. A sequence of 16 tokens and 20 nats or
more that repeats another's ids and log mu bit for bit under another id is a copy (ranks that all log) and counts once. If
values are missing for other tokens than the recorded ones, as the trainer's values of these show, each counts as rho = 0. A value that is NaN or infinite is counted
apart, but log pi = -inf is rho = 0. Where the halves of a sequence name different token ids, that is a fact and
no bet. So is a turn of a conversation whose prompt (masked tokens, from the same position on) does not begin with
the ids that the turn before logged; ids that were only left out, as by templates that drop reasoning, are counted.

**Level.** An error; a warning where the record itself declares the top-p or top-k of what it logs, or where d is hardly
ever above 0 and the mass is missing evenly, as with a top-p of the engine alone: it is true then, and
the trainer's probabilities are over more tokens (*supports differ*, downward only). A warning too where a mean below 1 has no known cause and no top_p
is recorded: a top-p of the engine may be it. Declare `top_p = 1` if there is none.

**Strength.** Upward `statistical`: exact at this site's share of one in a million. For `rescored` values
`bounded`, as rho is divided by 1 + 2 rescore_k2. Downward `bounded`, by kappa; with full logits `statistical`.
Different token ids `proved`, in halves an error, in prompts of later turns a warning.

**Inconclusive when** sequences were `filtered` and kept_share is not recorded; values were `rescored` and rescore_k2
(the engine's distance from itself) is not recorded; all values are `non-finite`; a sequence's tensors are damaged
(`bad-tensor`); only one side is recorded (`one-half`); both columns are the same numbers
(`same-numbers`); fewer than 1,000 tokens (`few-tokens`); the test fails without the masked tokens and not with them
(`mask-follows-ratio`); values are missing for rare tokens, or for more than 0.1 % of the tokens on both sides, and the rest
does not fail (`missing-by-token`); for the downward side alone, when mean rho d^2 over d > 0 exceeds kappa (`downward` in the details); where nothing
joins (`nothing-joins`), or because the sides redacted their ids under different keys (`keys-differ`).

**What it cannot see.** A sampler that both sides misstate alike (`drift/sampler-mismatch`); 1 % of zeros in a large
vocabulary (33,000 tokens in a small one); engine values that were computed again and not declared: honest engines
alarm then after 10,000 to 100,000 tokens. Later epochs over the same tokens do not enter.

**Cost.** About 0.1 microseconds a token; of sequences the last 262,144 are remembered to know later epochs.

**Sources.** Ville 1939; Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", 2023; Schulman, "Approximating KL divergence", 2020.
)page";

constexpr OptionInfo kOptions[] = {
    {.name = "kappa",
     .type = OptionInfo::Type::kNumber,
     .unit = "nats^2",
     .default_value = "0.02",
     .reason = "four times the mean square of d of fp8 rollouts; E_pi[d^2; d > 0 | prefix] is "
               "assumed to be below",
     .low = 0,
     .high = 100},
};

constexpr RuleInfo kInfo = {"drift/record-invalid",
                            "the logged probabilities are not those that were sampled",
                            v1::LEVEL_ERROR,
                            "0.1.0",
                            kPage,
                            kOptions,
                            kRecordAlphaWeight};

constexpr char kFix[] =
    "Log the log-probabilities of the sampled distribution (processed, not raw), for the sampled "
    "token ids, from the pass that sampled them. Or sample at temperature 1.";
constexpr uint64_t kFewRecorded = 1000;

// A site and its state, for either kind of evidence.
struct RecordSubject {
  const DriftRun::Key& key;
  const RecordTest& test;
  bool rows;  // the evidence is rows of full logits
  int64_t step_first, step_last;
  const std::set<uint32_t>& ranks;
  std::string unreadable;
  RolloutJoinCounts halves;
  const DriftSite* drift;  // null for rows

  bool AlarmedUp() const { return drift == nullptr ? test.alarmed_up() : drift->RecordAlarmedUp(); }
  bool DownAlarm(double kappa) const {
    return drift == nullptr ? test.DownAlarm(kappa) : drift->RecordDownAlarm(kappa);
  }
};

class RecordInvalid : public Rule {
 public:
  explicit RecordInvalid(const Options& options) : kappa_(options.Number("kappa")) {}

  void Judge(const SiteStep& step, VerdictSink& out) override { Look(run_.Take(step), out); }

  void JudgeRun(const RunSummary& summary, VerdictSink& out) override {
    DriftRun& run = run_.Finish(summary);
    Look(run, out);
    ForEach(run, false, [&](const RecordSubject& s) {
      Reported& reported = reported_[{s.key, s.rows}];
      if (!reported.up && !reported.down && !reported.ids && !reported.turns)
        out.Add(Complete(s, Outcome(s)));
      if (s.drift != nullptr && (reported.up || reported.down)) ReportAgain(s, reported, out);
    });
  }

  void Persist(Archive& archive) override {
    archive.Version(2, 2);
    archive(run_, reported_);
  }

 private:
  struct Reported {
    bool up = false, down = false, ids = false, turns = false;
    v1::Verdict broken;  // the finding of `up` or `down`
    void Persist(Archive& a) { a(up, down, ids, turns, broken); }
  };

  // If `touched`, visits only sites that got new log-probabilities. Always visits rows of logits.
  template <typename Visit>
  static void ForEach(DriftRun& run, bool touched, const Visit& visit) {
    for (const auto& [key, site] : run.sites()) {
      if (touched && !run.touched().contains(key)) continue;
      visit(RecordSubject{key, site.record, false, site.step_first, site.step_last, site.ranks,
                          site.unreadable, run.halves(key), &site});
    }
    for (const auto& [key, site] : run.logit_sites())
      visit(RecordSubject{
          key, site.record, true, site.step_first, site.step_last, site.ranks, "", {}, nullptr});
  }

  void Look(DriftRun& run, VerdictSink& out) {
    ForEach(run, true, [&](const RecordSubject& s) {
      Reported& reported = reported_[{s.key, s.rows}];
      if (s.test.differing_ids() > 0 && !std::exchange(reported.ids, true))
        out.Add(DifferingIds(s));
      const bool prompts = s.drift != nullptr && s.drift->statistics.turns.retokenised > 0;
      if (prompts && !std::exchange(reported.turns, true))
        out.Add(Complete(s, OtherPrompts(s.drift->statistics.turns)));
      const double kappa = s.rows ? kDefaultKappa : kappa_;
      if (s.AlarmedUp() && !std::exchange(reported.up, true))
        out.Add(reported.broken = Broken(s, true));
      else if (s.DownAlarm(kappa) && !reported.up && !std::exchange(reported.down, true))
        out.Add(reported.broken = Broken(s, false));
    });
  }

  // At the end: states the largest evidence, the cause if it is known now, and the drift's course.
  void ReportAgain(const RecordSubject& s, Reported& reported, VerdictSink& out) const {
    v1::Verdict now = Broken(s, reported.up), &kept = reported.broken;
    const bool named = kept.finding().cause().id() == "unknown";
    if (named || now.finding().measured().value() >= kept.finding().measured().value()) kept = now;
    v1::Verdict report = kept;
    StateCourse(s.drift->Course(), *s.drift, report);
    out.Add(std::move(report));
  }

  static double MeanRatio(const RecordTest& test) {
    return 1 + test.moments().mean_k3() - test.moments().k1();
  }

  v1::Verdict Broken(const RecordSubject& s, bool up) const {
    const RecordTest& test = s.test;
    const double wealth = up ? test.log_wealth_up() : test.log_wealth_down(kappa_);
    const double alpha = up ? test.alpha_up() : test.alpha_down();
    const RecordTest::Leader leader = up ? test.LeaderUp() : test.LeaderDown(kappa_);
    // If `support`, the record is true, but the sampler excludes tokens that the trainer scores.
    const bool support = s.drift != nullptr && s.drift->tests.record == RecordOutcome::kSupport;
    const bool maybe_cut = !up && !support && MayBeCut(s);
    FindingBuilder found(support || maybe_cut ? v1::LEVEL_WARNING : v1::LEVEL_ERROR,
                         v1::STRENGTH_STATISTICAL);
    found
        .Title(support ? "the trainer scores tokens that the sampler excludes"
                       : "the logged probabilities are not those that were sampled")
        .Explain(absl::StrFormat(
            "The mean of pi/mu over %d tokens%s is %.4g; tokens drawn from the logged distribution "
            "give %s. The evidence against the record is e^%.1f; the alarm is at e^%.1f.",
            leader.tokens, leader.name.pool() ? "" : " of " + leader.name.Words(),
            leader.mean_ratio,
            support ? "1 if both sides have the same support"
            : up    ? "at most 1 for any trainer"
                    : "1",
            wealth, -std::log(alpha)))
        .Cause("unknown", 0)
        .Measured(up ? "ln evidence, upward" : "ln evidence, downward", wealth, "nats")
        .Threshold(-std::log(alpha), "ln 1/alpha of this site");
    if (up ? test.rescored_entered() : !s.rows) found.Strength(v1::STRENGTH_BOUNDED);
    if (s.drift != nullptr) s.drift->Cause().Fill(found.finding());
    if (found.finding().fix().empty() && !support) found.Fix(kFix);
    found.Samples(test.tokens()).FalseAlarm("probability", alpha);
    FillWitness(up ? test.largest() : test.smallest(), *found.finding().mutable_witness());
    if (!leader.name.pool()) Put(*found.verdict().mutable_details(), "part", leader.name.Words());
    if (!up && !s.rows) {
      found.Assume(
          absl::StrFormat("the mean square of ln pi/mu where above 0, under the trainer and given "
                          "any prefix, is at most kappa = %g",
                          kappa_));
      if (!support)
        found.Assume("the logged distribution can draw every token that the trainer's can");
    }
    return Complete(s, found.Take());
  }

  // Returns true if an undeclared top-p or top-k of the engine, together with noise, may explain a
  // mean below 1.
  static bool MayBeCut(const RecordSubject& s) {
    if (s.drift == nullptr || s.drift->Cause().id != "unknown") return false;
    const DriftDeclared& declared = s.drift->statistics.declared;
    return declared.mode != v1::LOGPROB_MODE_RAW && std::isnan(declared.top_p);
  }

  v1::Verdict DifferingIds(const RecordSubject& s) const {
    const RecordTest& test = s.test;
    const uint64_t all = test.differing_ids() + test.tokens() + test.non_finite();
    const bool most = 2 * test.differing_ids() > all;
    FindingBuilder found(v1::LEVEL_ERROR, v1::STRENGTH_PROVED);
    found.Title("trainer and rollout have different tokens for a sequence")
        .Explain(absl::StrFormat(
            "%d of %d tokens have different ids in the trainer's record and in the rollout's.",
            test.differing_ids(), all))
        .Cause(most ? "misalignment" : "retokenisation", most ? .8 : .9)
        .Measured("tokens with different ids", static_cast<double>(test.differing_ids()), "tokens")
        .Threshold(0, "one id per position")
        .Fix("Send the sampled token ids to the trainer. Never tokenise the text again.")
        .Samples(all)
        .Assume("equal sequence ids and positions name the same token")
        .Witness("sequence", test.first_differing().sequence)
        .Witness("position", static_cast<double>(test.first_differing().position));
    return Complete(s, found.Take());
  }

  // Writes token_1: "step 3, sequence 3.0001, position 17: log pi -0.51, log mu -8.92", and so on.
  static void FillWitness(const Extremes& extremes, google::protobuf::Struct& witness) {
    int number = 0;
    for (const auto& [value, t] : extremes.found()) {
      Put(witness, absl::StrCat("token_", ++number),
          absl::StrFormat("step %d, sequence %s, position %d: log pi %.6g, log mu %.6g", t.step,
                          t.sequence, t.position, t.train, t.rollout));
    }
  }

  static v1::Verdict Outcome(const RecordSubject& s) {
    const RecordTest& test = s.test;
    const auto out = [&](RecordTest::Entry reason) { return test.left_out(reason); };
    if (test.tokens() == 0 && out(RecordTest::Entry::kFiltered) > 0) {
      return Inconclusive(
          "filtered: sequences were dropped because of their content, and kept_share is not "
          "recorded");
    }
    if (test.tokens() == 0 && out(RecordTest::Entry::kRescored) > 0) {
      return Inconclusive(
          "rescored: the engine computed the values again, and rescore_k2 (its distance from "
          "itself) is not recorded");
    }
    if (test.tokens() == 0 && test.non_finite() > 0)
      return Inconclusive("non-finite: no token has finite values on both sides");
    if (test.tokens() == 0 && !s.unreadable.empty()) return Inconclusive(s.unreadable);
    if (test.tokens() == 0 && s.drift != nullptr && s.drift->keys_differ)
      return Inconclusive(s.drift->KeyDoubt());
    if (test.tokens() == 0) return Inconclusive("nothing-joins: no token has values of both sides");
    if (s.drift != nullptr && s.drift->statistics.same_numbers())
      return Inconclusive(s.drift->Copied());
    if (std::string doubt = s.drift == nullptr ? "" : s.drift->MaskDoubt(); !doubt.empty())
      return Inconclusive(doubt);
    if (test.missing().depend()) {
      return Inconclusive(absl::StrCat(
          "missing-by-token: ", test.missing().Words(),
          ", so whether a value is missing depends on the token (an engine that records only its "
          "likeliest tokens does this)"));
    }
    if (test.tokens() < kFewRecorded) {
      return Inconclusive(absl::StrCat("few-tokens: ", test.tokens(),
                                       " tokens were used; the rule needs ", kFewRecorded));
    }
    return Pass(
        absl::StrFormat("the mean of pi/mu is %.4g over %d tokens; a correct record allows this",
                        MeanRatio(test), test.moments().n));
  }

  v1::Verdict Complete(const RecordSubject& s, v1::Verdict verdict) const {
    SetPlace(verdict, s.key.first, s.key.second, s.step_first, s.step_last, s.ranks);
    Describe(s, *verdict.mutable_details());
    RestOn(Assumptions(s), verdict);
    return verdict;
  }

  static std::vector<std::string> Assumptions(const RecordSubject& s) {
    const RecordTest& test = s.test;
    std::vector<std::string> list;
    if (test.assumed_all())
      list.push_back("no sequence was dropped because of its content (selection is not recorded)");
    if (test.assumed_sampled()) {
      list.push_back(
          "values are from the pass that drew the tokens (rollout_source is not recorded)");
    }
    if (test.non_finite() > 0 && !test.missing().depend())
      list.push_back("whether a value is missing does not depend on the token drawn");
    if (s.drift != nullptr && s.drift->statistics.copies > 0)
      list.push_back(CopiesAssumed(s.drift->statistics));
    if (test.rescored_entered())
      list.push_back("rescore_k2 is the engine's distance from itself on these tokens");
    if (s.halves.given_up_rollout > 0)
      list.push_back(
          "sequences that the trainer never scored were not dropped because of their content");
    return list;
  }

  void Describe(const RecordSubject& s, google::protobuf::Struct& d) const {
    const RecordTest& test = s.test;
    const auto count = [&](const char* name, uint64_t value) {
      if (value > 0) Put(d, name, static_cast<double>(value));
    };
    Put(d, "tokens", static_cast<double>(test.tokens()));
    count("non_finite", test.non_finite());
    count("zero_probability", test.impossible());
    count("positive_log_probabilities", test.positive());
    count("zero_filled", test.zero_filled());
    count("different_ids", test.differing_ids());
    if (s.drift != nullptr) {
      count("prompts_of_later_turns", s.drift->statistics.turns.compared);
      count("shortened_prompts", s.drift->statistics.turns.shortened);
    }
    count("later_epoch_sequences", test.left_out(RecordTest::Entry::kLaterEpoch));
    count("copied_sequences", test.left_out(RecordTest::Entry::kCopy));
    if (s.drift != nullptr) count("masked_tokens_with_values", s.drift->with_masked.tokens);
    count("filtered_sequences", test.left_out(RecordTest::Entry::kFiltered));
    count("rescored_sequences", test.left_out(RecordTest::Entry::kRescored));
    count("halves_given_up_train", s.halves.given_up_train);
    count("halves_given_up_rollout", s.halves.given_up_rollout);
    if (test.moments().n == 0) return;
    Put(d, "mean_ratio", MeanRatio(test));
    Put(d, "ln_wealth_up", test.log_wealth_up());
    Put(d, "ln_wealth_down", test.log_wealth_down(kappa_));
    Put(d, "ln_alarm_up", -std::log(test.alpha_up()));
    Put(d, "ln_alarm_down", -std::log(test.alpha_down()));
    count("alarm_token", test.alarm_token());
    Put(d, "k1", test.moments().k1());
    Put(d, "k2", test.moments().k2());
    Put(d, "k3", test.moments().mean_k3());
    Put(d, "mean_ratio_d2", test.moments().mean_rho_d2());
    Put(d, "mean_ratio_d2_above", test.moments().mean_rho_rise2());
    if (test.largest_eta() > 0) Put(d, "largest_rounding", test.largest_eta());
    if (!s.rows) Put(d, "kappa", kappa_);
    Put(d, "downward",
        s.rows                ? "exact means"
        : test.Beyond(kappa_) ? "inconclusive: mean_ratio_d2_above exceeds kappa"
                              : "bounded by kappa");
  }

  double kappa_;
  SharedDriftRun run_;
  std::map<std::pair<DriftRun::Key, bool>, Reported> reported_;
};

}  // namespace

CatalogueEntry record_invalid() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<RecordInvalid>(options);
          }};
}

}  // namespace plumbline::rules
