#include "rules/bases/host_reported_rule.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# ledger/open-findings

A multiplier that rests on a run whose audit found something on causality or precision.

**Why.** A router that sees the next token is worth 0.03 nats, and each of ten changes measured on top of it is
measured with the leak. Then the leak, not the ten changes, explains the product of the ten.

**Bad.** A baseline run's report has `causality/moe-future-leak`, error: every multiplier of the ledger rests on it.

**Good.** Reports without such findings, or with findings that were suppressed for a reason.

**How to fix it.** Fix the findings, and run the ablation again. Where it does not matter, suppress it with a
reason (`plumb audit --suppressions FILE`) and write the report again.

**What it checks.** The runs with and without the change, and those of the stack: does the JSON report of an audit
that a run names (`report = "..."`) have a finding of `causality/*` or `precision/*` of level warning or error that is
not suppressed?

**What it cannot see.** Runs without a report. No run of an entry has one: inconclusive.

**Cost.** A report is read once.

**Strength.** `proved`: the report contains the finding with its own strength.
)page";

constexpr RuleInfo kInfo = {"ledger/open-findings",
                            "a multiplier from a run with open findings",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            {}};

}  // namespace

// `plumb ledger` reports its findings (audit/ledger/).
CatalogueEntry open_findings() { return {&kInfo, MakeHostReportedRule}; }

}  // namespace plumbline::rules
