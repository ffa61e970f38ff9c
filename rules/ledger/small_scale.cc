#include "rules/bases/host_reported_rule.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# ledger/small-scale

A change that was measured at less than a fifth of the compute that it is for.

**Why.** What helps a model of 1e19 FLOPs may be what a model of 5e20 learns by itself. Between those two lie 1.7
decades; the ledger allows each change 2 % per decade and all of them together 0.5 % more, without better knowledge.

**Bad.** A ledger for 5e20 FLOPs, and `c` was measured at 1e19 alone.

**Good.** The largest scale is 1e20 FLOPs: a fifth.

**How to fix it.** Measure the change once more at a fifth of the target or above, two seeds with and without it.

**What it checks.** The largest scale of the change against `target` / 5.

**What it cannot see.** A change that turns around between a fifth of the target and the target.

**Cost.** None.

**Strength.** `heuristic`: a fifth is customary; how a change continues with scale is not known.
)page";

constexpr RuleInfo kInfo = {"ledger/small-scale",
                            "a multiplier that was measured far below the scale of its use",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            {}};

}  // namespace

// `plumb ledger` reports its findings (audit/ledger/).
CatalogueEntry small_scale() { return {&kInfo, MakeHostReportedRule}; }

}  // namespace plumbline::rules
