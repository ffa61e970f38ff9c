"""Trains what a ledger needs and writes it: python3 make_ledger.py [FILE]. About 3 minutes on one core.

Four changes were tried at two scales with several seeds each, three more at one scale and dropped (context of 5, batch of 24,
a rate of 3e-2). One of the four, "more-documents", is a leak in disguise: the collection that it adds holds the first evaluation
set. The claims are what a team would have written down without a ledger: gain in loss over the slope of the baseline.
"""

import math
import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")

import train  # noqa: E402: numpy reads the number of threads as it is loaded

SMALL, MIDDLE, LARGE = 3e8, 3e9, 3e10
TARGET = 1e11
TRIED = 7
SEEDS = {SMALL: (0, 1), MIDDLE: (0, 1, 2), LARGE: (0, 1)}
CHANGES = {"bigram-table": {"bigram": True},
           "wider-embedding": {"width": 12},
           "normalised-layer": {"normalise": True},
           "more-documents": {"more_documents": True}}
DROPPED = ("normalised-layer",)  # seemed worth nothing


class Ledger:
    def __init__(self):
        self.texts = train.split(train.documents())
        self.runs = {}

    def run(self, name, flops, seed, **options):
        run = f"{name}-{flops:.0e}-{seed}".replace("e+", "e")
        loss, other = train.train(train.Options(flops, seed, **options), self.texts)
        self.runs[run] = (flops, seed, loss, other)
        print(f"{run}: {loss:.4f} {other:.4f}", flush=True)
        return run

    def arm(self, name, scales, **options):
        return [self.run(name, flops, seed, **options) for flops in scales for seed in SEEDS[flops]]

    def mean(self, runs, flops):
        logs = [math.log(self.runs[r][2]) for r in runs if self.runs[r][0] == flops]
        return sum(logs) / len(logs)


def listed(runs):
    return "[" + ", ".join(f'"{run}"' for run in runs) + "]"


def number(flops):
    return f"{flops:.0e}".replace("e+", "e")


def write(ledger, base, arms, claims, stack, left_out, path):
    out = ["# Made by make_ledger.py from real runs of train.py. Losses are nats a byte.", "[ledger]",
           f"target = {number(TARGET)}", f"tried = {TRIED}", ""]
    for run, (flops, seed, loss, other) in ledger.runs.items():
        out += ["[[run]]", f'id = "{run}"', f"flops = {number(flops)}", f"seed = {seed}", f"loss = {loss:.5f}",
                f"other = {other:.5f}", ""]
    out += ["[baseline]", f"runs = {listed(base)}", ""]
    for name, runs in arms.items():
        kept = ["kept = false"] if name in DROPPED else []
        out += ["[[multiplier]]", f'name = "{name}"', f"claimed = {claims[name]:.2f}", *kept, 'on = "baseline"',
                f"with = {listed(runs)}", f"without = {listed(base)}", ""]
    out += ["[stack]", f"with = {listed(stack)}", f"without = {listed(base)}", ""]
    for name, runs in left_out.items():
        out += ["[[stack.leave_out]]", f'name = "{name}"', f"runs = {listed(runs)}", ""]
    with open(path, "w") as file:
        file.write("\n".join(out[:-1]) + "\n")


def main():
    ledger = Ledger()
    base = ledger.arm("base", (SMALL, MIDDLE, LARGE))
    arms = {name: ledger.arm(name, (MIDDLE, LARGE), **options) for name, options in CHANGES.items()}
    slope = (ledger.mean(base, MIDDLE) - ledger.mean(base, LARGE)) / math.log(LARGE / MIDDLE)
    claims = {name: math.exp((ledger.mean(base, LARGE) - ledger.mean(runs, LARGE)) / slope) for name, runs in arms.items()}
    kept = [name for name in CHANGES if name not in DROPPED]
    everything = {key: value for name in kept for key, value in CHANGES[name].items()}
    stack = ledger.arm("stack", (LARGE,), **everything)
    left_out = {}
    for name in ("bigram-table", "wider-embedding"):
        rest = {key: value for key, value in everything.items() if key not in CHANGES[name]}
        left_out[name] = ledger.arm(f"without-{name}", (LARGE,), **rest)
    write(ledger, base, arms, claims, stack, left_out, sys.argv[1] if len(sys.argv) > 1 else "ledger.toml")


if __name__ == "__main__":
    main()
