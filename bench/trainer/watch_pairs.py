#!/usr/bin/python3
"""What run.watch costs at steps of 0.6, 3, 30 and 200 ms: two processes of one trainer, with the watch and without, take turns.

  watch_pairs.py                       # all four lengths, three pairs each
  watch_pairs.py --steps 3 --pairs 5   # one length

A pair's processes train in blocks of a fiftieth of the run; of each two blocks a draw decides which one is first, so both meet the same load.
Counted is the user and system CPU time of all threads of the process, from the first step on; the call of watch itself is apart. The last line
is JSON.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

LENGTHS = {  # approximate ms per step: (width, layers, batch, length, steps)
    "0.6": (32, 0, 2, 16, 4000),
    "3": (64, 2, 6, 32, 1000),
    "30": (128, 4, 8, 56, 200),
    "200": (256, 6, 8, 64, 50),
}
BLOCKS, WARM_UP = 50, 3


def make(width, layers, length):
    import torch
    import watch_cost

    watch_cost.LENGTH = length
    torch.manual_seed(0)
    if layers:
        return watch_cost.Model(width, layers)
    nn = torch.nn
    return nn.Sequential(nn.Embedding(watch_cost.WORDS, width), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, watch_cost.WORDS))


class Plain:
    """A plain training loop."""

    def __init__(self, options):
        import torch

        torch.set_num_threads(1)
        width, layers, batch, length, self.steps = LENGTHS[options.steps]
        self._torch, self._batch, self._length, self._shape = torch, batch, length, (width, layers, length)

    def start(self, record):
        import watch_cost

        self._model, self._tokens = make(*self._shape), None
        self._optimizer = self._torch.optim.AdamW(self._model.parameters(), lr=1e-3)
        self._tokens = self._torch.randint(0, watch_cost.WORDS, (self._batch, self._length + 1))
        self._run = None
        if record:
            import plumbline

            self._run = plumbline.init(run="cost", record=record)
            self._run.watch(self._model, self._optimizer)

    def train(self, steps):
        model, optimizer, tokens, loss_of = self._model, self._optimizer, self._tokens, self._torch.nn.functional.cross_entropy
        for _ in range(steps):
            logits = model(tokens[:, :-1])
            loss_of(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()

    def finish(self):
        if self._run is not None:
            self._run.finish()


def worker(options):
    """Answers a line "N" on stdin with the cost of N steps: [CPU s, wall s], including what was spent since the
    preceding answer."""
    trainer = Plain(options)
    trainer.start(None)
    trainer.train(WARM_UP)  # includes torch's one-time work
    began = time.process_time()
    trainer.start(options.worker if options.worker != "none" else None)
    print(json.dumps(time.process_time() - began), flush=True)
    before = time.process_time()
    for line in sys.stdin:
        count, began = int(line), time.perf_counter()
        trainer.train(count) if count else trainer.finish()
        now = time.process_time()
        print(json.dumps([now - before, time.perf_counter() - began]), flush=True)
        before = now


class Process:
    def __init__(self, record):
        arguments = [sys.executable, __file__, *sys.argv[1:], "--worker", record or "none"]
        self._process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.start, self.cpu, self.wall = json.loads(self._process.stdout.readline()), [], []

    def train(self, steps):
        self._process.stdin.write(f"{steps}\n")
        self._process.stdin.flush()
        cpu, wall = json.loads(self._process.stdout.readline())
        self.cpu.append(cpu)
        self.wall.append(wall)

    def end(self):
        self.train(0)
        self._process.stdin.close()
        self._process.wait()


def pair(steps, order):
    with tempfile.TemporaryDirectory() as folder:
        both = [Process(None), Process(folder)]
        for _ in range(BLOCKS):
            for one in order.sample(both, 2):
                one.train(steps // BLOCKS)
        for one in both:
            one.end()
    return both


def cost(pairs, part):
    """Returns (median of the pairs' watched over plain - 1 by CPU, by wall; microseconds of CPU per step) of some blocks."""
    cpu = [sum(w.cpu[part]) / sum(p.cpu[part]) - 1 for p, w in pairs]
    wall = [sum(w.wall[part]) / sum(p.wall[part]) - 1 for p, w in pairs]
    more = [sum(w.cpu[part]) - sum(p.cpu[part]) for p, w in pairs]
    return cpu, wall, more


def measure(options, length):
    options.steps = length
    sys.argv[1:] = ["--steps", length]
    steps, order = LENGTHS[length][4], random.Random(options.seed)
    pairs = [pair(steps, order) for _ in range(options.pairs)]
    plain = statistics.median(sum(p.cpu[:BLOCKS]) / steps for p, _ in pairs)
    result = {"steps": steps, "step_cpu_ms": 1e3 * plain, "start_ms": 1e3 * statistics.median(w.start - p.start for p, w in pairs), "load": os.getloadavg()[0]}
    fifth = BLOCKS // 5
    for name, part in (("first fifth", slice(0, fifth)), ("rest", slice(fifth, BLOCKS)), ("run", slice(0, BLOCKS + 1))):
        cpu, wall, more = cost(pairs, part)
        count = steps * len(range(BLOCKS)[part]) // BLOCKS
        result[name] = {"cpu": statistics.median(cpu), "each": [round(c, 4) for c in cpu], "wall": statistics.median(wall), "us": 1e6 * statistics.median(more) / count}
    parts = "; ".join(f"{n} {100 * result[n]['cpu']:+.1f} % ({result[n]['us']:+.0f} us, wall {100 * result[n]['wall']:+.1f} %)" for n in ("first fifth", "rest", "run"))
    print(f"{options.pairs} pairs of {steps} steps of {result['step_cpu_ms']:.2f} CPU ms, load {result['load']:.1f}: {parts}; watch() {result['start_ms']:.0f} ms", flush=True)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", choices=LENGTHS, help="ms of a step")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--worker", help=argparse.SUPPRESS)  # the folder of a record, or "none"
    options = parser.parse_args()
    if options.worker:
        return worker(options)
    print(json.dumps({length: measure(options, length) for length in ([options.steps] if options.steps else LENGTHS)}))


if __name__ == "__main__":
    main()
