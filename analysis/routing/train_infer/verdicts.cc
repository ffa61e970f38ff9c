#include "analysis/routing/train_infer/verdicts.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"

namespace plumbline::analysis {
namespace {

constexpr double kMostFlipped = 0.1;  // share of all choices, if scores are far apart

}  // namespace

double MostByRounding(int32_t experts, int32_t top_k) {
  constexpr double kLeast = 0.1, kDeviation = 0.125;
  if (!(top_k > 0) || !(top_k < experts)) return kLeast;
  const double share = static_cast<double>(top_k) / static_cast<double>(experts);
  // Bounds of t such that a normal value exceeds t with probability `share`.
  double low = -10, high = 10;
  for (int i = 0; i < 60; ++i) {
    const double t = (low + high) / 2;
    (std::erfc(t * std::numbers::sqrt2 / 2) / 2 > share ? low : high) = t;
  }
  const double density = std::exp(-low * low / 2) / std::sqrt(2 * std::numbers::pi);
  const double moved = density / share * kDeviation * std::numbers::inv_sqrtpi;
  return std::max(kLeast, moved);
}

void DescribeRouting(const RoutingComparison& c, google::protobuf::Struct& details) {
  const auto share = [&](uint64_t n) {
    return static_cast<double>(n) / static_cast<double>(std::max<uint64_t>(c.compared, 1));
  };
  Put(details, "tokens", static_cast<double>(c.joined));
  if (!c.blocked.empty()) return;
  Put(details, "set_overlap", c.overlap);
  Put(details, "flip_share", share(c.flips));
  Put(details, "order_only_share", share(c.order_only));
  Put(details, "weight_only_share", share(c.weight_only));
  Put(details, "largest_gate_difference", c.largest_gate_difference);
  if (!c.unmarked.empty()) return;
  Put(details, "large_flip_share", share(c.large_flips));
  Put(details, "noisy_flip_share", share(c.noisy_flips));
  Put(details, "median_score_difference", c.difference);
  Put(details, "score_spread", c.spread);
  Put(details, "median_flip_margin", c.median_flip_margin);
}

void DescribePair(const RoutingComparison::Pair& pair, google::protobuf::Struct& witness) {
  PutId(witness, "sequence", pair.train.key.sequence);
  Put(witness, "position", static_cast<double>(pair.train.key.position));
  Put(witness, "train_experts", ExpertList(pair.train.chosen));
  Put(witness, "inference_experts", ExpertList(pair.infer.chosen));
  if (pair.train.ranked.empty() || pair.infer.ranked.empty()) return;
  Put(witness, "train_margin", static_cast<double>(pair.train.margin));
  Put(witness, "inference_margin", static_cast<double>(pair.infer.margin));
}

std::string ExpertList(const std::vector<int16_t>& experts) {
  std::string text;
  for (int16_t e : experts) absl::StrAppend(&text, text.empty() ? "" : ", ", e);
  return text;
}

// Uses the choices of all steps, ignoring margins, because there are none without scores.
v1::Verdict VerdictByChoices(const RoutingComparison& last, const FlipTotals& totals,
                             double flip_share) {
  const double share = totals.share;
  const double most = MostByRounding(last.experts, last.top_k);
  const bool beyond = share > most;
  const bool unscored = last.unmarked.starts_with("no-scores");
  std::string words =
      absl::StrFormat("%d of %d tokens choose other experts, %.2g %% of all choices", totals.flips,
                      totals.compared, 100 * share);
  if (!(share > flip_share)) return Pass(words);
  FindingBuilder found(beyond ? v1::LEVEL_WARNING : v1::LEVEL_NOTE, v1::STRENGTH_HEURISTIC);
  found.Title("training and inference route the same tokens differently")
      .Explain(absl::StrCat(
          words, beyond     ? ": rounding of the scores does not explain this."
                 : unscored ? ". Without scores it is not known whether rounding is the cause."
                            : ". The recorded scores cannot be compared, so that it is not known "
                              "whether rounding is the cause."))
      .Cause("other-choices", beyond ? 0.8 : 0.5)
      .Measured("choices that only one side made", share, "share")
      .Threshold(
          beyond ? most : flip_share,
          beyond
              ? "a tenth, or the share that differences of an eighth of the scores' spread change"
              : "option flip-share")
      .Fix(unscored ? "Record the router scores of both sides: margins distinguish rounding from a "
                      "different arithmetic, bias or numbering of the experts."
                    : "Record the same scores on both sides (logits), with the expert bias, the "
                      "group limit and the score function that each side applies.")
      .Samples(totals.compared);
  found.verdict().add_assumptions(absl::StrCat("scores (",
                                               unscored ? "not recorded" : "not comparable",
                                               ") are nearly normal over the experts"));
  return found.Take();
}

bool FlipsMuch(const RoutingComparison& last, const FlipTotals& totals) {
  const double most = MostByRounding(last.experts, last.top_k);
  return totals.share > (last.far_apart() ? kMostFlipped : most);
}

// A tenth of the choices differ, but no margin decides: the scores are far apart, or nearly tied.
v1::Verdict VerdictByScores(const RoutingComparison& last, const FlipTotals& totals) {
  const bool far = last.far_apart();
  FindingBuilder found(far ? v1::LEVEL_WARNING : v1::LEVEL_NOTE, v1::STRENGTH_HEURISTIC);
  found.Title("training and inference route the same tokens differently")
      .Explain(absl::StrFormat(
          "%d of %d tokens choose other experts, %.2g %% of all choices; the scores of the two "
          "sides differ by %.3g (median); the scores of one token have a spread of %.3g: %s",
          totals.flips, totals.compared, 100 * totals.share, last.difference, last.spread,
          far ? "rounding of the scores does not explain this."
              : "the scores agree, and many choices are between nearly equal scores."))
      .Cause(far ? "other-scores" : "near-ties", far ? 0.8 : 0.6)
      .Measured("choices that only one side made", totals.share, "share")
      .Threshold(
          kMostFlipped,
          "customary: a tenth, with scores that differ by more than an eighth of their spread")
      .Fix(far ? "Find what one side adds to the scores: exploration noise or jitter that stays "
                 "active in evaluation, dropout, weights of another update."
               : "Compute router scores in fp32 and break ties alike on both sides (by the "
                 "expert's number), or replay inference's choices in training.")
      .Samples(totals.compared);
  return found.Take();
}

RuleFinding DescribeRules(const RoutingComparison& last) {
  const RuleDifference& rules = last.rules;
  const char* cause = rules.parts == "bias"     ? "other-bias"
                      : rules.parts == "groups" ? "other-groups"
                                                : "other-rule";
  const auto tokens = static_cast<double>(rules.tokens);
  return {
      cause,
      "Apply one rule on both sides: send the expert bias (`e_score_correction_bias`) with each "
      "weight update, and configure the same score function, groups and top groups.",
      static_cast<double>(rules.moved) / tokens,
      absl::StrFormat(
          "The sides select by different rules: %s. Applied to the same scores, the two recorded "
          "rules choose other experts for %d of %d tokens. Each side's choices follow its own "
          "rule; %d of %d tokens were routed differently.",
          rules.text, rules.moved, rules.tokens, last.flips, last.compared)};
}

}  // namespace plumbline::analysis
