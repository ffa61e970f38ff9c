#!/usr/bin/python3
"""Measures the cost of the probes in a data-parallel training step: examples/ddp_pytorch, its ranks over gloo.

Blocks of steps with and without probes alternate in the same ranks. With probes the example makes all
its observations (the hook's collectives, the digests of all weights, the loss).

  paired      (a block with probes) / (the adjacent block without) - 1: median and mean over the
              pairs, each with a bootstrap interval of 95 %. The mean is needed because most of the
              cost is in the few due steps. Use many short blocks if the machine's speed varies.
              Plumbline's calls are not timed in this mode: two clock readings around each call
              would be part of the measured cost.

With --always there are probes in every step, as in use, and each Plumbline call is timed:

  attributed  CPU time of Plumbline's calls and threads, divided by the CPU time of all threads, and
              by the wall time. Much less noisy on a shared machine, and independent of the rest of
              the step; it does not include the effect on the trainer's caches.

In blocks the agent's governor sees the probes half of the time, so it gets half of its budget.
With `-- --probes off` both kinds of blocks have no probes: the error of the method itself.

With --turns whole runs alternate instead of blocks, with the probes as in use (no call is timed, and
the budget's governor acts on the whole run) and without: pairs, in the order ABBA.

  ddp_overhead.py --ranks 2 --steps 9600 --block 4         # to a record
  ddp_overhead.py --ranks 2 --steps 2000 --always
  ddp_overhead.py --ranks 2 --steps 480 --turns 12
  ddp_overhead.py --ranks 2 --steps 2000 --bin P           # to a separate plumbd, from P
  ddp_overhead.py --ranks 4 --steps 800 -- --hidden 1024   # options of train.py after --

PYTHONPATH must contain the package. The last line has the same results as JSON.
"""

import argparse
import contextlib
import functools
import glob
import json
import math
import os
import pathlib
import random
import shutil
import statistics
import sys
import tempfile
import time

import plumbd

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = REPOSITORY / "examples"
SETTLING = 1  # steps left out at the start of each block without probes
BUDGET = 0.01  # the agent's default
RESAMPLES = 2_000


# ---- a rank ------------------------------------------------------------------------------------


class Clock:
    """Measures the CPU time of the calling threads within our code, by function; if not `on`, nothing."""

    def __init__(self, on):
        self.on, self.spent = on, {}

    def add(self, name, ns):
        self.spent[name] = self.spent.get(name, 0) + ns

    def timed(self, name, call):
        if not self.on:
            return call

        @functools.wraps(call)
        def timed(*arguments, **named):
            began = time.thread_time_ns()
            try:
                return call(*arguments, **named)
            finally:
                self.add(name, time.thread_time_ns() - began)

        return timed


def threads_ns():
    """Returns the CPU time so far of the agent's own threads."""
    total = 0
    for task in glob.glob("/proc/self/task/*"):
        with contextlib.suppress(FileNotFoundError):
            if pathlib.Path(task, "comm").read_text().startswith("plumb"):
                total += int(pathlib.Path(task, "schedstat").read_text().split()[0])
    return total


def alternating(probes, clock, block):
    """Returns a substitute for the example's Probes: active in every other block of steps, silent in between. If block
    is 0, active in all.

    Steps with probes have numbers of their own, as in a run that always has them, because the cadence depends on the
    number.
    """

    class Alternating(probes.Probes):
        def __init__(self, *arguments, **named):
            super().__init__(*arguments, **named)
            self._silent, self.on = probes.Silent(), False
            self._begin, self._scalar = self.step, self.scalar
            self.scalar, self.step = self._scalar_or_not, self._step_or_not
            self.hook = self._either_hook
            from plumbline import _hooks

            call = _hooks._Call  # runs inside the hook, or after it on another thread
            call.started = clock.timed("hook: inside", call.started)
            call._ended = clock.timed("hook: result", call._ended)
            call.finished = clock.timed("hook: finish", call.finished)

        @contextlib.contextmanager
        def _step_or_not(self, number):
            pair, place = divmod(number, 2 * block) if block else (0, number)
            self.on = place < block or not block
            if not self.on:
                yield
                return
            context = clock.timed("step", self._begin)(pair * block + place)
            clock.timed("step", context.__enter__)()
            yield
            clock.timed("step", context.__exit__)(None, None, None)

        def _scalar_or_not(self, name, value):
            if self.on:
                clock.timed("scalar", self._scalar)(name, value)

        def weights(self, model):
            if self.on:
                clock.timed("weights", super().weights)(model)

        def due(self, kind, layer):
            return self.on and super().due(kind, layer)

        def _either_hook(self, hook):
            inner = clock.timed("the trainer's hook", hook)
            observed = clock.timed("hook: all", self._run.observed(inner))

            def either(state, bucket):
                return (observed if self.on else hook)(state, bucket)

            return either

    return Alternating


def rank_main(options):
    sys.path[:0] = [str(EXAMPLES / "ddp_pytorch")]
    import probes
    import train

    clock, steps = Clock(options.always), []
    if not options.turns:
        train.Probes = alternating(probes, clock, options.block)
    trainer_step = train.Trainer.train

    def timed_steps(self):
        each = trainer_step(self)
        while True:
            if len(steps) == options.warm_up:
                clock.spent.clear()
            ours, threads = ours_ns(clock.spent), threads_ns() if clock.on else 0
            began, worked = time.perf_counter(), time.process_time_ns()
            record = next(each, None)
            if record is None:
                return
            steps.append({
                "wall": time.perf_counter() - began,
                "cpu": (time.process_time_ns() - worked) / 1e9,
                "calls": (ours_ns(clock.spent) - ours) / 1e9,
                "threads": (threads_ns() - threads) / 1e9 if clock.on else 0,
            })
            yield record

    train.Trainer.train = timed_steps
    train.train(train.arguments(["--quiet", *options.trainer]))
    out = pathlib.Path(options.out, f"rank{os.environ['RANK']}.json")
    out.write_text(json.dumps({"steps": steps, "spent": clock.spent}))


def ours_ns(spent):
    """Returns our CPU time. The hook that our hook wraps is the trainer's, but what we do inside it is ours."""
    ours = sum(ns for name, ns in spent.items() if name != "the trainer's hook")
    return ours - spent.get("the trainer's hook", 0)


# ---- the comparison ----------------------------------------------------------------------------


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--block", type=int, default=16)
    parser.add_argument("--always", action="store_true",
                        help="probes in every step, as in use: attributed alone")
    parser.add_argument("--turns", type=int, default=0, metavar="PAIRS",
                        help="pairs of whole runs, with probes and without: paired alone")
    parser.add_argument("--warm-up", type=int, default=128, help="steps left out at the start")
    parser.add_argument("--every", type=int, help="PLUMBLINE_EVERY: measure each n-th step")
    parser.add_argument("--bin", default=os.environ.get("PLUMBLINE_BIN_DIR"),
                        help="folder of plumbd, to send to one; else steps go to a record")
    parser.add_argument("--out", help=argparse.SUPPRESS)  # for a rank
    parser.add_argument("trainer", nargs="*", help="further options of train.py, after --")
    return parser.parse_args()


def train(options, folder, address, probes="on"):
    to = ["--server", address] if address else ["--record", str(folder / "record")]
    if options.every:
        os.environ["PLUMBLINE_EVERY"] = str(options.every)
    if not (options.always or options.turns):
        os.environ.setdefault("PLUMBLINE_BUDGET", str(BUDGET / 2))
    sys.path.append(str(EXAMPLES / "moe_pytorch"))
    import ranks

    status = ranks.launch(options.ranks, [
        os.path.abspath(__file__), "--out", str(folder), "--block",
        str(0 if options.always else options.block), "--turns", str(options.turns), "--warm-up",
        str(options.warm_up), *(["--always"] if options.always else []), "--", "--steps", str(options.steps), "--probes", probes, *to,
        *options.trainer])
    if status != 0:
        raise SystemExit(f"training ended with {status}")
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(options.ranks)]


def blocks(found, options, quantity):
    """Returns pairs (with, without) of the time of a step: medians over the ranks.

    The first step without probes is left out, since what the probes began may end there. The first step with them
    counts, since the due ones may all be first ones.
    """
    size = options.block
    means = []
    for rank in found:
        steps = [step[quantity] for step in rank["steps"]]
        means.append([statistics.fmean(steps[at + (SETTLING if number % 2 else 0):at + size])
                      for number, at in enumerate(
                          range(options.warm_up, len(steps) - size + 1, size))])
    return [statistics.median(of_ranks) for of_ranks in zip(*means)]


def paired(found, options, quantity):
    each = blocks(found, options, quantity)
    return of_pairs(each[::2], each[1::2])


def of_pairs(on, off):
    """Returns [estimate, low, high] of on / off - 1, both for medians and means. on, off: times of a step, in seconds."""
    ratios = [math.log(a / b) for a, b in zip(on, off)]
    if len(ratios) < 5:
        raise SystemExit(f"{len(ratios)} pairs; expected 5 or more: raise --steps or --turns")
    draw = random.Random(0)
    samples = [draw.choices(ratios, k=len(ratios)) for _ in range(RESAMPLES)]

    def with_interval(estimate):
        drawn = sorted(map(estimate, samples))
        return [math.expm1(x) for x in (estimate(ratios), drawn[int(0.025 * RESAMPLES)],
                                        drawn[int(0.975 * RESAMPLES)])]

    return {"median": with_interval(statistics.median), "mean": with_interval(statistics.fmean),
            "pairs": len(ratios), "step_ms": 1e3 * statistics.median(off)}


def in_turns(options, folder, address):
    """Runs pairs of whole runs, with probes and without, one after another."""
    times = {"on": [], "off": []}
    for turn in range(options.turns):
        for probes in ("on", "off") if turn % 2 == 0 else ("off", "on"):
            found = train(options, folder, address, probes)
            shutil.rmtree(folder / "record", ignore_errors=True)
            times[probes].append({q: statistics.median(
                statistics.fmean(step[q] for step in rank["steps"][options.warm_up:])
                for rank in found)
                for q in ("wall", "cpu")})
        print(f"pair {turn + 1} of {options.turns}: " + ", ".join(
            "{} {:+.2%}".format(q, times["on"][-1][q] / times["off"][-1][q] - 1)
            for q in ("wall", "cpu")), file=sys.stderr, flush=True)
    return {q: of_pairs(*([run[q] for run in times[probes]] for probes in ("on", "off")))
            for q in ("wall", "cpu")}


def attributed(found, options):
    """Returns our share of the CPU time of the steps after the warm-up, by rank."""
    shares = []
    for rank in found:
        on = rank["steps"][options.warm_up:]
        ours = {part: sum(step[part] for step in on) for part in ("calls", "threads")}
        shares.append({f"{part} of {quantity}": ours[part] / sum(step[quantity] for step in on)
                       for quantity in ("cpu", "wall") for part in ours})
    return {part: statistics.median(share[part] for share in shares) for part in shares[0]}


def parts_us(rank, options):
    """Returns the microseconds of each part in a step after the warm-up."""
    on = len(rank["steps"]) - options.warm_up
    return {name: ns / 1e3 / on for name, ns in sorted(rank["spent"].items())}


def in_one_run(options, folder, address):
    found = train(options, folder, address)
    if options.always:
        return {"paired": {}, "attributed": attributed(found, options),
                "rank 0, us a step": parts_us(found[0], options)}
    return {"paired": {q: paired(found, options, q) for q in ("wall", "cpu")}}


def show(result):
    for quantity, p in result["paired"].items():
        print("paired, {:4s}  median {:+.2%} [{:+.2%}, {:+.2%}]  mean {:+.2%} [{:+.2%}, {:+.2%}]  "
              "{} pairs, {:.1f} ms a step without".format(
                  quantity, *p["median"], *p["mean"], p["pairs"], p["step_ms"]))
    if "attributed" not in result:
        return
    for quantity in ("cpu", "wall"):
        calls, threads = (result["attributed"][f"{part} of {quantity}"]
                          for part in ("calls", "threads"))
        print(f"attributed, of {quantity:4s} {calls + threads:.2%}: calls {calls:.2%}, "
              f"our threads {threads:.2%}")
    for name, us in result["rank 0, us a step"].items():
        print(f"  {name:20s} {us:8.1f} us a step")


def main():
    options = arguments()
    if options.out:
        rank_main(options)
        return
    options.warm_up -= options.warm_up % (2 * options.block)
    with tempfile.TemporaryDirectory(prefix="plumbline-bench-") as folder:
        folder = pathlib.Path(folder)
        with plumbd.running(options.bin, folder) as address:
            if options.turns:
                measured = {"paired": in_turns(options, folder, address)}
            else:
                measured = in_one_run(options, folder, address)
    result = {"ranks": options.ranks, "steps": options.steps, "every": options.every or "default",
              "to": "server" if options.bin else "record", "trainer": options.trainer, **measured}
    show(result)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
