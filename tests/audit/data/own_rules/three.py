"""Three rules of Plumbline itself, in their simplest cases, as rules of a user. own_rules_test.py compares their findings."""

import math
from collections import deque

from plumbline.rules import Rule


class LossNonFinite(Rule):
    """health/loss-non-finite: the first step in which a training loss is NaN or infinite, and the ranks of that step."""

    name = "loss-non-finite"
    title = "the loss is NaN or infinite"
    reads = ("*loss*",)

    def __init__(self):
        self.found = set()

    def step(self, step):
        bad = {}
        for scalar in step.scalars:
            if scalar.series == "loss" and not math.isfinite(scalar.value):
                bad.setdefault(scalar.op, []).append(scalar.rank)
        for op in bad.keys() - self.found:
            self.found.add(op)
            yield self.finding(f"{op} is not finite in step {step.number}", op=op, ranks=bad[op])


class RateZero(Rule):
    """health/learning-rate: the rate is exactly 0 in the last 10 steps or more of the run."""

    name = "learning-rate"
    title = "the learning rate is 0"
    reads = ("*lr*", "*rate*")

    def __init__(self):
        self.since, self.before, self.steps = {}, set(), {}

    def step(self, step):
        for scalar in step.scalars:
            if scalar.series != "rate":
                continue
            key = (scalar.op, scalar.rank)
            if scalar.value != 0:
                self.before.add(key)
                self.since.pop(key, None)
                self.steps[key] = 0
            elif key in self.before:
                self.since.setdefault(key, step.number)
                self.steps[key] += 1

    def end(self, run):
        for (op, rank), first in self.since.items():
            if self.steps[op, rank] >= 10:
                yield self.finding(f"{op} is 0 from step {first} on", op=op, steps=(first, run.last), ranks=[rank])


class DeadExpert(Rule):
    """health/dead-expert: an expert keeps less than a tenth of its share over 100 steps."""

    name = "dead-expert"
    title = "an expert gets almost no tokens"
    reads = ("routing",)

    def __init__(self):
        self.loads, self.found = {}, set()

    def step(self, step):
        of_step = {}
        for call in step.evidence:
            load = call.data["routing"]["summary"]["load"]
            sums = of_step.setdefault((call.layer, call.op), [0] * len(load))
            for expert, tokens in enumerate(load):
                sums[expert] += tokens
        for site, load in of_step.items():
            window = self.loads.setdefault(site, deque(maxlen=100))
            window.append(load)
            if len(window) < 100 or site in self.found:
                continue
            total = [sum(loads) for loads in zip(*window)]
            share = min(total) * len(total) / sum(total)
            if share < 0.1:
                self.found.add(site)
                yield self.finding(f"expert {total.index(min(total))} kept {share:.3g} of an equal share", layer=site[0], op=site[1],
                                   measured=share, measured_name="smallest load / equal share", unit="share", threshold=0.1)
