#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "absl/strings/str_format.h"
#include "analysis/experts/experts.h"
#include "analysis/frame/frame.h"
#include "rules/bases/mixture_rule.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/drop-rate

Full experts refuse too many choices, or refuse those late in the sequence more than the early ones.

**Why.** A refused choice is a token whose expert never sees it; with k = 1 the layer passes it by
unchanged. At 10 %, a model of 32 such layers has every token refused 3.2 times on its way. A mean
hides which tokens are affected: under first come first served in batch order with 4,096 positions, capacity factor 1.0
and a total of 6 % refused, the first quarter of the queue loses nothing and the last quarter loses 24 %:
a slope of 25 points. So the model learns mainly from the beginning of its context.

**Bad.** `12.4 % of 1.6 million choices were refused`; `refusals rise by 21 points along the sequence`.

**Good.** A few per cent or none, evenly along the sequence.

**How to fix it.**
- Route without capacity: Megatron-LM without `--moe-expert-capacity-factor`; DeepSpeed `drop_tokens=False`;
  Tutel `capacity_factor=0` (as large as needed).
- Or raise the factor (1.25 to 2.0), and balance the router: see `health/expert-imbalance`.
- Starvation: the queue is in time order. Random token selection (DeepSpeed `use_rts=True`) or drops by
  score (Megatron-LM `--moe-token-drop-policy probs`) distribute the drops evenly, but cause a future
  leak (`causality/moe-future-leak`); only dropless routing has no such disadvantage.

**What it checks.** Over the last 100 recorded steps of a layer, all ranks and micro-batches: the share of
choices refused; and how that share changes along the sequence. For the second, choices made and refused
are counted in 16 bins of position (relative to the longest sequence of the call); a step's slope is the
least-squares line through the bins' shares, weighted by the choices made, in points from first to last
bin. A step without drops has slope 0. The slopes' mean has a 99 % interval from the means of ten blocks
of ten steps, so that neither the likeness of tokens within a step nor that of neighbouring steps makes
it too narrow. Starvation: the interval is above 5 percentage points.

**Strength.** The share: `heuristic`, 10 % is customary. The slope: `statistical`, its false-alarm rate
measured: of 1,000 simulated runs of 300 steps with refusals even along the sequence (8 % and 30 %
refused, steps alike or correlated at 0.8, sequences of unlike lengths) none alarmed, so at most 0.3 %
with 95 % confidence; a true slope of 10 points is found in all of 100 runs.

**Inconclusive when** under 100 steps were recorded and no 20 steps spread evenly over 100 or more; or something was refused and positions were not
recorded (or the recording is older than the count of choices by position), the share being below 10 %.

**What it cannot see.** Drops that the recording does not show (no `keep_mask` or `routing_map`); drops
by device; starvation in an order that is not that of `position`.

**Cost.** Thirty-two counts a layer and step, kept for 100 steps.

**Sources.** Lepikhin et al., "GShard", 2020, on capacity and the order of the queue.
)page";

constexpr OptionInfo kOptions[] = {
    kMixtureStepsOption,
    {.name = "share",
     .type = OptionInfo::Type::kNumber,
     .unit = "share of choices",
     .default_value = "0.1",
     .reason = "customary: losing one choice in ten affects the model",
     .low = 0,
     .high = 1},
    {.name = "slope",
     .type = OptionInfo::Type::kNumber,
     .unit = "percentage points from the first to the last position",
     .default_value = "5",
     .reason = "below it, early and late tokens are treated almost equally",
     .low = 0,
     .high = 100},
};

constexpr RuleInfo kInfo = {"health/drop-rate",
                            "too many choices are dropped",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            kOptions};

constexpr char kTooMany[] = "capacity-too-small";
constexpr char kStarvation[] = "starvation";
constexpr double kFalseAlarmsOfDrops = 3e-3;  // 0 of 1,000 runs alarmed: below 3 / 1000 at 95 %

class DropRate : public MixtureRule {
 public:
  explicit DropRate(const Options& options)
      : MixtureRule(options), share_(options.Number("share")), slope_(options.Number("slope")) {}

 private:
  static double Share(const MixtureWindow& w) {
    return static_cast<double>(w.dropped()) / static_cast<double>(w.choices());
  }

  // Returns NaN if the positions of some drops are unknown.
  static MeanInterval Slope(const MixtureWindow& w) {
    std::vector<double> slopes;
    for (const auto& step : w.steps()) {
      if (step->choices > 0) slopes.push_back(step->SlopePoints());
    }
    return BlockMeanInterval(slopes);
  }

  std::optional<FindingBuilder> Test(const MixtureWindow& w,
                                     const std::set<std::string>& fired) const override {
    if (w.dropped() == 0) return std::nullopt;
    if (!fired.contains(kStarvation)) {
      const MeanInterval slope = Slope(w);
      if (slope.mean - slope.half_width > slope_) return Starvation(w, slope);
    }
    if (fired.empty() && Share(w) > share_) return TooMany(w);
    return std::nullopt;
  }

  // The finding names the expert that refuses most: it shows whether capacity or balance is wrong.
  FindingBuilder TooMany(const MixtureWindow& w) const {
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_HEURISTIC);
    found.Title("full experts drop too many tokens")
        .Explain(absl::StrFormat("Over %d steps full experts refused %d of %d choices (%.1f %%).",
                                 w.steps().size(), w.dropped(), w.choices(), 100 * Share(w)))
        .Cause(kTooMany, 1)
        .Measured("choices refused", Share(w), "share")
        .Threshold(share_, "option share");
    uint64_t worst = 0;
    size_t expert = 0;
    for (size_t e = 0; e < w.experts(); ++e) {
      if (w.wanted()[e] - w.kept()[e] <= worst) continue;
      worst = w.wanted()[e] - w.kept()[e];
      expert = e;
    }
    found.Witness("expert", static_cast<double>(expert))
        .Witness("refused_there", static_cast<double>(worst))
        .Witness("wanted_there", static_cast<double>(w.wanted()[expert]))
        .Fix(
            "Route without capacity (Megatron-LM: no --moe-expert-capacity-factor; DeepSpeed "
            "drop_tokens=False; Tutel capacity_factor=0), or raise the factor and balance the "
            "router.");
    return found;
  }

  // Positions of a sequence compete unequally: a queue in order of time drops the last tokens.
  FindingBuilder Starvation(const MixtureWindow& w, const MeanInterval& slope) const {
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_STATISTICAL);
    found.FalseAlarm("measured", kFalseAlarmsOfDrops)
        .Title("late tokens are dropped more often than early ones")
        .Explain(absl::StrFormat(
            "Over %d steps the share of refused choices rises by %.1f percentage points from the "
            "first to the last position (99 %% interval %.1f to %.1f).",
            w.steps().size(), slope.mean, slope.mean - slope.half_width,
            slope.mean + slope.half_width))
        .Cause(kStarvation, 1)
        .Measured("rise of the refused share from the first to the last position", slope.mean,
                  "points")
        .Threshold(slope_, "option slope, below the 99 % interval");
    found.finding().mutable_bias()->set_mean(slope.mean);
    found.finding().mutable_bias()->set_low(slope.mean - slope.half_width);
    found.finding().mutable_bias()->set_high(slope.mean + slope.half_width);
    found.finding().mutable_bias()->set_unit("points");
    FillBins(w, *found.finding().mutable_witness());
    found.Fix(
        "Route without capacity. Random token selection or dropping by score would spread the "
        "drops, but leaks the future (causality/moe-future-leak).");
    return found;
  }

  // Adds the share of dropped choices for each sixteenth of the sequence, over steps with drops.
  static void FillBins(const MixtureWindow& w, google::protobuf::Struct& witness) {
    for (size_t b = 0; b < kPositionBins; ++b) {
      uint64_t offered = 0;
      uint64_t refused = 0;
      for (const auto& step : w.steps()) {
        offered += step->offered[b];
        refused += step->refused[b];
      }
      if (offered > 0)
        Put(witness, absl::StrFormat("refused_in_sixteenth_%02d", b + 1),
            static_cast<double>(refused) / static_cast<double>(offered));
    }
  }

  v1::Verdict Rest(const MixtureWindow& w) const override {
    if (w.dropped() == 0) return Pass("no expert refused a choice");
    if (std::isnan(Slope(w).mean)) {
      return Inconclusive(
          "no-positions: few choices were refused; positions were not recorded, so the rule cannot "
          "check whether late tokens are refused more often");
    }
    return Pass("few choices were refused, evenly along the sequence");
  }

  void Describe(const MixtureWindow& w, google::protobuf::Struct& details) const override {
    Put(details, "dropped", static_cast<double>(w.dropped()));
    Put(details, "drop_share", Share(w));
    const MeanInterval slope = Slope(w);
    if (!(slope.mean == slope.mean)) return;
    Put(details, "slope_points", slope.mean);
    Put(details, "slope_half_width", slope.half_width);
  }

  double share_;
  double slope_;
};

}  // namespace

CatalogueEntry drop_rate() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<DropRate>(options);
          }};
}

}  // namespace plumbline::rules
