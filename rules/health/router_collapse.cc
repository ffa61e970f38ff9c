#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <vector>

#include "absl/strings/str_format.h"
#include "analysis/experts/experts.h"
#include "analysis/frame/frame.h"
#include "rules/bases/mixture_rule.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/router-collapse

The router is almost certain of its choice for every token, and more and more tokens go to the same expert.

**Why.** Each of the two alone is harmless: a trained router may be certain and balanced, and loads change.
Together they make each other stronger: a certain router passes no gradient to the other experts, and an
expert with more load makes the router more certain. At H/ln E = 0.1 with 64 experts the router behaves as
if it had 64^0.1 = 1.5 experts to choose from. A collapse that began at step 1,000 is complete (all tokens
at k experts) within a few hundred steps, and training on from there does not undo it.

**Bad.** `entropy 0.06 of ln E, largest load / mean load rose from 2.1 to 5.8 in 100 steps`.

**Good.** Entropy above 0.1, or load that does not rise.

**How to fix it.**
- Go back to a checkpoint before the onset; later training does not spread the choices again.
- Keep logits small: Megatron-LM `--moe-z-loss-coeff 1e-3`; router in fp32 (`--moe-router-dtype fp32`,
  Tutel `fp32_gate=True`).
- Balance: Megatron-LM `--moe-aux-loss-coeff 1e-2` or `--moe-router-bias-update-rate 1e-3`; DeepSpeed and
  Tutel `l_aux` in the loss; Mixtral `router_aux_loss_coef` with `output_router_logits=True`.
- Lower the router's learning rate, or warm it up longer.

**What it checks.** Over the last 100 recorded steps of a layer: the mean entropy of the router's
probabilities, H(p)/ln E, is below 0.1, *and* the largest wanted load over the mean rises. Each step's
largest over mean is first divided by what chance gives for that step's number of choices, so that
shrinking batches do not look like a rise. The rise is the slope of a straight line over the 100 steps,
and must exceed 3 standard errors, widened for the correlation of neighbouring steps; and the last ten
steps must hold 1.5 times what the first ten held, for popularity that wanders also rises at times. Steps
without a finite entropy are counted apart and do not blind the rule.

**Strength.** `heuristic`: an entropy of 0.1 is ours. Of 333 simulated runs of 300 steps of a router that is
certain and whose experts' popularity wanders by 20 % (correlation 0.95 from step to step) one alarmed; of
100 that collapse within 110 steps all are found.

**Inconclusive when** under 100 steps with a finite entropy were recorded, and no 20 steps spread evenly over 100 or more.

**What it cannot see.** A collapse that was complete before recording began does not rise any more:
`health/expert-imbalance` and `health/dead-expert` report it. Sigmoid routers whose scores were recorded
instead of logits: their scores are scaled to sum 1 first.

**Cost.** A vector of E counts a layer and step, kept for 100 steps.

**Sources.** Zoph et al., "ST-MoE", 2022, on the z-loss; Shazeer et al., "Outrageously Large Neural
Networks", 2017, on self-reinforcing imbalance.
)page";

constexpr OptionInfo kOptions[] = {
    kMixtureStepsOption,
    {.name = "entropy",
     .type = OptionInfo::Type::kNumber,
     .unit = "share of ln E",
     .default_value = "0.1",
     .reason = "at E^0.1 the router chooses in effect among 1.2 (E = 8) to 1.9 (E = 512) experts",
     .low = 0,
     .high = 1},
    {.name = "rise",
     .type = OptionInfo::Type::kNumber,
     .unit = "load in the last tenth of the steps / load in the first tenth",
     .default_value = "1.5",
     .reason = "normal changes of a fifth do not reach this; a collapse multiplies the load",
     .low = 1,
     .high = 512},
};

constexpr RuleInfo kInfo = {"health/router-collapse",
                            "the entropy of the router collapses",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            kOptions};

constexpr double kErrors = 3;  // standard errors that a rise must exceed

class RouterCollapse : public MixtureRule {
 public:
  explicit RouterCollapse(const Options& options)
      : MixtureRule(options), entropy_(options.Number("entropy")), rise_(options.Number("rise")) {}

 private:
  bool Usable(const MixtureStep& step) const override {
    return std::isfinite(step.entropy) && step.choices > 0;
  }
  const char* Unusable() const override {
    return "no step has a finite entropy of the router's probabilities";
  }

  static double Entropy(const MixtureWindow& w) {
    double sum = 0;
    for (const auto& step : w.steps()) sum += step->entropy * static_cast<double>(step->choices);
    return sum / static_cast<double>(w.choices());
  }

  static std::vector<double> Loads(const MixtureWindow& w) {
    std::vector<double> loads;
    for (const auto& step : w.steps()) loads.push_back(step->LargestOverMean());
    return loads;
  }

  // Returns the loads relative to their expectation by chance for each step's choices.
  static std::vector<double> LoadsOverChance(const MixtureWindow& w) {
    std::vector<double> loads = Loads(w);
    std::map<uint64_t, double> chance;  // cached, because most steps have equal choices
    for (size_t i = 0; i < loads.size(); ++i) {
      const uint64_t n = w.steps()[i]->choices;
      auto [entry, fresh] = chance.try_emplace(n);
      if (fresh) entry->second = ExpectedLargestOverMean(n, w.experts());
      loads[i] /= entry->second;
    }
    return loads;
  }

  // Returns the means of the first and the last tenth of the values, for display.
  static std::pair<double, double> Ends(const std::vector<double>& v) {
    const auto n = static_cast<std::ptrdiff_t>(v.size() / 10);
    const auto mean = [n](auto begin) {
      return std::accumulate(begin, begin + n, 0.0) / static_cast<double>(n);
    };
    return {mean(v.begin()), mean(v.end() - n)};
  }

  std::optional<FindingBuilder> Test(const MixtureWindow& w,
                                     const std::set<std::string>& fired) const override {
    if (!fired.empty()) return std::nullopt;
    const double entropy = Entropy(w);
    if (!(entropy < entropy_) || !LinearTrend(Loads(w)).Rises(kErrors)) return std::nullopt;
    const std::vector<double> beyond = LoadsOverChance(w);
    const auto [from, to] = Ends(beyond);
    if (!LinearTrend(beyond).Rises(kErrors) || !(to > rise_ * from)) return std::nullopt;
    const auto [first, last] = Ends(Loads(w));
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_HEURISTIC);
    found.Title("the router is collapsing")
        .Explain(
            absl::StrFormat("Over %d steps the entropy of the router is %.3f of its maximum ln E, "
                            "and the largest load rises from %.2f to %.2f times the mean.",
                            w.steps().size(), entropy, first, last))
        .Cause("collapse", 1)
        .Measured("entropy over ln E", entropy)
        .Threshold(entropy_, "option entropy")
        .Witness("largest_over_mean_first", first)
        .Witness("largest_over_mean_last", last)
        .Fix(
            "Go back to a checkpoint before the onset. Then use a z-loss (Megatron-LM "
            "--moe-z-loss-coeff), stronger balancing and the router in fp32.");
    return found;
  }

  v1::Verdict Rest(const MixtureWindow& w) const override {
    return Entropy(w) < entropy_
               ? Pass("the entropy of the router is low, but its largest load does not rise much")
               : Pass("the entropy of the router is high enough");
  }

  void Describe(const MixtureWindow& w, google::protobuf::Struct& details) const override {
    Put(details, "entropy", Entropy(w));
    const Trend trend = LinearTrend(LoadsOverChance(w));
    if (!(trend.slope == trend.slope)) return;
    Put(details, "load_rise_per_100_steps", 100 * trend.slope);
    Put(details, "load_rise_deviation", 100 * trend.deviation);
  }

  double entropy_;
  double rise_;
};

}  // namespace

CatalogueEntry router_collapse() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<RouterCollapse>(options);
          }};
}

}  // namespace plumbline::rules
