#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/routing/train_infer/train_infer.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# causality/train-infer-routing

Training and inference send the same tokens to different experts, and rounding is not the reason.

**Why.** In reinforcement learning the ratio of training's to inference's probability weighs the gradient;
another choice of one expert of 8 changes a token's layer output by about the output's own size. With bf16
rounding, scores 1/128 apart flip for 2 to 4 % of the tokens in every layer: such flips have small margins
and cannot be avoided. A balancing bias that one side does not apply, experts numbered otherwise, choices
replayed for the neighbouring token flip tokens by margins of 10 roundings and more, in the layers where
that happens, and the layers above then get other inputs. So the rule names the first layer that differs.

**Bad.** `1.8 % of 2,048 tokens choose other experts by margins above 4 times the median difference of 0.004;
layers.3 is the first`.

**Good.** Flips only where the margin is of the size of the scores' difference, and a few per cent of the choices.

**How to fix it.**
- Same arithmetic: router in fp32 on both sides (Megatron-LM `--moe-router-dtype fp32`; vLLM and SGLang:
  keep the gate unquantised).
- Same bias: send `expert_bias` (`e_score_correction_bias`) with each weight update.
- Or replay inference's choices in training (routing replay); then -1 entries must not be replayed.
- Switch exploration noise, jitter and dropout off wherever the two should agree (`model.eval()` does not reach a
  router that adds its noise under its own flag).
- -1 for prompts: prefix caching skipped the tokens; record routing with the cache off, or store it with the cache.

**What it checks.** Two recordings of one run are joined by (step, layer, sequence_id, position): inference
(a rollout process, or a dump with `mode: eval`) and training. For each joined token it compares the sets
of chosen experts, their order, and the gates. Where both sides recorded scores, a flip has a margin:
the smaller of the two sides' top-k margins (k-th less (k+1)-th score, or the groups' margin). The layer's median score difference
is taken at the experts on the edge of either choice. Where a side recorded none, choices are compared
directly: if all are equal, no margin is needed. Other choices are counted, and rounding may be the reason of some.
A flip whose margin exceeds 4 times that difference
on more than 0.1 % of the tokens is a finding. If both sides chose by their own scores, the differences of the token's other
experts are the noise of this token, which may be larger than the layer's (scales of fp8 and int8, outlier channels): a flip
that they explain is not counted (`noisy_flip_share` in the details). Where the scores themselves are far apart, by more than an eighth of their
spread over the experts (from quartiles: no law is assumed), no margin is large: choices of which one side alone made
more than a tenth are a finding by that share. As many between scores that are close are near ties (scores of few values,
bounded ones): a note. Without scores the share is judged alone, a tenth or what differences of an eighth of
*normal* scores' spread move (21 % for 1 of 256), and that assumption is listed. A token counts in the first layer where it flips: above
that its inputs differ, and it may flip by any margin. So are, as plain facts: recorded choices of -1 where training
chose (but for a sequence's last token, which is sampled and not fed back), tokens whose gates are all zero
on one side alone and not dropped; one renumbering of the experts that turns training's choice into inference's in every
token (an error); rules that differ (below); and, in dumps, sequences of which inference holds other than n or
n - 1 of n tokens. The first divergent layer is the one with the lowest number that has such flips in that step.

If the sides recorded different rules (a bias, a group limit, a score function), both rules are applied to the scores of
one side. Tokens for which the rules choose different experts, and for which each side chose what its own rule
chooses, are a finding if there are at least 20, and few for which both sides chose alike (20 bits). A recorded choice that contradicts its own side's rule excludes it. Logits are compared with
scores after the score function is inverted. Scores that still differ in kind are judged as if there were none.

**Level.** A warning; an error where experts are numbered otherwise, or where one side alone has a bias or a group limit;
near ties a note. Choices that differ without comparable scores are a note up to that share of all choices (bf16
scores move 2 to 4 % of them), a warning beyond.

**Strength.** Flips: `heuristic`, 4 times, 0.1 %, a tenth and an eighth are customary; without scores the share of choices
is derived for scores that are nearly normal over the experts. -1 entries, zero gates, lengths, numbers and rules: `proved`,
given that equal ids name the same token.

**Inconclusive when** nothing joins (`nothing-joins`); the sides redacted their ids under different keys (`keys-differ`); ids or
positions are missing or repeat (`no-sequence-ids`, `no-positions`, `ids-repeat`); the sides have different numbers of experts
(`shapes-differ`); the joined tokens' scores are no closer than those of unrelated tokens (`not-the-same-tokens`: ids do not mean
the same, or weights are far apart); fewer than 1,000 tokens (`few-tokens`); most scores are not finite (`non-finite`); a recording
cannot be read (`bad-shape`, `bad-tensor`, `bad-groups`, `no-choices`), or its calls of one step have other shapes or kinds of scores (`calls-differ`).
`no-scores` and `scores-differ-in-kind` are reasons only of a step that recorded them while others can be compared.

**What it cannot see.** A cause that changes all scores of a layer equally, such as weights that
missed one update: then this is the median difference (the details contain it, with the overlap of the sets). Layers that
were not recorded: a token that flipped there counts in the next one that was. Sides that record different steps;
flips whose margin is small because both routers are undecided.

**Cost.** Of a sampled step one side's 2,048 tokens a layer (those whose ids hash lowest) wait for the other
side, about 250 bytes each, and with a bias or
groups 256 KiB of rows; at most 64 MiB in all, the oldest steps given up first and counted.

**Sources.** Routing replay: Ma et al., "Stabilizing MoE Reinforcement Learning by Aligning Training and
Inference Routers", 2025.
)page";

constexpr OptionInfo kOptions[] = {
    {.name = "margin-factor",
     .type = OptionInfo::Type::kNumber,
     .unit = "times the layer's median score difference",
     .default_value = "4",
     .reason = "a margin of 4 medians on both sides needs a difference of 5 standard deviations",
     .low = 1,
     .high = 1000},
    {.name = "flip-share",
     .type = OptionInfo::Type::kNumber,
     .unit = "share of tokens",
     .default_value = "0.001",
     .reason = "customary; large rounding errors of a layer stay below it",
     .low = 0,
     .high = 1},
    {.name = "tokens",
     .type = OptionInfo::Type::kInteger,
     .unit = "tokens per layer and step",
     .default_value = "2048",
     .reason = "two flips among these equal the threshold of the share; they need 0.5 MiB",
     .low = 16,
     .high = 10000000},
};

constexpr RuleInfo kInfo = {"causality/train-infer-routing",
                            "training and inference route the same tokens differently",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            kOptions};

constexpr uint64_t kFewTokens = 1000;

// The name, value and texts of one kind of finding.
struct Reported {
  const char* cause;
  bool proved;
  double value;
  const char *measured, *unit;
  std::string text;
  const RoutingComparison::Pair* pair;
  bool error = false;
  const char* fix = nullptr;
};

class TrainInferRouting : public Rule {
 public:
  explicit TrainInferRouting(const Options& options)
      : factor_(options.Number("margin-factor")),
        share_(options.Number("flip-share")),
        runs_(static_cast<size_t>(options.Integer("tokens")), factor_) {}

  void Judge(const SiteStep& step, VerdictSink& out) override {
    for (const ComparedStep& done : runs_.Take(step)) Emit(done, out);
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    for (const ComparedStep& done : runs_.Finish()) Emit(done, out);
    // If only one side was recorded, no comparison was requested.
    if (!runs_.both_sides_seen()) return;
    for (const auto& [site, layer] : layers_) {
      if (layer.fired.empty()) out.Add(Rest(site, layer));
    }
    for (const auto& [site, steps] : runs_.Unmatched()) {
      if (layers_.contains(site)) continue;
      v1::Verdict verdict = Inconclusive(absl::StrCat(
          "nothing-joins: ", steps.count, " sampled steps of one side have no counterpart"));
      Place(site, steps.first, steps.last, verdict);
      out.Add(std::move(verdict));
    }
  }

  void Persist(Archive& archive) override {
    archive.Version(1);
    archive(runs_, layers_);
  }

 private:
  struct Layer {
    uint64_t compared = 0;
    uint64_t flips = 0;
    uint64_t large_flips = 0;
    uint64_t marked = 0;   // number of tokens with finite scores on both sides
    double differing = 0;  // number of choices that only one side made, divided by k
    int64_t step_first = 0;
    int64_t step_last = 0;
    std::string reason;  // why the last unusable step could not be judged
    RoutingComparison last;
    std::set<std::string> fired;
    // Returns totals with the share of all choices that only one side made.
    FlipTotals totals() const {
      return {compared, flips, differing / static_cast<double>(compared)};
    }
    void Persist(Archive& a) {
      a(compared, flips, large_flips, marked, differing, step_first, step_last, reason, last,
        fired);
    }
  };

  void Emit(const ComparedStep& done, VerdictSink& out) {
    std::string first;
    std::set<TokenKey> diverged;  // tokens that diverged in a lower layer
    for (const auto& [site, compared] : done.layers) {
      RoutingComparison c = compared;
      std::erase_if(c.large, [&](const auto& pair) { return diverged.contains(pair.train.key); });
      c.large_flips = c.large.size();
      diverged.insert(c.diverged.begin(), c.diverged.end());
      if (first.empty() && c.large_flips > 0) first = site.layer;
      Emit(site, c, done.step, first, out);
    }
  }

  static double MarginOf(const RoutingComparison::Pair& pair) {
    return std::min(pair.train.margin, pair.infer.margin);
  }

  void Emit(const LayerSite& site, const RoutingComparison& c, int64_t step,
            const std::string& first, VerdictSink& out) {
    const auto [at, fresh] = layers_.try_emplace(site);
    Layer& layer = at->second;
    layer.step_first = fresh ? step : std::min(layer.step_first, step);
    layer.step_last = std::max(layer.step_last, step);
    layer.last = c;
    if (!c.blocked.empty() || !c.unmarked.empty())
      layer.reason = c.blocked.empty() ? c.unmarked : c.blocked;
    if (!c.blocked.empty()) return;
    layer.compared += c.compared;
    layer.flips += c.flips;
    layer.large_flips += c.large_flips;
    layer.differing += (1 - c.overlap) * static_cast<double>(c.compared);
    if (c.unmarked.empty()) layer.marked += c.scored;
    for (const Reported& one : Findings(c, layer, first)) {
      if (!layer.fired.insert(one.cause).second) continue;
      v1::Verdict verdict = Found(c, one);
      if (!first.empty()) Put(*verdict.mutable_details(), "first_divergent_layer", first);
      Place(site, step, step, verdict);
      out.Add(std::move(verdict));
    }
  }

  std::vector<Reported> Findings(const RoutingComparison& c, const Layer& layer,
                                 const std::string& first) const {
    std::vector<Reported> list;
    if (c.sentinels > 0) {
      list.push_back(
          {"sentinels", true, static_cast<double>(c.sentinels), "tokens with -1", "tokens",
           absl::StrFormat("Inference recorded -1 for %d of %d tokens that training routed.",
                           c.sentinels, c.joined),
           &c.first_sentinel});
    }
    if (c.zero_gates > 0) {
      list.push_back(
          {"zero-gates", true, static_cast<double>(c.zero_gates), "tokens with zero gates",
           "tokens",
           absl::StrFormat(
               "%d of %d tokens have gates of zero on one side only, and were not dropped.",
               c.zero_gates, c.joined),
           &c.first_zero});
    }
    if (c.short_sequences > 0) {
      list.push_back(
          {"length", true, static_cast<double>(c.short_sequences), "sequences cut short",
           "sequences",
           absl::StrFormat("Inference has %d tokens of sequence %d, training has %d; %d sequences "
                           "differ in this way.",
                           c.short_rows, c.short_sequence, c.short_of, c.short_sequences),
           nullptr});
    }
    if (c.renumbered > 0) {
      list.push_back({"renumbered", c.renumbered_fit == 1, static_cast<double>(c.renumbered),
                      "experts with another number", "experts",
                      absl::StrFormat("One renumbering of the experts turns training's choice into "
                                      "inference's in %s: expert %d of training is expert %d of "
                                      "inference, and %d experts differ.",
                                      c.renumbered_fit == 1
                                          ? absl::StrCat("all ", c.compared, " tokens")
                                          : absl::StrFormat("%.3g %% of the choices of %d tokens",
                                                            100 * c.renumbered_fit, c.compared),
                                      c.renumbered_from, c.renumbered_to, c.renumbered),
                      nullptr, true});
    }
    if (c.rules.proved()) {
      const RuleFinding rule = DescribeRules(c);
      list.push_back({rule.cause, true, rule.share, "tokens that the other rule moves", "share",
                      rule.text, &c.rule_example, c.rules.one_sided, rule.fix});
      return list;
    }
    const double share = layer.marked == 0 ? 0
                                           : static_cast<double>(layer.large_flips) /
                                                 static_cast<double>(layer.marked);
    if (c.large_flips > 0 && share > share_) {
      list.push_back(
          {"large-margin-flips", false, share, "tokens flipped by a large margin", "share",
           absl::StrFormat("%.2f %% of %d tokens choose other experts by margins above %g "
                           "times the median score difference of %.3g; %s is the first "
                           "divergent layer.",
                           100 * share, layer.marked, factor_, c.difference, first),
           &*std::max_element(c.large.begin(), c.large.end(), [](const auto& a, const auto& b) {
             return MarginOf(a) < MarginOf(b);
           })});
    }
    return list;
  }

  static const char* FixOf(const Reported& one) {
    if (one.fix != nullptr) return one.fix;
    if (one.error) {
      return "Load the experts' weights and the router's rows in one order on both sides: check "
             "the "
             "checkpoint's conversion and the expert-parallel ranks' offsets.";
    }
    if (one.proved) {
      return "Record inference's routing for every token that it computes (prefix cache off, no "
             "truncation), and never replay -1 or zero gates.";
    }
    return "Use the same arithmetic (router in fp32) and the same expert bias on both sides, sent "
           "with each weight update. Or replay inference's choices in training.";
  }

  v1::Verdict Found(const RoutingComparison& c, const Reported& reported) const {
    FindingBuilder built(reported.error ? v1::LEVEL_ERROR : v1::LEVEL_WARNING,
                         reported.proved ? v1::STRENGTH_PROVED : v1::STRENGTH_HEURISTIC);
    built.Title("training and inference route the same tokens differently")
        .Explain(reported.text)
        .Cause(reported.cause, 1)
        .Measured(reported.measured, reported.value, reported.unit)
        .Threshold(reported.proved || reported.error ? 0 : share_,
                   reported.proved  ? "every token of the input has its experts"
                   : reported.error ? "two experts or more, each in 90 % of its tokens"
                                    : "option flip-share")
        .Samples(c.joined)
        .Fix(FixOf(reported));
    if (reported.pair != nullptr && reported.pair->found)
      DescribePair(*reported.pair, *built.finding().mutable_witness());
    DescribeRouting(c, *built.verdict().mutable_details());
    built.verdict().add_assumptions("equal sequence ids and positions mean the same token");
    if (!reported.proved)
      built.verdict().add_assumptions("layers that were not recorded route in the same way");
    if (reported.pair == nullptr && !reported.error)
      built.verdict().add_assumptions("each dump contains complete sequences");
    return built.Take();
  }

  v1::Verdict Unscored(const Layer& layer) const {
    if (layer.compared < kFewTokens) return FewTokens(layer.compared);
    if (layer.flips > 0) return VerdictByChoices(layer.last, layer.totals(), share_);
    v1::Verdict verdict = Pass("both sides choose the same experts");
    verdict.add_assumptions("each side makes its own choices; neither replays the other's");
    return verdict;
  }

  static v1::Verdict FewTokens(uint64_t tokens) {
    return Inconclusive(
        absl::StrCat("few-tokens: ", tokens, " tokens were compared; the rule needs ", kFewTokens));
  }

  v1::Verdict Rest(const LayerSite& site, const Layer& layer) const {
    v1::Verdict verdict;
    const bool unscored = layer.last.blocked.empty() && layer.marked == 0 &&
                          (layer.reason.starts_with("no-scores") ||
                           layer.reason.starts_with("scores-differ-in-kind"));
    if (unscored) {
      verdict = Unscored(layer);
    } else if (!layer.reason.empty()) {
      verdict = Inconclusive(layer.reason);
    } else if (layer.marked < kFewTokens) {
      verdict = FewTokens(layer.marked);
    } else if (FlipsMuch(layer.last, layer.totals())) {
      verdict = VerdictByScores(layer.last, layer.totals());
    } else {
      verdict = Pass(layer.flips == 0 ? "both sides choose the same experts"
                                      : "the differences of the scores explain the flips");
    }
    DescribeRouting(layer.last, *verdict.mutable_details());
    Put(*verdict.mutable_details(), "tokens_of_all_steps", static_cast<double>(layer.compared));
    Put(*verdict.mutable_details(), "flips_of_all_steps", static_cast<double>(layer.flips));
    verdict.add_assumptions("equal sequence ids and positions mean the same token");
    Place(site, layer.step_first, layer.step_last, verdict);
    return verdict;
  }

  void Place(const LayerSite& site, int64_t first, int64_t last, v1::Verdict& verdict) const {
    verdict.mutable_site()->set_layer(site.layer);
    verdict.mutable_site()->set_op(site.op);
    verdict.mutable_site()->set_step_first(first);
    verdict.mutable_site()->set_step_last(last);
    if (runs_.given_up() > 0)
      Put(*verdict.mutable_details(), "steps_given_up", static_cast<double>(runs_.given_up()));
  }

  double factor_;
  double share_;
  TrainInferRuns runs_;
  std::map<LayerSite, Layer> layers_;
};

}  // namespace

CatalogueEntry train_infer_routing() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<TrainInferRouting>(options);
          }};
}

}  // namespace plumbline::rules
