#include "rules/bases/host_reported_rule.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/hang-between-steps

The trainer's process runs, but it begins no step.

**Why.** With `for batch in loader: with run.step(i): …` a loader that blocks leaves no open step. Every process lives, no collective
waits, no time limit of a communication library runs, and the last loss was fine. A run whose loader blocked for 28 minutes looked healthy.

**Bad.** `No step has begun for 61.2 s after step 412, where a step takes 0.5 s. The process is alive: its heartbeats arrive.`

**Good.** An evaluation, a checkpoint or a compilation inside its `run.span(…)`, of any length. `with run.pause():` around a wait for a
resource or a person. Steps whose median is 10 s, and 3 minutes between two of them. A run that called `run.finish()`.

**How to fix it.** Take the stack of the main thread: `py-spy dump -p PID` on the host that the finding names. It shows the line that blocks: a
worker of the loader that died (`num_workers`), a dataset on a network file system, a queue that nothing fills. If the wait is intended,
declare it: `with run.pause():`. After the last step call `run.finish()`; in a notebook, too.

**What it checks.** Every agent sends a heartbeat each second from a thread of its own, while the loop blocks, too. `plumbd` reports a run if it
hears from all processes of its newest attempt, all have ended a step, none is within a stage, and nothing has begun or ended in any of them for
max(60 s, 20 × the median step). 60 s is `liveness.between_steps_seconds`. The median is of the last 33 steps, pauses between steps included. If the
loop was too fast or too short for a median, the limit is 20 mean steps, between 60 s and 5 minutes. It is a `warning`, and an `error` 5 minutes
later (5 times the setting). The finding states what the process with the lowest rank did last: the step that it ended and the last stage.

The incident closes with the next step, or when the run ends well. Its history contains how long the run was blocked.

**What it cannot see.** A run that has ended no step yet. Ranks of which some are within a step or a stage: `performance/hang` reports those.
A process that sends nothing (stopped, or its network lost) and one that ended: `performance/hang` and `health/run-died`. Rollout workers,
which wait for their trainer. Records have no heartbeats, so an audit of them reports nothing; that of a stored run
(`plumb audit --server`) repeats what the
server found.

**Cost.** Nothing in the trainer beyond its heartbeats.

**Strength.** `proved`: by the process's own clock no step and no stage began or ended for so long.
)page";

constexpr RuleInfo kInfo = {"health/hang-between-steps",
                            "the trainer is alive but begins no step",
                            v1::LEVEL_ERROR,
                            "0.1.0",
                            kPage,
                            {}};

}  // namespace

// plumbd reports the findings of this rule, based on time (server/stream/liveness_between.cc,
// analysis/processes/stopped_verdict.h).
CatalogueEntry hang_between_steps() { return {&kInfo, MakeHostReportedRule}; }

}  // namespace plumbline::rules
