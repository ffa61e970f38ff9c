#include "rules/bases/host_reported_rule.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# ledger/scale-bias

From small scales to large ones the multipliers shrink, or grow, all together.

**Why.** With scale, some changes gain and others lose. If all of them lose, the cause is something that small runs
have in common. 0.5 % of loss that every small ablation gains by a bug is x1.09 a change, and x1.4 for four of them.

**Bad.** Six changes are each worth x1.25 at 1e19 FLOPs and x1.08 at 1e20.

**Good.** Some shrink and some grow.

**How to fix it.** Find what the small runs share: a learning rate that was tuned for one size, a short warm-up, their
data, their evaluation. Fix the baseline there, or measure only at the largest scale.

**What it checks.** For each multiplier of two scales or more Y at its largest less Y at its smallest scale (ln
multiplier); their mean in standard deviations, in which runs that several share count as shared, and so do the
allowances. 3 or more is a finding.

**What it cannot see.** A bias that all scales share. Multipliers of one scale; where all are: inconclusive.

**Cost.** None.

**Strength.** `statistical`: 3 in 1,000 where each change goes its own way within the allowance (simulated: 0 to 7).
)page";

constexpr RuleInfo kInfo = {"ledger/scale-bias",
                            "multipliers move together with scale",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            {}};

}  // namespace

// `plumb ledger` reports its findings (audit/ledger/).
CatalogueEntry scale_bias() { return {&kInfo, MakeHostReportedRule}; }

}  // namespace plumbline::rules
