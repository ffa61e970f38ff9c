#include <algorithm>
#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/experts/experts.h"
#include "analysis/frame/frame.h"
#include "rules/bases/mixture_rule.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/dead-expert

An expert has had almost no tokens for a hundred steps: its parameters use memory but are not trained.

**Why.** An expert without tokens gets no gradient, and a router without gradient for it does
not change: dead experts stay dead. With 256 experts and 8,192 choices a step an expert's share is
3,200 in 100 steps, and chance leaves one with fewer than 320 with probability below 10^-900. With 6 of
64 experts dead, 9 % of the experts' memory and optimizer state are useless, and no message shows it. (Single
small batches differ: of 200 choices a step, a given one of 256 experts gets none in 46 % of the steps by chance.)

**Bad.** `experts 3, 11 kept 0.4 % and 1.1 % of the ideal load over steps 900-999`.

**Good.** Every expert above a tenth of its share.

**How to fix it.**
- Balance: Megatron-LM `--moe-aux-loss-coeff 1e-2`, or `--moe-router-enable-expert-bias` with
  `--moe-router-bias-update-rate 1e-3`, which lifts an expert that gets nothing; Mixtral `router_aux_loss_coef`.
- Let tokens explore early: DeepSpeed `noisy_gate_policy='RSample'`, Megatron-LM `--moe-input-jitter-eps 1e-2`,
  Mixtral `router_jitter_noise`.
- Dead from the first step: look at the router's initialisation and at a bias or mask that was loaded
  from a checkpoint of another shape.

**What it checks.** The *kept* load of each expert over all ranks, micro-batches and the last 100 recorded
steps of a layer, over the ideal (kept choices / experts). Below a tenth the expert is dead, provided
that chance alone gives so little with probability below 1e-6: E·P(Binomial(N, 1/E) ≤ load), summed in
the log domain. Kept, not wanted: an expert whose every token is refused learns nothing either.
Padding is not counted: its choices are in the recorded loads, so a load is used directly if
padding is small, and the verdict is inconclusive if it would depend on padding.

**Strength.** `heuristic`: a tenth is a customary threshold. That chance does not explain it is sure to 1e-6.

An expert that no token chose at all needs 4 steps that span 100 or more, three of them after the first quarter: chance is a matter
of the choices in them, not of their number.

**Inconclusive when** under 100 steps were recorded and no 20 steps spread evenly over 100 or more (4 for an expert
that no token chose), chance alone could leave an expert so
few (too few choices for that many experts), or padding rows may be all that an expert got.

**What it cannot see.** An expert that gets tokens and returns nothing (gates of zero); deadness
that began less than 100 steps ago.

**Cost.** A vector of E counts a layer and step, kept for 100 steps.

**Sources.** Fedus et al., "Switch Transformers", 2021, on load balancing; Wang et al., 2024, on the bias update.
)page";

constexpr OptionInfo kOptions[] = {
    kMixtureStepsOption,
    {.name = "share",
     .type = OptionInfo::Type::kNumber,
     .unit = "share of the ideal load",
     .default_value = "0.1",
     .reason = "customary: with a tenth of the tokens an expert gets a tenth of the training",
     .low = 0,
     .high = 1},
};

constexpr RuleInfo kInfo = {
    "health/dead-expert", "an expert gets no tokens", v1::LEVEL_WARNING, "0.1.0", kPage, kOptions};

constexpr double kChance = 1e-6;

class DeadExpert : public MixtureRule {
 public:
  explicit DeadExpert(const Options& options)
      : MixtureRule(options), share_(options.Number("share")) {}

 private:
  // Returns the choices that were not dropped.
  static uint64_t Kept(const MixtureWindow& w) { return w.choices() - w.dropped(); }
  static double Ideal(const MixtureWindow& w) {
    return static_cast<double>(Kept(w)) / static_cast<double>(w.experts());
  }
  double Little(const MixtureWindow& w) const { return share_ * Ideal(w); }
  // Returns ln of the probability that some expert keeps at most `load`.
  static double LogChance(const MixtureWindow& w, uint64_t load) {
    const auto e = static_cast<double>(w.experts());
    return std::log(e) + LogBinomialAtMost(Kept(w), 1 / e, load);
  }

  // Returns the experts whose load is below the limit and too low for chance, given the number of
  // experts.
  std::vector<size_t> Dead(const MixtureWindow& w) const {
    std::vector<size_t> dead;
    for (size_t e = 0; e < w.experts(); ++e) {
      const uint64_t load = w.kept()[e];
      if (static_cast<double>(load) < Little(w) && LogChance(w, load) < std::log(kChance))
        dead.push_back(e);
    }
    return dead;
  }

  std::optional<FindingBuilder> Test(const MixtureWindow& w,
                                     const std::set<std::string>& fired) const override {
    if (!fired.empty()) return std::nullopt;
    return Found(w, Dead(w));
  }

  // Returns a finding for experts that got no token in any step.
  std::optional<FindingBuilder> TestOfAll(const MixtureWindow& w,
                                          const std::set<std::string>& fired) const override {
    if (!fired.empty()) return std::nullopt;
    std::vector<size_t> dead = Dead(w);
    std::erase_if(dead, [&](size_t e) { return w.wanted()[e] > 0; });
    return Found(w, dead);
  }

  std::optional<FindingBuilder> Found(const MixtureWindow& w,
                                      const std::vector<size_t>& dead) const {
    if (dead.empty()) return std::nullopt;
    const auto least = *std::min_element(
        dead.begin(), dead.end(), [&](size_t a, size_t b) { return w.kept()[a] < w.kept()[b]; });
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_HEURISTIC);
    found
        .Title(dead.size() == 1 ? "an expert gets almost no tokens"
                                : absl::StrCat(dead.size(), " experts get almost no tokens"))
        .Explain(absl::StrFormat("Over %d steps expert %d kept %d choices; an equal share is %.0f. "
                                 "Chance alone gives so few with probability 10^%.0f.",
                                 w.steps().size(), least, w.kept()[least], Ideal(w),
                                 LogChance(w, w.kept()[least]) / std::log(10.0)));
    const bool refused = w.wanted()[least] > w.kept()[least];
    found.Cause(refused ? "always-refused" : "never-chosen", 1)
        .Measured("smallest load / equal share", static_cast<double>(w.kept()[least]) / Ideal(w),
                  "share")
        .Threshold(share_, "option share");
    FillWitness(w, dead, *found.finding().mutable_witness());
    found.Fix(
        "Balance the router (Megatron-LM --moe-router-bias-update-rate or --moe-aux-loss-coeff; "
        "Mixtral router_aux_loss_coef), and add noise to it early in training (jitter, noisy "
        "gates).");
    return found;
  }

  static void FillWitness(const MixtureWindow& w, const std::vector<size_t>& dead,
                          google::protobuf::Struct& witness) {
    constexpr size_t kMost = 16;
    std::string list;
    for (size_t i = 0; i < std::min(dead.size(), kMost); ++i)
      absl::StrAppend(&list, i > 0 ? ", " : "", dead[i], " (kept ", w.kept()[dead[i]], ", wanted ",
                      w.wanted()[dead[i]], ")");
    if (dead.size() > kMost) absl::StrAppend(&list, ", and ", dead.size() - kMost, " more");
    Put(witness, "experts", list);
    Put(witness, "ideal", Ideal(w));
  }

  // Passes only if a dead expert would have been seen in the window.
  v1::Verdict Rest(const MixtureWindow& w) const override {
    const double little = Little(w);
    const double most = std::ceil(little) - 1;  // largest load below the limit
    if (!(most >= 0) || !(LogChance(w, static_cast<uint64_t>(most)) < std::log(kChance))) {
      return Inconclusive(
          absl::StrFormat("few-choices: %d choices over %d experts are too few; chance alone can "
                          "leave an expert without tokens",
                          Kept(w), w.experts()));
    }
    for (size_t e = 0; e < w.experts(); ++e) {
      const uint64_t load = w.kept()[e];
      if (static_cast<double>(load - std::min(load, w.padding_choices())) < little) {
        return Inconclusive(
            absl::StrFormat("padding: too much of the load of expert %d may come from padding rows "
                            "(%d choices in total)",
                            e, w.padding_choices()));
      }
    }
    return Pass("every expert kept at least a tenth of an equal share");
  }

  void Describe(const MixtureWindow& w, google::protobuf::Struct& details) const override {
    const auto least = std::min_element(w.kept().begin(), w.kept().end());
    Put(details, "least_expert", static_cast<double>(least - w.kept().begin()));
    if (Kept(w) > 0) Put(details, "least_over_ideal", static_cast<double>(*least) / Ideal(w));
    Put(details, "dead_experts", static_cast<double>(Dead(w).size()));
    if (w.padding_choices() > 0)
      Put(details, "padding_choices", static_cast<double>(w.padding_choices()));
  }

  double share_;
};

}  // namespace

CatalogueEntry dead_expert() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<DeadExpert>(options);
          }};
}

}  // namespace plumbline::rules
