#include "rules/bases/host_reported_rule.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# ledger/overstated

All changes together gain less than the product of what is claimed for each.

**Why.** Only changes that looked good are claimed: if four of nine are kept, each claim includes the chance that made
it look good. Four claims of x1.62 together were x1.48 when they were run together, and plans for x1.62 miss by 9 %.

**Bad.** Claimed x1.623; the stack is x1.481, 90 % x1.397 to x1.570: 2.6 standard deviations.

**Good.** A product of claims within the stack's interval.

**How to fix it.** Plan with the stack's number. Check the flagged entries first. Then leave out one change at a
time: this shows which changes have the same effect.

**What it checks.** The sum of ln `claimed` of the kept changes against the stack, in standard deviations of the stack
(seeds, the baseline's curve, 0.05 % of loss that all ablations may share): 2.33 or more is a finding.

**What it cannot see.** Which of the changes is overstated. Without a stack: inconclusive.

**Cost.** None.

**Strength.** `statistical`: at most one honest ledger in 100 has such a finding (simulated: 3 in 1,000).
)page";

constexpr RuleInfo kInfo = {"ledger/overstated",
                            "the product claims more than the stack shows",
                            v1::LEVEL_ERROR,
                            "0.1.0",
                            kPage,
                            {}};

}  // namespace

// `plumb ledger` reports its findings (audit/ledger/).
CatalogueEntry overstated() { return {&kInfo, MakeHostReportedRule}; }

}  // namespace plumbline::rules
