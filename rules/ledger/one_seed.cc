#include "rules/bases/host_reported_rule.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# ledger/one-seed

A change whose largest scale was run with one seed only, or with no seed that both sides have.

**Why.** Two seeds of one model differ by 0.2 to 0.4 % in loss. At G = 16.8 that is a factor of 1.05 in compute for
a pair: as much as most changes are worth. With two pairs the ledger can measure how much seeds differ; with one pair
it cannot check the claim.

**Bad.** `c` x1.20, from one run of 3.449 against 3.496 at 1e19 FLOPs.

**Good.** Seeds 0 and 1, each with and without the change, at the largest scale.

**How to fix it.** Run the change again at that scale with another seed, and the baseline with the same one.
`plumb ledger` names the pair that narrows the product most.

**What it checks.** The pairs (same FLOPs, same seed, with and without the change) at the largest scale at which the
change was measured: fewer than two is a finding. Arms without a seed in common have no pair.

**What it cannot see.** Seeds that are the same run under two names.

**Cost.** None.

**Strength.** `proved`: the ledger's own runs are counted.
)page";

constexpr RuleInfo kInfo = {"ledger/one-seed",
                            "a multiplier measured with fewer than two pairs of seeds",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            {}};

}  // namespace

// `plumb ledger` reports its findings (audit/ledger/).
CatalogueEntry one_seed() { return {&kInfo, MakeHostReportedRule}; }

}  // namespace plumbline::rules
