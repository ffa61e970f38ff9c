#!/usr/bin/python3
"""Measures the cost of run.watch at steps of 3, 30 and 200 ms, from the first step on: processes alternate.

  watch_pairs.py                            # the three lengths, less than six minutes
  watch_pairs.py --steps 3 --pairs 8        # one length
  watch_pairs.py --steps 0.6 --seconds 20   # of the trainer's own time in each process
  watch_pairs.py --null                     # both processes without the watch: the error of the measurement
  watch_pairs.py --default-memory           # glibc gives memory back as it does in a user's process

The processes of a pair are forked from one that has loaded torch. Each trains in blocks of a tenth of a
second. A draw decides which block of two is first, so both processes meet the same load. Counted is the user
and system CPU time of all threads, also between two blocks. The calls of init and watch are apart. The parts
are those of the trainer's own time: the first second, the next four, the rest. The deviation of a part's mean
is a bootstrap of pairs, and of blocks in a pair. "accounted" is what the budget has counted of itself. The
last line is JSON.

By default glibc keeps the memory that a step frees. Otherwise it gives some of it back in each step. How much
depends on where the last allocation lies: a step of 3.5 ms may have 1 to 145 page faults of 2 us each, and two
processes that do the same may differ by up to 14 % (docs/measurements/watch.md).
"""

import argparse
import json
import os
import random
import resource
import statistics
import sys
import tempfile
import time

LENGTHS = {  # ms of a step, about: (width, layers, batch, length)
    "0.6": (32, 0, 2, 16),
    "3": (64, 2, 6, 32),
    "30": (128, 4, 8, 56),
    "200": (256, 6, 8, 64),
}
DEFAULT = ("3", "30", "200")
PARTS = {"first second": (0, 1), "next four": (1, 5), "rest": (5, 1e9), "run": (0, 1e9)}
BLOCK, WARM_UP = 0.1, 3  # s; steps
_KEPT = {"TRIM_THRESHOLD": 1 << 30, "MMAP_THRESHOLD": 1 << 30, "TOP_PAD": 1 << 26}
KEPT = {f"MALLOC_{name}_": str(value) for name, value in _KEPT.items()}  # of glibc


def keep_memory():
    """Starts this program again with a glibc that keeps freed memory: it reads its settings once."""
    if any(os.environ.get(name) != value for name, value in KEPT.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEPT})


def make(width, layers, length):
    import torch
    import watch_cost

    watch_cost.LENGTH = length
    torch.manual_seed(0)
    if layers:
        return watch_cost.Model(width, layers)
    nn = torch.nn
    words = watch_cost.WORDS
    hidden = nn.Linear(width, width)
    return nn.Sequential(nn.Embedding(words, width), hidden, nn.ReLU(), nn.Linear(width, words))


class Trainer:
    """A loop of one's own."""

    def __init__(self, length):
        width, layers, self._batch, self._length = LENGTHS[length]
        self._shape, self._run = (width, layers, self._length), None

    def start(self, record):
        import plumbline
        import torch
        import watch_cost

        self._loss_of = torch.nn.functional.cross_entropy
        self._model = make(*self._shape)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-3)
        self._tokens = torch.randint(0, watch_cost.WORDS, (self._batch, self._length + 1))
        if record:
            self._run = plumbline.init(run="cost", record=record)
            self._run.watch(self._model, self._optimizer)

    def train(self, steps):
        model, optimizer, tokens, loss_of = self._model, self._optimizer, self._tokens, self._loss_of
        for _ in range(steps):
            logits = model(tokens[:, :-1])
            loss_of(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()

    def finish(self):
        if self._run is not None:
            self._run.finish()

    def accounted(self):
        return 0 if self._run is None else getattr(self._run._budget, "paid", 0) / 1e9


def counted():
    """Returns (CPU s of the process, CPU s of its first thread, page faults of the process) so far."""
    return time.process_time(), time.thread_time(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def answer(length, record, code, requests, answers):
    """Trains N steps for each line "N"; the line "0" ends the run.

    Answers [CPU s of the process, CPU s of its first thread, page faults, s that the budget accounted]. The
    first three count from the answer before."""
    trainer, here = Trainer(length), sys.modules[__name__]
    trainer.start(None)
    trainer.train(WARM_UP)  # what torch makes once
    if record and code:
        exec(code, {"bench": here})
    began = time.process_time()
    trainer.start(record)
    before = counted()
    print(json.dumps(before[0] - began), file=answers, flush=True)
    for line in requests:
        count = int(line)
        trainer.train(count) if count else trainer.finish()
        now = counted()
        spent = [*(ours - was for ours, was in zip(now, before)), trainer.accounted()]
        print(json.dumps(spent), file=answers, flush=True)
        before = now
        if not count:
            return


class Process:
    def __init__(self, length, record, code):
        ours, theirs = os.pipe(), os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(ours[1])
            os.close(theirs[0])
            if os.environ.get("PLUMB_BENCH_LOUD") != "1":
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            try:
                answer(length, record, code, os.fdopen(ours[0]), os.fdopen(theirs[1], "w"))
            finally:
                os._exit(0)
        os.close(ours[0])
        os.close(theirs[1])
        self._requests, self._answers = os.fdopen(ours[1], "w"), os.fdopen(theirs[0])
        self.start, self.blocks, self.accounted = json.loads(self._answers.readline()), [], 0.0
        self.faults = 0

    def train(self, steps):
        print(steps, file=self._requests, flush=True)
        cpu, first, faults, self.accounted = json.loads(self._answers.readline())
        self.faults += faults
        self.blocks.append((cpu, first))

    def end(self):
        self.train(0)
        self._requests.close()
        self._answers.close()
        os.waitpid(self._pid, 0)


def pair(length, options, order):
    """Returns (plain, watched) after `options.seconds` of the plain one's time."""
    with tempfile.TemporaryDirectory() as folder:
        both = [Process(length, None, None), Process(length, None if options.null else folder, options.code)]
        spent, steps = 0.0, 1
        while spent < options.seconds:
            for one in order.sample(both, 2):
                one.train(steps)
            cpu = both[0].blocks[-1][0]
            spent += cpu
            both[0].steps = both[1].steps = getattr(both[0], "steps", []) + [steps]
            steps = max(1, round(steps * BLOCK / cpu)) if len(both[0].blocks) < 4 else steps
        for one in both:
            one.end()
    return both


def mean(rows):
    return sum(w for _, w in rows) / sum(p for p, _ in rows) - 1


def drawn(groups, order):
    """A bootstrap: some of the pairs, and some blocks of each."""
    some = order.choices(groups, k=len(groups))
    return [row for group in some for row in order.choices(group, k=len(group))]


def cost(pairs, first, last):
    """Returns the share, its deviation, us a step and the share of other threads.

    Of the blocks that begin when the plain process has trained for `first` to `last` s."""
    groups, steps, others = [], 0, 0.0
    for plain, watched in pairs:
        since, rows = 0.0, []
        groups.append(rows)
        for place, (p, w) in enumerate(zip(plain.blocks, watched.blocks)):
            ends = place == len(plain.steps)  # the run's end
            if first <= since < last and (not ends or last > 1e8):
                rows.append((p[0], w[0]))
                steps += 0 if ends else plain.steps[place]
                others += w[0] - w[1]
            since += p[0]
    groups = [rows for rows in groups if rows]
    rows, again = [row for group in groups for row in group], random.Random(0)
    if not rows:
        return None
    deviation = statistics.stdev(mean(drawn(groups, again)) for _ in range(200))
    own = sum(p for p, _ in rows)
    us = 1e6 * sum(w - p for p, w in rows) / max(1, steps)
    return {"share": mean(rows), "deviation": deviation, "us": us, "threads": others / own}


def measure(options, length):
    order = random.Random(options.seed)
    pairs = [pair(length, options, order) for _ in range(options.pairs)]
    own = sum(p[0] for plain, _ in pairs for p in plain.blocks)
    steps = sum(sum(plain.steps) for plain, _ in pairs)
    result = {
        "pairs": len(pairs), "seconds": options.seconds, "load": os.getloadavg()[0],
        "step_ms": 1e3 * own / steps,
        "faults": [sum(both[side].faults for both in pairs) / steps for side in (0, 1)],
        "start_ms": 1e3 * statistics.median(w.start - p.start for p, w in pairs),
        "accounted": sum(w.accounted for _, w in pairs) / own,
        **{name: cost(pairs, *part) for name, part in PARTS.items()},
    }  # fmt: skip
    parts = "; ".join(f"{name} {100 * c['share']:+.2f} +- {100 * c['deviation']:.2f} % "
                      f"({c['us']:+.0f} us a step, other threads {100 * c['threads']:.2f} %)"
                      for name, c in result.items() if name in PARTS and c)  # fmt: skip
    print(f"{len(pairs)} pairs of {options.seconds:g} s, steps of {result['step_ms']:.2f} CPU ms, "
          f"load {result['load']:.1f}: {parts}; accounted {100 * result['accounted']:.2f} %; "
          f"page faults a step {result['faults'][0]:.1f} and {result['faults'][1]:.1f}; "
          f"init and watch {result['start_ms']:.0f} ms", flush=True)  # fmt: skip
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", choices=LENGTHS, help="ms of a step")
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=11)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--code", help="run in the watched process in front of the watch: to try a change")
    parser.add_argument("--null", action="store_true", help="both processes without the watch")
    parser.add_argument("--default-memory", action="store_true", help="glibc gives memory back as it likes")
    options = parser.parse_args()
    if not options.default_memory:
        keep_memory()
    import plumbline  # noqa: F401
    import torch

    torch.set_num_threads(1)
    lengths = [options.steps] if options.steps else DEFAULT
    print(json.dumps({length: measure(options, length) for length in lengths}))


if __name__ == "__main__":
    main()
