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

using analysis::FindingBuilder;

std::string PercentOf(double share) { return absl::StrFormat("%.2f %%", 100 * share); }

v1::Verdict LeakFound(const std::string& name, const ledger::Leak& leak, double threshold) {
  return FindingBuilder(v1::LEVEL_WARNING, v1::STRENGTH_STATISTICAL)
      .Title("helps on the evaluation set, but not on another one")
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
      .Assume("the leaked data of the first evaluation set are not in the second one")
      .Witness("text",
               absl::StrCat("mean over the pairs of (ln loss without - ln loss with) - (the "
                            "same of other) = ",
                            ShortNumber(leak.mean)))
      .Fix(
          absl::StrCat("Look for evaluation data (or its near copies) in what ", name,
                       " uses for training or tuning. Measure it on an evaluation set made later."))
      .Take();
}

v1::Verdict Overstated(const ledger::StackEstimate& stack) {
  return FindingBuilder(v1::LEVEL_ERROR, v1::STRENGTH_STATISTICAL)
      .Title("the stack gains less than the claimed product")
      .Explain(absl::StrCat("The product of the claimed multipliers is ", FactorText(stack.claimed),
                            "; all changes together measure ", FactorText(stack.ln), " (90 % ",
                            FactorText(stack.ln - ledger::kNinety * stack.sd), " to ",
                            FactorText(stack.ln + ledger::kNinety * stack.sd), ") at ",
                            ShortNumber(stack.flops), " FLOPs."))
      .Cause("overstated")
      .Measured("ln(claimed / measured)", stack.overstated(), "standard deviations")
      .Threshold(ledger::kOverstated, "1 in 100 if the claim is correct")
      .Samples(1)
      .FalseAlarm("probability", 0.01)
      .Assume("the noise of seeds equals that of the ablations")
      .Witness("claimed", std::exp(stack.claimed))
      .Witness("measured", std::exp(stack.ln))
      .Fix(
          "Plan with the number of the stack. Leave out one change at a time to find changes with "
          "the same effect, and fix the flagged entries.")
      .Take();
}

v1::Verdict ScaleBiasFound(const ledger::ScaleBias& bias) {
  const bool shrinks = bias.mean < 0;
  return FindingBuilder(v1::LEVEL_WARNING, v1::STRENGTH_STATISTICAL)
      .Title(shrinks ? "multipliers shrink together with scale"
                     : "multipliers grow together with scale")
      .Explain(absl::StrCat(
          "From the smallest to the largest scale of each, ", Plural(bias.judged, "multiplier"),
          " changed by ", FactorText(bias.mean), " on average (", ShortNumber(bias.z()),
          " standard deviations). Independent changes do not shift together; a common property of "
          "small runs does (their learning rate, data or evaluation)."))
      .Cause(shrinks ? "shrinks" : "grows")
      .Measured("mean change with scale, ln", bias.z(), "standard deviations")
      .Threshold(ledger::kScaleBias, "3 in 1,000 without a shared bias")
      .Samples(bias.judged)
      .FalseAlarm("probability", 0.0027)
      .Assume("seeds, and the tolerances for scale")
      .Witness("mean_change", bias.mean)
      .Fix(
          "Find the common property of all small runs: tune the baseline at each scale, and "
          "measure the changes only at the largest scale.")
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
      verdict = analysis::Inconclusive(
          "no-other: no pair of its runs has the loss on a second evaluation set (other)");
    } else if (leak.found) {
      verdict = LeakFound(name, leak, leaks.threshold);
    } else {
      verdict = analysis::Pass("both: it helps equally on both evaluation sets");
    }
    out->push_back(LedgerVerdict("ledger/evaluation-leak", name, std::move(verdict)));
  }
}

void JudgeClaims(const LedgerResult& result, std::vector<v1::Verdict>* out) {
  v1::Verdict verdict;
  if (!result.estimate.stack) {
    verdict = analysis::Inconclusive("no-stack: all changes together were not run");
  } else if (result.estimate.stack->overstated() >= ledger::kOverstated) {
    verdict = Overstated(*result.estimate.stack);
  } else {
    verdict = analysis::Pass("claimed: the stack does not contradict the product of the claims");
  }
  out->push_back(LedgerVerdict("ledger/overstated", "stack", std::move(verdict)));
}

void JudgeScaleBias(const LedgerResult& result, std::vector<v1::Verdict>* out) {
  const ledger::ScaleBias bias = ledger::FindScaleBias(result.estimate, result.allowances);
  v1::Verdict verdict;
  if (bias.judged == 0) {
    verdict = analysis::Inconclusive("one-scale: no multiplier was measured at two scales");
  } else if (bias.found()) {
    verdict = ScaleBiasFound(bias);
  } else {
    verdict = analysis::Pass("alike: multipliers do not change together with scale");
  }
  out->push_back(LedgerVerdict("ledger/scale-bias", "", std::move(verdict)));
}

}  // namespace plumbline::audit
