// Judges figures of a ledger that contradict each other.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "audit/ledger/ledger_result.h"
#include "audit/ledger/words.h"
#include "audit/render/text_util.h"

namespace plumbline::audit {
namespace {

using rules::FindingBuilder;

std::string PercentOf(double share) { return absl::StrFormat("%.2f %%", 100 * share); }

v1::Verdict LeakFound(const std::string& name, const ledger::Leak& leak, double threshold) {
  return FindingBuilder(v1::LEVEL_WARNING, v1::STRENGTH_STATISTICAL)
      .Title("helps on the evaluation set and not on another one")
      .Explain(absl::StrCat("With ", name, " the loss falls by ", PercentOf(leak.mean),
                            " more than the loss on the second evaluation set does (mean of ",
                            Plural(leak.pairs, "pair"), "), ", ShortNumber(leak.z),
                            " standard deviations. A change that makes a better model helps on "
                            "both."))
      .Cause("leak")
      .Measured("difference of the two gains", leak.z, "standard deviations")
      .Threshold(threshold, "Student's t, 1 in 100 over all multipliers")
      .Samples(leak.pairs)
      .FalseAlarm("probability", 0.01)
      .Assume("the second evaluation set has nothing of what leaks into the first")
      .Witness("text",
               absl::StrCat("mean over the pairs of (ln loss without - ln loss with) - (the "
                            "same of other) = ",
                            ShortNumber(leak.mean)))
      .Fix(absl::StrCat("Look for evaluation data (or its near copies) in what ", name,
                        " trains or tunes on; measure it on a set made after it."))
      .Take();
}

v1::Verdict Overstated(const ledger::StackEstimate& stack) {
  return FindingBuilder(v1::LEVEL_ERROR, v1::STRENGTH_STATISTICAL)
      .Title("the stack gains less than the product that is claimed")
      .Explain(absl::StrCat("The claimed multipliers make ", FactorText(stack.claimed),
                            "; all changes together were measured at ", FactorText(stack.ln),
                            " (90 % ", FactorText(stack.ln - ledger::kNinety * stack.sd), " to ",
                            FactorText(stack.ln + ledger::kNinety * stack.sd), ") at ",
                            ShortNumber(stack.flops), " FLOPs."))
      .Cause("overstated")
      .Measured("claimed less measured, ln", stack.overstated(), "standard deviations")
      .Threshold(ledger::kOverstated, "1 in 100 where the claim is right")
      .Samples(1)
      .FalseAlarm("probability", 0.01)
      .Assume("the noise of seeds is that of the ablations")
      .Witness("claimed", std::exp(stack.claimed))
      .Witness("measured", std::exp(stack.ln))
      .Fix(
          "Plan with the stack's number. Leave out one change at a time to find what does the "
          "same twice, and mend the entries that are flagged.")
      .Take();
}

v1::Verdict ScaleBiasFound(const ledger::ScaleBias& bias) {
  const bool shrinks = bias.mean < 0;
  return FindingBuilder(v1::LEVEL_WARNING, v1::STRENGTH_STATISTICAL)
      .Title(shrinks ? "multipliers shrink together with scale"
                     : "multipliers grow together with scale")
      .Explain(absl::StrCat("From the smallest to the largest scale of each, ",
                            Plural(bias.judged, "multiplier"), " changed by ",
                            FactorText(bias.mean), " on average (", ShortNumber(bias.z()),
                            " standard deviations). Changes differ, and do not move together; what "
                            "small runs have in common does (their learning rate, their data, "
                            "their evaluation)."))
      .Cause(shrinks ? "shrinks" : "grows")
      .Measured("mean change with scale, ln", bias.z(), "standard deviations")
      .Threshold(ledger::kScaleBias, "3 in 1,000 without a shared bias")
      .Samples(bias.judged)
      .FalseAlarm("probability", 0.0027)
      .Assume("seeds, and the allowances for scale")
      .Witness("mean_change", bias.mean)
      .Fix(
          "Find what all small runs share: tune the baseline at each scale, and measure the "
          "changes at the largest scale alone.")
      .Take();
}

}  // namespace

void JudgeLeaks(const LedgerResult& result, std::vector<v1::Verdict>* out) {
  const ledger::Leaks leaks =
      ledger::FindLeaks(result.file.ledger, result.estimate, result.allowances);
  for (size_t i = 0; i < leaks.of.size(); ++i) {
    const std::string& name = result.file.ledger.multipliers[i].name;
    const ledger::Leak& leak = leaks.of[i];
    v1::Verdict verdict;
    if (leak.pairs == 0) {
      verdict = rules::Inconclusive(
          "no-other: no pair of its runs has the loss on a second evaluation set (other)");
    } else if (leak.found) {
      verdict = LeakFound(name, leak, leaks.threshold);
    } else {
      verdict = rules::Pass("both: it helps alike on both evaluation sets");
    }
    out->push_back(LedgerVerdict("ledger/evaluation-leak", name, std::move(verdict)));
  }
}

void JudgeClaims(const LedgerResult& result, std::vector<v1::Verdict>* out) {
  v1::Verdict verdict;
  if (!result.estimate.stack) {
    verdict = rules::Inconclusive("no-stack: all changes together were not run");
  } else if (result.estimate.stack->overstated() >= ledger::kOverstated) {
    verdict = Overstated(*result.estimate.stack);
  } else {
    verdict = rules::Pass("claimed: the stack does not contradict the product of the claims");
  }
  out->push_back(LedgerVerdict("ledger/overstated", "stack", std::move(verdict)));
}

void JudgeScaleBias(const LedgerResult& result, std::vector<v1::Verdict>* out) {
  const ledger::ScaleBias bias = ledger::FindScaleBias(result.estimate, result.allowances);
  v1::Verdict verdict;
  if (bias.judged == 0) {
    verdict = rules::Inconclusive("one-scale: no multiplier was measured at two scales");
  } else if (bias.found()) {
    verdict = ScaleBiasFound(bias);
  } else {
    verdict = rules::Pass("alike: multipliers do not move together with scale");
  }
  out->push_back(LedgerVerdict("ledger/scale-bias", "", std::move(verdict)));
}

}  // namespace plumbline::audit
