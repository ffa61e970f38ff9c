#include <algorithm>
#include <cmath>
#include <memory>

#include "absl/strings/str_format.h"
#include "analysis/experts/experts.h"
#include "analysis/frame/frame.h"
#include "rules/bases/mixture_rule.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/expert-imbalance

One expert is wanted far more than its share, for a hundred steps, beyond what chance explains.

**Why.** Chance alone gives unequal loads: with 64 experts and 256 choices a step the busiest expert of a
perfect router holds 2.34 times the mean, so a threshold of "twice the mean" on one batch would fire
always. Over 100 such steps chance gives 1.12. An expert at 3.0 times the mean is then not an accident:
every expert-parallel step waits for it, so the layer takes 3 times as long, and with capacity factor 1.25
it refuses 1 − 1.25/3 = 58 % of the tokens that choose it.

**Bad.** `expert 5 was wanted 3.02 times as often as the mean over steps 0-99; chance gives 1.02`.

**Good.** Largest over mean below twice chance's. Batches may each favour some expert, as text changes:
what counts is that it is not the same one for 100 steps. `maxvio_batch` shows how uneven single steps were.

**How to fix it.**
- Megatron-LM: raise `--moe-aux-loss-coeff` (1e-2 is usual) with `--moe-router-load-balancing-type aux_loss`,
  or balance by bias: `--moe-router-enable-expert-bias --moe-router-bias-update-rate 1e-3`.
- DeepSpeed, Tutel: add the layer's `l_aux` to the loss, times 1e-2; check that it is not detached.
- Hugging Face Mixtral: `router_aux_loss_coef` counts only with `output_router_logits=True`.
- If the logits grew very large first: `--moe-z-loss-coeff 1e-3`, and the router in fp32.

**What it checks.** The choices of all tokens, over all ranks, micro-batches and the last 100 recorded
steps of a layer, are counted for each expert. It is the *wanted* load, kept and refused: a capacity makes
the kept load look even, whatever the router does. The largest load over the mean must exceed twice its
expectation under chance, and the largest load must lie above the 99th percentile of what chance gives.
Both are computed for the recorded number of choices N and experts E: the percentile from
P(largest ≥ m) ≤ E·P(Binomial(N, 1/E) ≥ m), which is tight to 1 % of itself there; the expectation from
Poisson loads conditioned on their sum. Training and evaluation batches, trainer and rollout are
judged apart. If few steps were recorded, 4 that span 100 or more are enough (three of them after the first quarter), provided that
one expert exceeds both in each of them by itself.

**Strength.** `statistical`; its false-alarm rate is measured, not derived, since a healthy router is not a
uniform one: 0 findings in 1,000 simulated healthy runs of 300 steps (uniform; tokens of one sequence
alike; popularity that wanders by 20 % and differs by 10 % between experts; 8 and 64 experts), so at most
0.3 % of runs with 95 % confidence. An expert at 2.5 times its share is found in all of 100 runs.

**Inconclusive when** under 100 steps were recorded no 20 steps spread evenly over 100 or more, and no 4 that
agree (above), or padding rows chose so much that the answer
depends on where (their choices are counted but not separated: the bound most favourable to the router is used).

**What it cannot see.** Imbalance between devices that hold several experts each; an expert that is popular
in fewer than 100 steps at a time; choices that no probe recorded.

**Cost.** A vector of E counts a layer and step, kept for 100 steps.

**Sources.** MaxVio: Wang et al., "Auxiliary-Loss-Free Load Balancing Strategy for Mixture-of-Experts",
2024. Largest load: B. Levin, "A Representation for Multinomial Cumulative Distribution Functions", 1981.
)page";

constexpr OptionInfo kOptions[] = {
    kMixtureStepsOption,
    {.name = "factor",
     .type = OptionInfo::Type::kNumber,
     .unit = "times the largest load over the mean that chance gives",
     .default_value = "2",
     .reason = "experts of healthy routers differ by tenths; an expert with twice its share "
               "determines the time of the step",
     .low = 1,
     .high = 512},
};

constexpr RuleInfo kInfo = {"health/expert-imbalance",
                            "the load of experts is more unequal than chance explains",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            kOptions};

constexpr double kPercentile = 0.01;  // the 99th percentile: chance exceeds it at most this often
// None of 1,000 healthy runs in the test alarmed, so the rate is below 3 / 1000 at 95 % confidence.
constexpr double kMeasuredFalseAlarms = 3e-3;

class ExpertImbalance : public MixtureRule {
 public:
  explicit ExpertImbalance(const Options& options)
      : MixtureRule(options), factor_(options.Number("factor")) {}

 private:
  // The largest wanted load. It is unknown which expert the padding chose: `sure` remains if it was
  // this one.
  struct Largest {
    size_t expert;
    uint64_t load;
    uint64_t sure;
  };
  static Largest LargestOf(const MixtureWindow& w) {
    const auto at = std::max_element(w.wanted().begin(), w.wanted().end());
    return {static_cast<size_t>(at - w.wanted().begin()), *at,
            *at - std::min(*at, w.padding_choices())};
  }
  static double OverMean(const MixtureWindow& w, uint64_t load) {
    return static_cast<double>(load) * static_cast<double>(w.experts()) /
           static_cast<double>(w.choices());
  }
  // Returns true if the load is far beyond its expectation, and too improbable to be chance.
  bool Exceeds(const MixtureWindow& w, uint64_t load) const {
    // The expected largest load is at least the mean, so this cheap test excludes most windows.
    if (!(OverMean(w, load) > factor_)) return false;
    if (!(OverMean(w, load) > factor_ * ExpectedLargestOverMean(w.choices(), w.experts())))
      return false;
    return LogChanceOfLargest(w.choices(), w.experts(), load) < std::log(kPercentile);
  }

  // Returns true if the same expert exceeds the limits in each single step.
  bool ExceedsInEach(const MixtureWindow& w, size_t expert) const {
    return std::all_of(w.steps().begin(), w.steps().end(), [&](const auto& step) {
      if (step->choices == 0) return false;
      const uint64_t load = step->wanted[expert];
      const uint64_t sure = load - std::min(load, step->padding_choices);
      const double ratio = static_cast<double>(sure) * static_cast<double>(w.experts()) /
                           static_cast<double>(step->choices);
      return ratio > factor_ * ExpectedLargestOverMean(step->choices, w.experts()) &&
             LogChanceOfLargest(step->choices, w.experts(), sure) < std::log(kPercentile);
    });
  }

  std::optional<FindingBuilder> TestOfAll(const MixtureWindow& w,
                                          const std::set<std::string>& fired) const override {
    if (!ExceedsInEach(w, LargestOf(w).expert)) return std::nullopt;
    return Test(w, fired);
  }

  std::optional<FindingBuilder> Test(const MixtureWindow& w,
                                     const std::set<std::string>& fired) const override {
    const Largest largest = LargestOf(w);
    if (!fired.empty() || !Exceeds(w, largest.sure)) return std::nullopt;
    const double ratio = OverMean(w, largest.sure);
    const double chance = ExpectedLargestOverMean(w.choices(), w.experts());
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_STATISTICAL);
    found.FalseAlarm("measured", kMeasuredFalseAlarms)
        .Title("an expert is chosen far more often than its share")
        .Explain(
            absl::StrFormat("Over %d steps expert %d was chosen %.2f times as often as the mean "
                            "expert; chance alone gives %.2f for the busiest of %d experts.",
                            w.steps().size(), largest.expert, ratio, chance, w.experts()))
        .Cause("router-imbalance", 1)
        .Measured("largest load / mean load", ratio)
        .Threshold(factor_ * chance, "option factor times the value that chance gives")
        .Witness("expert", static_cast<double>(largest.expert))
        .Witness("wanted", static_cast<double>(largest.load))
        .Witness("mean", static_cast<double>(w.choices()) / static_cast<double>(w.experts()))
        .Fix(
            "Strengthen the balancing: Megatron-LM --moe-aux-loss-coeff or "
            "--moe-router-bias-update-rate; DeepSpeed and Tutel: add l_aux to the loss; Mixtral: "
            "router_aux_loss_coef with output_router_logits.");
    return found;
  }

  v1::Verdict Rest(const MixtureWindow& w) const override {
    const Largest largest = LargestOf(w);
    if (Exceeds(w, largest.load) && !Exceeds(w, largest.sure)) {
      return Inconclusive(absl::StrFormat(
          "padding: the load of expert %d may come from the %d choices of padding rows",
          largest.expert, w.padding_choices()));
    }
    return Pass("no expert was chosen more often than chance explains");
  }

  void Describe(const MixtureWindow& w, google::protobuf::Struct& details) const override {
    const Largest largest = LargestOf(w);
    Put(details, "largest_over_mean", OverMean(w, largest.sure));
    Put(details, "largest_expert", static_cast<double>(largest.expert));
    Put(details, "largest_over_mean_by_chance", ExpectedLargestOverMean(w.choices(), w.experts()));
    double sum = 0;
    uint64_t steps = 0;
    for (const auto& step : w.steps()) {
      if (step->choices == 0) continue;
      sum += step->LargestOverMean() - 1;
      ++steps;
    }
    Put(details, "maxvio_batch", sum / static_cast<double>(steps));
    Put(details, "maxvio_batch_by_chance",
        ExpectedLargestOverMean(w.choices() / steps, w.experts()) - 1);
    if (w.padding_choices() > 0)
      Put(details, "padding_choices", static_cast<double>(w.padding_choices()));
  }

  double factor_;
};

}  // namespace

CatalogueEntry expert_imbalance() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<ExpertImbalance>(options);
          }};
}

}  // namespace plumbline::rules
