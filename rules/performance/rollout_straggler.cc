#include <cmath>
#include <memory>

#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "rules/bases/drift_rule.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# performance/rollout-straggler

The trainer waits for the longest few sequences of each batch.

**Why.** Lengths of reasoning traces are heavy-tailed: with a median of 2,000 tokens and a longest of 32,000, an
engine that runs 95 % of a batch in 60 s holds 5 % of its slots for 200 s more: 77 % of the time goes to 5 % of
the sequences.

**Bad.** `the last 5 % of sequences take 61 % of generation time (step 12: 48 s for sequence 12.0931)`.

**Good.** `the last 5 % of sequences take 4.1 % of generation time`.

**How to fix it.** Generate more sequences than a batch needs and train when it is full; update weights in flight;
or train on what is there under a bounded lag. The details contain the largest possible gain (`share`), and its
cost: `late_token_share` of the tokens would have been drawn by weights one version older (`drift/staleness` then
measures what that does). If one worker holds the last sequence far more often than its share, look at that worker first.

**What it checks.** From `t_start` and `t_end` of a step's sampled sequences: the time between the end of the first
95 % of them and the end of the last, as a share of the time from the first start to the last end, over all steps
with at least 20 timed sequences. A finding from 20 % on.

**Strength.** `heuristic`: 20 % is customary. A note.

**Inconclusive when** no sequence has times, or no step has 20 that do.

**What it cannot see.** Waiting for something else than the sequences (weight transfer, reward models); clocks of
workers that disagree by more than the times measured.

**Cost.** One sort of a step's times.

**Sources.** Fu et al., "AReaL", 2025; Piché et al., "PipelineRL", 2025, on in-flight weight updates.
)page";

constexpr RuleInfo kInfo = {"performance/rollout-straggler",
                            "the longest rollouts make the trainer wait",
                            v1::LEVEL_NOTE,
                            "0.1.0",
                            kPage,
                            {}};

constexpr double kShare = 0.2;

class RolloutStraggler : public DriftRule {
 public:
  explicit RolloutStraggler(const Options& /*options*/) {}

 protected:
  // The findings are about times, not about drift.
  bool follows_course() const override { return false; }
  v1::Verdict JudgeSite(const DriftSite& site) const override {
    const SequenceTimes& t = site.times;
    if (t.with_times() == 0)
      return Inconclusive("no-times: no sequence has a start time and an end time");
    if (t.steps() == 0) {
      return Inconclusive(absl::StrFormat("few-sequences: no step has %d sequences with times",
                                          SequenceTimes::kFewest));
    }
    const std::string words = absl::StrFormat(
        "the last 5 %% of sequences take %.2g %% of generation time", 100 * t.share());
    v1::Verdict verdict = t.share() >= kShare ? Found(t, words) : Pass(words);
    Describe(t, *verdict.mutable_details());
    verdict.add_assumptions("the clocks of the workers agree");
    return verdict;
  }

 private:
  static v1::Verdict Found(const SequenceTimes& t, const std::string& words) {
    FindingBuilder found(v1::LEVEL_NOTE, v1::STRENGTH_HEURISTIC);
    found.Title(kInfo.title)
        .Explain(
            absl::StrFormat("%s over %d steps (step %d: %.3g s for sequence %s). If the trainer "
                            "does not wait for them, %.2g %% of the tokens are one version older.",
                            Capitalised(words), t.steps(), t.longest_step(), t.longest_wait(),
                            t.longest_id(), 100 * t.late_share()))
        .Cause("long-tail", 0.8)
        .Measured("share of the generation time after 95 % of the sequences ended", t.share(),
                  "share")
        .Threshold(kShare, "customary")
        .Samples(t.with_times())
        .Fix(
            "Start more sequences than needed and train when the batch is full, update weights "
            "during generation, or train with a bounded lag.")
        .Witness("sequence", t.longest_id())
        .Witness("step", static_cast<double>(t.longest_step()))
        .Witness("waited_seconds", t.longest_wait());
    return found.Take();
  }

  static void Quantiles(google::protobuf::Struct& details, const std::string& key,
                        const TimeHistogram& values) {
    google::protobuf::Struct& s = PutStruct(details, key);
    Put(s, "median", values.Quantile(0.5));
    Put(s, "p95", values.Quantile(0.95));
    Put(s, "p99", values.Quantile(0.99));
  }

  static void Describe(const SequenceTimes& t, google::protobuf::Struct& details) {
    Put(details, "share", t.share());
    Put(details, "late_token_share", t.late_share());
    Put(details, "steps", static_cast<double>(t.steps()));
    if (t.small_steps() > 0) Put(details, "small_steps", static_cast<double>(t.small_steps()));
    if (t.reversed() > 0) Put(details, "ends_before_start", static_cast<double>(t.reversed()));
    Put(details, "waiting_seconds", t.waiting_seconds());
    Put(details, "generation_seconds", t.generation_seconds());
    Quantiles(details, "tokens", t.tokens());
    Quantiles(details, "seconds", t.seconds());
    if (t.workers().size() < 2) return;
    google::protobuf::Struct& workers = PutStruct(details, "workers");
    for (const auto& [name, worker] : t.workers()) {
      google::protobuf::Struct& w = PutStruct(workers, name);
      Put(w, "sequences", static_cast<double>(worker.seconds.count()));
      Put(w, "held_the_last", static_cast<double>(worker.last));
      Put(w, "seconds_median", worker.seconds.Quantile(0.5));
      Put(w, "seconds_p95", worker.seconds.Quantile(0.95));
      Put(w, "tokens_median", worker.tokens.Quantile(0.5));
      Put(w, "tokens_p95", worker.tokens.Quantile(0.95));
    }
  }
};

}  // namespace

CatalogueEntry rollout_straggler() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<RolloutStraggler>(options);
          }};
}

}  // namespace plumbline::rules
