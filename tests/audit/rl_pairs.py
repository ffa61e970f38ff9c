"""Logs of preference training (DPO, IPO, hinge, and the reference-free CPO and SimPO) from simulated trainings of a linear policy over
candidate answers: healthy ones, with noisy labels, several epochs, or sources whose preferences differ, and ones whose loss has the wrong
sign or whose metrics take the pairs in the wrong order. A case is (name, expected, files) as in rl_logs.py."""

import json

import numpy

COLLAPSE = "health/rl-collapse"
ANSWERS = 12


class Training:
    """Draws a recipe from a seed. `fault` is None, "sign" or "order"; `points` is the number of logged rows, or None."""

    def __init__(self, seed, fault=None, points=None):
        self.draw = r = numpy.random.default_rng(seed)
        self.fault = fault
        self.kind = "dpo" if fault else str(r.choice(["dpo", "dpo", "dpo", "ipo", "hinge", "simpo", "cpo"]))
        self.free = self.kind in ("simpo", "cpo")
        self.prompts, width = int(r.choice([200, 1000])), int(r.choice([32, 96]))
        self.features = r.normal(size=(self.prompts, ANSWERS, width)) / numpy.sqrt(width)
        self.reference = r.normal(size=width) * r.choice([1, 3])
        self.beta = float(r.choice([0.01, 0.05, 0.1, 0.5]))
        self.flipped = float(r.choice([0, 0.1, 0.25] if fault else [0, 0.1, 0.25, 0.4, 0.5]))  # share of wrong labels
        self.rate = float(r.choice([0.02, 0.1, 0.5])) * float(r.choice([0.1, 1])) / (1 if self.free else self.beta)
        self.batch, self.every = int(r.choice([4, 8, 32])), int(r.choice([1, 1, 5]))
        self.points = points or int(r.choice([10, 20, 60, 200]))
        self.order = str(r.choice(["random", "random", "epochs", "sources"]))
        self.length = r.uniform(-1, 1, size=(self.prompts, ANSWERS))
        self.quality = self.features @ (3 * r.normal(size=width)) + r.normal(size=(self.prompts, ANSWERS))
        if self.order == "sources":
            half = self.prompts // 2
            self.quality[half:] = (self.features @ (3 * r.normal(size=width)) + r.normal(size=(self.prompts, ANSWERS)))[half:]

    def pairs(self, step, steps):
        r = self.draw
        if self.order == "epochs":
            rows = numpy.arange(step * self.batch, (step + 1) * self.batch) % self.prompts
            first, second = rows % ANSWERS, (rows + 1 + rows % (ANSWERS - 1)) % ANSWERS
            flip = rows * 2654435761 % 1000 < 1000 * self.flipped
        else:
            rows = r.integers(self.prompts, size=self.batch)
            if self.order == "sources":
                rows = rows // 2 + (self.prompts // 2 if step * 4 // steps % 2 else 0)
            first = r.integers(ANSWERS, size=self.batch)
            second = (first + 1 + r.integers(ANSWERS - 1, size=self.batch)) % ANSWERS
            flip = r.random(self.batch) < self.flipped
        better = (self.quality[rows, first] > self.quality[rows, second]) ^ flip
        return rows, numpy.where(better, first, second), numpy.where(better, second, first)

    def log_probabilities(self, weights, rows):
        scores = self.features[rows] @ weights
        top = scores.max(1, keepdims=True)
        return scores - top - numpy.log(numpy.exp(scores - top).sum(1, keepdims=True))

    def rewards(self, weights, rows, answers):
        at = numpy.arange(len(rows))
        now = self.log_probabilities(weights, rows)[at, answers]
        before = self.length[rows, answers] if self.free else self.log_probabilities(self.reference, rows)[at, answers]
        return self.beta * (now - before)

    def loss_and_slope(self, margin):
        """Returns the mean loss, and its derivative by the margin times beta."""
        if self.kind == "ipo":
            rest = margin / self.beta - 1 / (2 * self.beta)
            return (rest**2).mean(), 2 * rest * self.beta**2
        if self.kind == "hinge":
            return numpy.maximum(0, 1 - margin).mean(), -self.beta * (margin < 1)
        return numpy.logaddexp(0, -margin).mean(), -self.beta / (1 + numpy.exp(margin))

    def rows(self):
        weights, steps, open_rows, out = self.reference.copy(), self.points * self.every, [], []
        for step in range(steps):
            rows, chosen, rejected = self.pairs(step, steps)
            of_chosen, of_rejected = self.rewards(weights, rows, chosen), self.rewards(weights, rows, rejected)
            margin = of_chosen - of_rejected
            loss, slope = self.loss_and_slope(margin)
            gradient = ((self.features[rows, chosen] - self.features[rows, rejected]) * slope[:, None]).mean(0)
            gradient /= max(1, numpy.linalg.norm(gradient))
            weights = weights - self.rate * min(1, 10 * (step + 1) / steps) * gradient * (-1 if self.fault == "sign" else 1)
            if self.fault == "order":
                margin, of_chosen, of_rejected = -margin, of_rejected, of_chosen
            open_rows.append((loss, of_chosen.mean(), of_rejected.mean(), margin.mean(), (margin > 0).mean()))
            if len(open_rows) == self.every:
                values = numpy.mean(open_rows, axis=0)
                names = ("loss", "rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies")
                out.append({"step": step + 1, **{name: float(f"{value:.4g}") for name, value in zip(names, values)}})
                open_rows = []
        return out


def files_of(rows, form):
    if form == "lines":
        return {"metrics.jsonl": "".join(json.dumps(row) + "\n" for row in rows)}
    last = rows[-1]["step"]
    return {"trainer_state.json": json.dumps({"global_step": last, "max_steps": last, "logging_steps": rows[0]["step"], "log_history": rows})}


def cases(healthy, first=0):
    """Yields (name, None, files) of `healthy` trainings without a fault."""
    for seed in range(first, first + healthy):
        training = Training(seed)
        yield f"{training.kind}-{training.order}-{seed}", None, files_of(training.rows(), ("state", "lines")[seed % 2])


def faults(each, points):
    """Yields (name, expected, files) of `each` trainings with each fault, with `points` rows."""
    for fault in ("sign", "order"):
        for seed in range(90000, 90000 + each):
            rows = Training(seed, fault, points).rows()
            yield f"{fault}-{points}-{seed}", [(COLLAPSE, "warning")], files_of(rows, ("state", "lines")[seed % 2])
