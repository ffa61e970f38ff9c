#include <memory>

#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# meta/unused-suppression

A suppression that matched nothing, or has expired.

**Why.** A suppression is written for one finding and outlives it. If it matched nothing for 90 days, it
can only hide the next fault of this kind.

**Bad.** `rule = "causality/*"`, `layer = "layers.3"`, and the layer is called `layers.03` since
the model was renamed: the leak is reported again, and the entry has no effect.

**Good.** Every entry matches, names why, and has a date for a review.

**How to fix it.** Remove the entry. Where it should have matched, correct it: `plumb query` and the
report show rule, layer and fingerprint as they are. If it has expired, fix the hidden fault, or
give it a new date with a valid reason.

**What it checks.** Each entry of the suppressions file (`plumb audit --suppressions FILE`,
`[suppressions] file` of plumbd) that applies to a run: was its date over when the run was judged
(`expired`), and did it ever match a finding by the end of the run (`unused`)? An entry whose rules did
not run is not judged.

The file is TOML, an entry a thing that is known:

```
[[suppress]]
rule = "causality/*"                  # a glob; what follows narrows it down
layer = "layers.3"                    # optional, as are run, fingerprint, and steps = [100, 200]
reason = "capacity follows the scores by design until the router is replaced"
expires = 2027-01-31                  # a date: the last day on which it holds
```

**What it cannot see.** An entry that matches more than it was written for. Where a server judges many
runs, an entry counts as used once it has matched in any of them.

**Cost.** None.

**Strength.** `proved`: matches are counted, dates compared.
)page";

constexpr RuleInfo kInfo = {"meta/unused-suppression",
                            "a suppression matched nothing or expired",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            {}};

// Judges no evidence. The engine reports the findings of this rule (rules/suppressions.h).
class UnusedSuppression : public Rule {
 public:
  bool judges_evidence() const override { return false; }
  void Persist(Archive& /*archive*/) override {}
};

}  // namespace

CatalogueEntry unused_suppression() {
  return {&kInfo, [](const Options& /*options*/) -> std::unique_ptr<Rule> {
            return std::make_unique<UnusedSuppression>();
          }};
}

}  // namespace plumbline::rules
