#include "rules/bases/host_reported_rule.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# ledger/not-on-stack

A kept change that was never removed from the run with all changes.

**Why.** Two changes that do the same thing are each worth x1.10 alone and x1.10 together, not x1.21. Ablations on the
baseline cannot show this, however many there are.

**Bad.** Four changes, each measured on the baseline, and no run of all four.

**Good.** The stack at 1e20 FLOPs with two seeds, and one leave-out of each change.

**How to fix it.** Run all kept changes together and list the runs under `[stack]`. Then leave out one at a time.

**What it checks.** Is there a `[stack]`, and a `[[stack.leave_out]]` with the change's name? Changes that are not kept
are in no stack and are not judged.

**What it cannot see.** A leave-out finds a redundant change in 1 of 100 ledgers at the usual noise. `plumb ledger`
lists leave-outs with the smallest effect that each could show, and concludes nothing from their silence.

**Cost.** None.

**Strength.** `proved`: the ledger's own runs are looked up. A note: the stack's number is right without it.
)page";

constexpr RuleInfo kInfo = {"ledger/not-on-stack",
                            "a multiplier that was not measured on top of the others",
                            v1::LEVEL_NOTE,
                            "0.1.0",
                            kPage,
                            {}};

}  // namespace

// `plumb ledger` reports its findings (audit/ledger/).
CatalogueEntry not_on_stack() { return {&kInfo, MakeHostReportedRule}; }

}  // namespace plumbline::rules
