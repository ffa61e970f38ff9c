#include "rules/bases/host_reported_rule.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# ledger/evaluation-leak

A change lowers the loss on the evaluation set, but lowers it less, or not at all, on a second set.

**Why.** 0.1 % of an evaluation set in the training data lowers its loss by more than most changes do. A gain of 0.6 %
in loss on one set and 0.1 % on the other is a claimed multiplier of x1.16, but a real one of x1.02.

**Bad.** `d`: loss falls by 1.2 %, `other` by 0.5 %, alike in four pairs: 7.4 standard deviations, threshold 3.7.

**Good.** A change that is worth as much on both sets, or more on the second.

**How to fix it.** Look for the evaluation set, or near copies of it, in what the change trains, tunes or filters on.
Measure it on a set that was made after it.

**What it checks.** For each pair x = (fall of ln loss) - (fall of ln `other`). Its mean over the change's pairs, D, is
held against the noise: four assumed pairs of 0.2 %, what pairs of one scale differ by, and from six multipliers on how
far their means lie apart; 0.05 % is allowed for. A finding where D > 0.1 % and D is beyond Student's t at
1 - 0.01 / (number of multipliers).

**What it cannot see.** A leak of both sets. A change that moves probability from one kind of text to the other without
any leak looks the same: look at what it does before it is thrown out. Without `other`: inconclusive.

**Cost.** None.

**Strength.** `statistical`: at most one ledger in 100 without a leak has such a finding (simulated: 1 in 1,000).
)page";

constexpr RuleInfo kInfo = {"ledger/evaluation-leak",
                            "a multiplier that helps on one evaluation set only",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            {}};

}  // namespace

// `plumb ledger` reports its findings (audit/ledger/).
CatalogueEntry evaluation_leak() { return {&kInfo, MakeHostReportedRule}; }

}  // namespace plumbline::rules
