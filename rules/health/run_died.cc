#include <memory>

#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/run-died

A process of the run ended by an exception, by a signal, or without a word.

**Why.** When one rank of 1,024 dies, the other 1,023 raise communication errors minutes later, and their
1,023 stack traces hide the one that tells why.

**What it checks.** Every process says goodbye: `run.finish()`, or the end of the interpreter. With it goes
how it ends, where that is not well: the exception that nobody caught with its type and line
(`sys.excepthook`, `threading.excepthook`; C and C++: `plumbline_note_ending`), SIGTERM, an exit status that
is not 0. Who said nothing and whose connection broke while it was heard, and who did not come back within
the grace (`plumbd --grace`), is *gone*: SIGKILL, a segmentation fault, `os._exit`, out of memory. The finding
names who went first, in which step, with its last loss; the others are consequences, counted by how they
ended. First is the earliest error of its own; then who said nothing, and before it where it stood two
steps while the other went on; then errors of communication; then who was asked to end.

| cause | level |
|---|---|
| `exception`, `gone`, `gone-together` (all ranks), `signal` | error |
| `exit-status`, `unwinding` (the run was closed while an exception was on its way; somebody may have caught it) | warning; error where others ended with it |
| `terminated` (SIGTERM, SIGHUP: preemption) | warning |
| `interrupted` (by hand), `thread-exception` (the process itself ended well) | note |

*Of a trainer's log* `plumb audit` reads how its last lines end: the exception that nobody caught (the first of several ranks, the last of a chain; under a logger's stamps,
too), GPU memory that ran out, a kill, a crash (a segmentation fault, an abort, a panic), a scheduler's or a launcher's line (`DUE TO TIME LIMIT`: `terminated`; an exit status alone:
`exit-status`; the rank and signal of torchrun's *Root Cause*), or a collective that timed out, with the ranks that waited and those whose last enqueued work lies before it (`SeqNum`, `OpType`, `last enqueued NCCL
work`), after the last step of its rows. If rows with a loss follow, training went on, and there is no
finding; nor is there one for an exception that Python ignored (`Exception ignored in`).
Of the logs of several ranks: a rank that reported as often as the others did (nine rows of ten, 20 at least), and has no row where another one has 10 more,
is a warning (`rank-silent`): it hangs, or it died without a word. Nothing is reported of a rank that the newest attempt has not.

**Bad.** Rank 3 raised `ValueError` at train.py:57 in step 812, its last loss was 2.31; seven others
followed because communication failed.

**Good.** Every process called `run.finish()`, or came to the end of its program. A rank that cannot be
reached (its host fell silent before the connection broke, or the server was away itself) is not said to
have died: `inconclusive`. So is a record that breaks off, unless others said goodbye or are a window of
steps (64) further. Rollout workers that are killed after all trainers said goodbye.

**How to fix it.** Read the end of the process that is named first, and the log of its host where it said
nothing (`dmesg`: out of memory; the scheduler's log). A live incident closes by itself when the run goes
on: as a new attempt, or because the rank is back.

**What it cannot see.** How a process ended that said nothing: from outside a segmentation fault looks like
SIGKILL. An exit status given by `raise SystemExit(1)` instead of `sys.exit(1)`. Clocks of hosts order the
exceptions of different hosts: where they differ by more than the faults lie apart, another rank is named
first. A proxy that breaks connections for longer than the grace looks like the death of who is
behind it, until they are back.

**Cost.** A lookup a row of scalars; nothing in the trainer until it ends.

**Strength.** `proved`: it is what processes said, or that they are not there; `bounded` while processes go
on or the end of some is not known, since who went first may be one of them.

**Sources.** torchrun's error propagation (`torch.distributed.elastic.multiprocessing.errors`), which takes the
earliest timestamp as the root cause; Python's `sys.excepthook` and `threading.excepthook`.
)page";

constexpr RuleInfo kInfo = {"health/run-died",
                            "a process ended with an error, or without a message",
                            v1::LEVEL_ERROR,
                            "0.1.0",
                            kPage,
                            {}};

// The engine speaks for it, from what it knows of processes (engine/process_ends.h,
// lib/process_end.h): what it judges is no evidence.
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
