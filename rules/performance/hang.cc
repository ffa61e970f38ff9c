#include <memory>

#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# performance/hang

Ranks stand still, and the others wait for them.

**Why.** One rank that does not launch a collective holds all others until the communication library's
time limit, 10 minutes with PyTorch's NCCL backend: 4,096 GPUs that wait so long cost 683 GPU hours, and
their utilisation reads 100 % meanwhile.

**What it checks.** Every agent sends a heartbeat each half second from a thread of its own, which says how
long its trainer has stood in the same step. `plumbd` takes the processes of a run, an attempt and a role
together: when all of them have stood for longer than 10 s (`liveness.hang_seconds`), 5 median steps and
twice the longest pause that the run came back from, it names those that stand in the earliest step. A rank
whose connection broke is named instead: `process-gone` where its heartbeats came until then,
`network-lost` where it had fallen silent before. It is an `error` where somebody can be named; where
all stand in one step it is a `warning`, and an `error` after 30 times as long.

**Bad.** Ranks 0, 1 and 3 are in step 20 and rank 2 is in step 19, for 12 s where a step takes .5 s.

**Good.** A checkpoint of two minutes inside `run.span("checkpoint")`; the first three steps of a
process, whatever they compile; a pause half as long again as one that the run came back from.

**How to fix it.** `stuck`: take the stacks of the named ranks (`py-spy dump`, `gdb`), and the flight
recorder with NCCL. `process-gone`: the exit status and the kernel's log (out of memory); the others wait
for ever, so restart. `network-lost`: the host and its network. A stage that is meant to be long:
declare it with `run.span("checkpoint")`, `"evaluation"` or `"compile"`.

**What it cannot see.** Who holds the others where all stand in the same step: steps do not tell. Hangs
of a run of which any process is not heard of. A run of which five steps were not timed. Records and dumps
have no heartbeats, so an offline audit says nothing of this rule; that of a stored run
(`plumb audit --server`) repeats what was said.

**Cost.** A heartbeat of some 40 bytes each half second when there is nothing else to send.

**Strength.** `bounded`: that nobody goes on is measured; that it is no stage which takes so long is
an assumption, and the finding says so.
)page";

constexpr RuleInfo kInfo = {"performance/hang",
                            "ranks stand still, and the others wait",
                            v1::LEVEL_ERROR,
                            "0.1.0",
                            kPage,
                            {}};

// plumbd speaks for it, by the clock (server/stream/liveness.h, analysis/processes/hang_verdict.h):
// what it judges is no evidence.
class Hang : public Rule {
 public:
  bool judges_evidence() const override { return false; }
  void Persist(Archive& /*archive*/) override {}
};

}  // namespace

CatalogueEntry hang() {
  return {&kInfo, [](const Options& /*options*/) -> std::unique_ptr<Rule> {
            return std::make_unique<Hang>();
          }};
}

}  // namespace plumbline::rules
