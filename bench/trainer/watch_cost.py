#!/usr/bin/python3
"""The cost of run.watch in a training step, by attribution: Plumbline's time on the trainer's thread, and its threads' CPU time.

  watch_cost.py                  # a transformer of 10 M parameters
  watch_cost.py --width 64       # 0.1 M parameters; --pause fills its steps up to 50 ms
  watch_cost.py --paired 12      # user and system CPU time of all threads, of pairs of processes in random order

Every Plumbline hook is timed with the thread's CPU clock; Plumbline's threads are found by name. A wall-time figure
(the medians of steps with the watch and of steps in a process without it) is also printed; on a shared machine it
is the noisier one. The last line has the same results as JSON.
"""

import argparse
import glob
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from torch import nn

LENGTH, BATCH, WORDS = 64, 8, 512


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.ln1(x)).chunk(3, -1)
        later = torch.triu(torch.ones(LENGTH, LENGTH, dtype=torch.bool), 1)
        a = (q @ k.transpose(1, 2) / self.width**0.5).masked_fill(later, -1e9).softmax(-1)
        x = x + self.proj(a @ v)
        return x + self.down(torch.relu(self.up(self.ln2(x))))


class Model(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, width), nn.Linear(width, WORDS)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(layers)))

    def forward(self, tokens):
        return self.head(self.blocks(self.embed(tokens)))


class Hooks:
    """Measures our CPU time on the trainer's thread: the outermost of our calls counts, with everything in it."""

    def __init__(self):
        self.spent, self._within = 0, False

    def timed(self, owner, name):
        plain = getattr(owner, name)

        def call(*arguments, **options):
            if self._within:
                return plain(*arguments, **options)
            self._within = True
            began = time.thread_time_ns()
            try:
                return plain(*arguments, **options)
            finally:
                self.spent += time.thread_time_ns() - began
                self._within = False

        setattr(owner, name, call)

    def everywhere(self):
        """Times all entry points of the watch in a trainer's loop. Not counted: the frames around torch's own backward
        and step, a few us."""
        import plumbline
        from plumbline import _optimizer_hooks, _watch
        from plumbline._routers.watched import OnlyHere
        from plumbline._watching.stages import Stages

        for owner, names in (
            (OnlyHere, ("__call__",)), (_watch.Watch, ("_guarded", "backward_begins")), (_optimizer_hooks, ("begins", "ends")),
            (Stages, ("begin", "end", "enter")), (plumbline._run.Run, ("_end_step",)),
        ):  # fmt: skip
            for name in names:
                self.timed(owner, name)


def threads():
    """Returns the CPU ns so far of the process's threads that are ours."""
    spent = 0
    for task in glob.glob("/proc/self/task/*"):
        name = pathlib.Path(task, "comm").read_text().strip()
        if name.startswith("plumb"):
            spent += int(pathlib.Path(task, "schedstat").read_text().split()[0])
    return spent


def train(options, record):
    """Returns (median seconds per step, our share of the trainer's thread, of our threads) of the steps after the warm-up."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Model(options.width, options.layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    hooks = Hooks()
    if record:
        import plumbline

        if not options.paired or options.attribute:
            hooks.everywhere()
        run = plumbline.init(run="cost", record=record)
        run.watch(model, optimizer)
    tokens = torch.randint(0, WORDS, (BATCH, LENGTH + 1))
    times, began, spent, ours, cpu = [], 0.0, 0, 0, [time.process_time()]
    for step in range(options.steps + options.warm_up):
        if step == options.warm_up:
            began, spent, ours = time.monotonic(), hooks.spent, threads()
        start = time.monotonic()
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        time.sleep(max(0.0, options.pause - (time.monotonic() - start)))
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.monotonic() - start)
        cpu.append(time.process_time())
    if options.paired:
        if record:
            run.finish()
        fifth = len(times) // 5
        return cpu[fifth] - cpu[0], time.process_time() - cpu[0], hooks.spent / 1e9, len(times)
    wall = time.monotonic() - began
    parts = (hooks.spent - spent) / 1e9 / wall, (threads() - ours) / 1e9 / wall
    if record:
        run.finish()
    return statistics.median(times[options.warm_up :]), *parts


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--width", type=int, default=320)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--warm-up", type=int, default=40)
    parser.add_argument("--pause", type=float, default=0.0, help="the least seconds of a step before its update")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--paired", type=int, default=0, help="pairs of processes")
    parser.add_argument("--attribute", action="store_true", help="with --paired: time our hooks, too")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # the folder of a record, or "none": the part of one process
    return parser.parse_args()


def paired(options):
    """Compares CPU time with the watch to that without it, of the whole run with its finish and of its first fifth."""
    ratios, step, hooks, order = [], [], [], random.Random(1)
    for _ in range(options.paired):
        both = {}
        for record in order.sample([False, True], 2):
            with tempfile.TemporaryDirectory() as folder:
                one = [sys.executable, __file__, *sys.argv[1:], "--one", folder if record else "none"]
                both[record] = json.loads(subprocess.run(one, capture_output=True, text=True, check=True).stdout)
        ratios.append([both[True][k] / both[False][k] - 1 for k in (0, 1)])
        step.append(both[False][1] / both[False][3])
        hooks.append(both[True][2] / both[True][3])
    middle = statistics.median
    result = {"step_cpu_ms": 1e3 * middle(step), "steps": both[True][3], "first_fifth": middle(r[0] for r in ratios), "run": middle(r[1] for r in ratios),
              "run_quartiles": statistics.quantiles([r[1] for r in ratios], n=4)[::2], "hooks_ms": 1e3 * middle(hooks), "load": os.getloadavg()[0]}  # fmt: skip
    print(f"{options.paired} pairs of {result['steps']} steps of {result['step_cpu_ms']:.2f} CPU ms, load {result['load']:.1f}: {100 * result['run']:+.1f} % CPU, "
          f"{100 * result['first_fifth']:+.1f} % in the first fifth")  # fmt: skip
    print(json.dumps(result))


def main():
    options = arguments()
    if options.one:
        print(json.dumps(train(options, None if options.one == "none" else options.one)))
        return
    if options.paired:
        paired(options)
        return
    rounds = []
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            both = []
            for record in ("none", folder):
                done = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--one", record], capture_output=True, text=True, check=True)
                both.append(json.loads(done.stdout))
        rounds.append(both)
    plain = statistics.median(r[0][0] for r in rounds)
    watched = statistics.median(r[1][0] for r in rounds)
    hooks = statistics.median(r[1][1] for r in rounds)
    ours = statistics.median(r[1][2] for r in rounds)
    count = sum(p.numel() for p in Model(options.width, options.layers).parameters())
    print(f"{count / 1e6:.1f} M parameters, a step of {plain * 1e3:.1f} ms: {100 * hooks:.2f} % of the trainer's thread, "
          f"{100 * ours:.2f} % of a core for our threads; median step {100 * (watched / plain - 1):+.1f} %")  # fmt: skip
    print(json.dumps({"parameters": count, "step_ms": plain * 1e3, "hooks": hooks, "threads": ours, "wall": watched / plain - 1}))


if __name__ == "__main__":
    main()
