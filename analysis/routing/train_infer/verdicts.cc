#include "analysis/routing/train_infer/verdicts.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"

namespace plumbline::rules {
namespace {

constexpr double kMostFlipped = 0.1;  // of all choices, where scores are far apart

}  // namespace

// By the choices of all steps, whatever the margins: there are none without scores.
v1::Verdict VerdictByChoices(const RoutingComparison& last, const FlipTotals& totals,
                             double flip_share) {
  const double share = totals.share;
  const double most = MostByRounding(last.experts, last.top_k);
  const bool beyond = share > most;
  std::string words =
      absl::StrFormat("%d of %d tokens choose other experts, %.2g %% of all choices", totals.flips,
                      totals.compared, 100 * share);
  if (!(share > flip_share)) return Pass(words);
  v1::Verdict verdict = MakeFinding(
      {.level = beyond ? v1::LEVEL_WARNING : v1::LEVEL_NOTE,
       .strength = v1::STRENGTH_HEURISTIC,
       .title = "training and inference route the same tokens differently",
       .explanation = absl::StrCat(
           words, beyond ? ": rounding of the scores does not do that."
                         : ". Without scores it is not known whether rounding is the reason."),
       .cause = "other-choices",
       .measured = "choices that one side alone made",
       .value = share,
       .unit = "share",
       .threshold = beyond ? most : flip_share,
       .threshold_source =
           beyond ? "a tenth, or what differences of an eighth of the scores' spread move"
                  : "option flip-share",
       .fix = "Record both sides' router scores: margins tell rounding from another arithmetic, "
              "bias or numbering of the experts.",
       .confidence = beyond ? 0.8 : 0.5});
  verdict.mutable_finding()->set_sample_size(totals.compared);
  verdict.add_assumptions("scores, which were not recorded, are nearly normal over the experts");
  return verdict;
}

bool FlipsMuch(const RoutingComparison& last, const FlipTotals& totals) {
  const double most = MostByRounding(last.experts, last.top_k);
  return totals.share > (last.far_apart() ? kMostFlipped : most);
}

// Choices differ by the tenth, and no margin tells: the scores are far apart, or nearly tied.
v1::Verdict VerdictByScores(const RoutingComparison& last, const FlipTotals& totals) {
  const bool far = last.far_apart();
  v1::Verdict verdict = MakeFinding(
      {.level = far ? v1::LEVEL_WARNING : v1::LEVEL_NOTE,
       .strength = v1::STRENGTH_HEURISTIC,
       .title = "training and inference route the same tokens differently",
       .explanation = absl::StrFormat(
           "%d of %d tokens choose other experts, %.2g %% of all choices; the two sides' scores "
           "differ by %.3g (median), where one token's have a spread of %.3g: %s",
           totals.flips, totals.compared, 100 * totals.share, last.difference, last.spread,
           far ? "rounding of the scores does not do that."
               : "they agree, and many choices are between scores that are nearly equal."),
       .cause = far ? "other-scores" : "near-ties",
       .measured = "choices that one side alone made",
       .value = totals.share,
       .unit = "share",
       .threshold = kMostFlipped,
       .threshold_source = "customary: a tenth, beside scores more than an eighth of their "
                           "spread apart",
       .fix = far ? "Look for what one side adds to the scores: exploration noise or jitter "
                    "that evaluation leaves on, dropout, weights of another update."
                  : "Compute router scores in fp32 and break ties alike on both sides (by the "
                    "expert's number), or replay inference's choices in training.",
       .confidence = far ? 0.8 : 0.6});
  verdict.mutable_finding()->set_sample_size(totals.compared);
  return verdict;
}

}  // namespace plumbline::rules
