#include <memory>

#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/run-died

A process of the run ended by an exception, by a signal, or without a message.

**Why.** When one rank of 1,024 dies, the other 1,023 raise communication errors minutes later, and their
1,023 stack traces hide the one that shows the cause.

**Bad.** Rank 3 raised `ValueError` at train.py:57 in step 812, its last loss was 2.31; seven others
followed because communication failed.

**Good.** Every process called `run.finish()`, or came to the end of its program. A rank that cannot be
reached (its host sent nothing before the connection broke, or the server was not running) is not
reported as dead: `inconclusive`. The same is true for a record that stops early, unless others reported their
end or are 64 steps further. Rollout workers that are killed after all trainers reported their end.

**How to fix it.** Read the end of the log of the process that is named first. If it reported nothing,
read the log of its host (`dmesg`: out of memory; the scheduler's log). A live incident closes by itself when the run
continues: as a new attempt, or because the rank is back.

**What it checks.** Every process reports its end: `run.finish()`, or the end of the interpreter. If it does
not end normally, it also reports how: the uncaught exception with its type and line
(`sys.excepthook`, `threading.excepthook`; C and C++: `plumbline_note_ending`), SIGTERM, an exit status that
is not 0. A process that reported nothing, whose connection broke, and that did not reconnect within the
grace period (`plumbd --grace`), is *gone*: SIGKILL, a segmentation fault, `os._exit`, out of memory. The
finding names the process that ended first, its step and its last loss. The other ends are consequences, counted by
kind. The order is: the earliest error of a process itself; then a process that ended without a
message (before it, if it stopped two steps earlier); then errors of communication; then requests to end.

| cause | level |
|---|---|
| `exception`, `gone`, `gone-together` (all ranks), `signal` | error |
| `exit-status`, `unwinding` (the run was closed while an exception was being raised; it may have been caught later) |
warning; error where others ended with it |
| `terminated` (SIGTERM, SIGHUP: preemption) | warning |
| `interrupted` (by hand), `thread-exception` (the process itself ended well) | note |

*Of a trainer's log* `plumb audit` reads its last lines: the uncaught exception (the first of several ranks, the last
of a chain; under a logger's stamps,
too), GPU memory that ran out, a kill, a crash (a segmentation fault, an abort, a panic), a scheduler's or a
launcher's line (`DUE TO TIME LIMIT`: `terminated`; an exit status alone:
`exit-status`; the rank and signal of torchrun's *Root Cause*), or a collective that timed out, with the ranks that
waited and those whose last enqueued work is before it (`SeqNum`, `OpType`, `last enqueued NCCL
work`), after the last step of its rows, or the trainer's sentence that it stops because its loss is NaN (`Loss is nan, stopping training`:
`non-finite-loss`). If rows with a loss or a sentence of success (`Training complete.`) follow, there is no finding. There is
also none for an exception that Python ignored (`Exception ignored in`).
Of the logs of several ranks: a rank that reported as often as the others did (nine rows of ten, 20 at least), and has
no row where another one has 10 more,
is a warning (`rank-silent`): it hangs, or it died without a word. Nothing is reported of a rank that the newest attempt has not.

**What it cannot see.** How a process ended that reported nothing: from outside a segmentation fault looks like
SIGKILL. An exit status given by `raise SystemExit(1)` instead of `sys.exit(1)`. Clocks of hosts order the
exceptions of different hosts: if they differ by more than the time between the faults, another rank is
named first. A proxy that interrupts connections for longer than the grace period looks like the end
of the processes that use it, until they are back.

**Cost.** A lookup a row of scalars; nothing in the trainer until it ends.

**Strength.** `proved`: processes reported it, or they do not exist any more; `bounded` while processes
continue or the end of some is not known, because one of them may have ended first.

**Sources.** torchrun's error propagation (`torch.distributed.elastic.multiprocessing.errors`), which takes the
earliest timestamp as the root cause; Python's `sys.excepthook` and `threading.excepthook`.
)page";

constexpr RuleInfo kInfo = {"health/run-died",
                            "a process ended with an error, or without a message",
                            v1::LEVEL_ERROR,
                            "0.1.0",
                            kPage,
                            {}};

// The engine reports the findings of this rule, based on the state of processes
// (engine/process_ends.h, lib/process_end.h). The rule judges no evidence.
class RunDied : public Rule {
 public:
  bool judges_evidence() const override { return false; }
  void Persist(Archive& /*archive*/) override {}
};

}  // namespace

CatalogueEntry run_died() {
  return {&kInfo, [](const Options& /*options*/) -> std::unique_ptr<Rule> {
            return std::make_unique<RunDied>();
          }};
}

}  // namespace plumbline::rules
