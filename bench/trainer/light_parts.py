#!/usr/bin/python3
"""Measures the parts of a light step of run.watch: the time between the trainer's call and the entry of torch's function, and back.

  light_parts.py                    # steps of about 3 ms
  light_parts.py --steps 30 --blocks 20

Two forked processes, one of them watched, take turns in blocks of 12 steps. Printed are the lower quartiles, the medians and the
means over all light steps of what the watched process takes more, in us of wall time: the mean has the steps in which another process ran.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from time import perf_counter_ns as now

import watch_pairs

BLOCK = 12  # steps
PARTS = ("forward", "backward", "step", "zero_grad")


class Stamps:
    """When the trainer's call of a part began, when torch's own function was entered and left, and when the call returned."""

    def __init__(self):
        self.entered = self.left = 0
        self.parts = {}

    def around(self, plain):
        def stamped(*arguments, **options):
            self.entered = now()
            try:
                return plain(*arguments, **options)
            finally:
                self.left = now()

        return stamped

    def call(self, part, function, *arguments):
        began = now()
        result = function(*arguments)
        ended = now()
        self.parts[part] = (self.entered - began + ended - self.left) / 1e3
        return result


def trainer(length, record):
    """A function that trains one step, and returns the us of its parts; None if the step was a whole one."""
    import plumbline
    import torch
    import watch_cost

    width, layers, batch, tokens = watch_pairs.LENGTHS[length]
    stamps, model = Stamps(), watch_pairs.make(width, layers, tokens)
    plain = type(model)
    kind = type("Stamped", (plain,), {"forward": lambda self, x: forward(self, x)})
    forward = stamps.around(plain.forward)
    model.__class__ = kind
    adam = torch.optim.AdamW
    optimizer = type("AdamW", (adam,), {"step": stamps.around(adam.step), "zero_grad": stamps.around(adam.zero_grad)})(model.parameters(), lr=1e-3)
    torch.Tensor.backward = stamps.around(torch.Tensor.backward)
    given = torch.randint(0, watch_cost.WORDS, (batch, tokens + 1))
    watch = None
    if record:
        run = plumbline.init(run="cost", record=record)
        watch = run.watch(model, optimizer)

    def step():
        light = watch is None or watch.light is not None
        logits = stamps.call("forward", model, given[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), given[:, 1:].flatten())
        stamps.call("backward", loss.backward)
        stamps.call("step", optimizer.step)
        light = light and (watch is None or watch.light is not None)
        stamps.call("zero_grad", optimizer.zero_grad)
        return dict(stamps.parts) if light else None

    return step


def child(length, record, requests, answers):
    step = trainer(length, record)
    for _ in requests:
        print(json.dumps([step() for _ in range(BLOCK)]), file=answers, flush=True)


def start(length, record):
    ours, theirs = os.pipe(), os.pipe()
    if os.fork() == 0:
        os.close(ours[1])
        os.close(theirs[0])
        try:
            child(length, record, os.fdopen(ours[0]), os.fdopen(theirs[1], "w"))
        finally:
            os._exit(0)
    os.close(ours[0])
    os.close(theirs[1])
    return os.fdopen(ours[1], "w"), os.fdopen(theirs[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", choices=watch_pairs.LENGTHS, default="3", help="ms of a step")
    parser.add_argument("--blocks", type=int, default=100)
    options = parser.parse_args()
    import plumbline  # noqa: F401
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        both, rows = [start(options.steps, None), start(options.steps, folder)], ([], [])
        for _ in range(options.blocks):
            for (requests, answers), taken in zip(both, rows):
                print(file=requests, flush=True)
                taken += [one for one in json.loads(answers.readline()) if one]
        for requests, _ in both:
            requests.close()
    more = {}
    for part in (*PARTS, "all"):
        each = [sorted(sum(one.values()) if part == "all" else one[part] for one in taken) for taken in rows]
        more[part] = [round(quantile(each[1]) - quantile(each[0]), 1) for quantile in (lambda s: s[len(s) // 4], statistics.median, statistics.fmean)]
    parts = "; ".join(f"{part} {values}" for part, values in more.items())
    print(f"{len(rows[1])} light steps, load {os.getloadavg()[0]:.1f}; quartile, median, mean in us: {parts}")
    print(json.dumps(more))


if __name__ == "__main__":
    sys.exit(main())
