#include <memory>

#include "analysis/frame/frame.h"
#include "rules/bases/timeline_rule.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# performance/data-stall

The GPU waits for data.

**Why.** A loader that is 10 ms slower than a step of 200 ms costs nothing with prefetching until its queue is empty,
and from then on 5 % of every step, on every rank: the slowest loader of 64 determines the speed of all.

**Bad.** `40 data-loading spans take 22 % of the time, 21 % with the GPU idle`.

**Good.** `40 data-loading spans take 12 % of the time, 0.3 % with the GPU idle`: the GPU works during the loading.

**How to fix it.** More workers, `pin_memory=True`, `persistent_workers=True`, a larger `prefetch_factor`; copy with
`non_blocking=True`; decode and tokenise ahead of the run; look at the file system (many small files, a cold cache).

**What it checks.** Of the spans of data loading on threads that launch kernels (`DataLoader`, `get_batch`, a span called `data`, ...):
their union, and how much of it finds the GPU idle. A finding where that is 5 % of the span or more, in at least three spans.
*Of a trainer's own spans* (`run.span("data")`, and the waits for torch's `DataLoader`, which `run.watch` times by itself; live, and from a run
record): the same of the thread that ends the steps, in blocks of 16, later 64 steps. Without a GPU the loop itself waits: a warning where
the median span, as often as there are spans, takes 20 % of the time and at least 2 ms, else a note (one pause, a small trainer that loads in its own
thread). With a GPU it is not known whether the GPU is idle in the meantime, and the finding is a note.

**Strength.** `heuristic`: 5 % is customary.

**Inconclusive when** there are no GPU events, no launches, or no such span on a launching thread.

**What it cannot see.** Loading that no span names: annotate it, `with torch.profiler.record_function("data"):`, or live `with run.span("data"):`.

**Cost.** None in addition to `performance/idle-comb`.
)page";

constexpr OptionInfo kOptions[] = {
    {"share", OptionInfo::Type::kNumber, "of the span", "0.05",
     "customary: 5 % is 5 %: one GPU in twenty", "", 0, 1},
};

constexpr RuleInfo kInfo = {"performance/data-stall",
                            "the GPU waits for data",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            kOptions};

constexpr WaitRule::Words kWordsOfData = {
    v1::TimelineGap::CAUSE_DATA_LOADING, "the GPU waits for data", "data-loading spans",
    "annotate the loader: record_function(\"data\")",
    "Use more loader workers, pin_memory, prefetch_factor; decode and tokenise before the run."};

}  // namespace

CatalogueEntry data_stall() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<WaitRule>(kWordsOfData, options);
          }};
}

}  // namespace plumbline::rules
