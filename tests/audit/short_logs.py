"""Console logs of short fine-tunings, as Hugging Face's Trainer prints them: 18 with a label (15 faulty, 3 healthy) for each
seed, and the runs of the cases that one rule each is for."""

import math
import random

NAN, INF = float("nan"), float("inf")


class Run:
    """A healthy fine-tuning of `rows` logged rows, 10 steps each; faults change its rows."""

    def __init__(self, seed, rows=80, epochs=3.0, begin=1.9, end=1.1, noise=0.02, rate=2e-5):
        self.random = random.Random(seed)
        self.rows = []
        for i in range(rows):
            done = i / rows
            fall = end + (begin - end) * math.exp(-6 * done)
            warm = min(1.0, (i + 1) / (0.05 * rows))
            self.rows.append({
                "loss": self.noisy(fall, noise), "grad_norm": self.noisy(1.4, 0.2),
                "learning_rate": rate * warm * (1 - done), "epoch": round(epochs * (i + 1) / rows, 2)})

    def noisy(self, value, noise):
        return value * math.exp(noise * self.random.gauss(0, 1))

    def losses(self, change):
        """`change`: of (share done, row's number, loss)."""
        for i, row in enumerate(self.rows):
            row["loss"] = change(i / len(self.rows), i, row["loss"])
        return self

    def set(self, key, value, first=0, last=None):
        for row in self.rows[first:last]:
            row[key] = value
        return self

    def with_evaluations(self, of, every=8):
        """`of`: the evaluation's loss by the share done."""
        out = []
        for i, row in enumerate(self.rows):
            out.append(row)
            if i % every == every - 1:
                out.append({"eval_loss": of((i + 1) / len(self.rows)), "eval_runtime": 12.3,
                            "eval_samples_per_second": 81.2, "epoch": row["epoch"]})
        self.rows = out
        return self

    def text(self):
        lines = []
        for row in self.rows:
            shown = {k: round(v, 4) if k in ("loss", "eval_loss") and math.isfinite(v) else v for k, v in row.items()}
            lines.append(str(shown))
        return "\n".join(lines) + "\n"


def flat(seed, level, noise, rate=2e-5):
    run = Run(seed, rate=rate)
    return run.losses(lambda done, i, loss: run.noisy(level, noise))


def exploding(done, at, top, end):
    return end + (top - end) * math.exp(-6 * (done - at))


def faulty(seed):
    """Name -> log. Each must be reported as a warning or an error."""
    far = Run(seed, rate=5e-3)
    late = Run(seed)
    early = Run(seed)
    spikes = Run(seed)
    overfit = Run(seed, end=0.1)
    return {
        "rate far too high": far.losses(
            lambda d, i, x: far.noisy(1.9 if d < 0.1 else exploding(d, 0.1, 20, 7.5), 0.05)).text(),
        "ruined and back": far.losses(
            lambda d, i, x: far.noisy(3.3 if d < 0.1 else exploding(d, 0.1, 84, 14.3), 0.05)).text(),
        "breaks at once": early.losses(lambda d, i, x: x if i < 4 else early.noisy(8, 0.03)).text(),
        "diverges late": late.losses(lambda d, i, x: x * (1 if d < 0.6 else math.exp(5 * (d - 0.6)))).text(),
        "norm NaN from the first row": Run(seed).set("grad_norm", NAN).set("loss", 0.0).text(),
        "norm NaN later": Run(seed).set("grad_norm", NAN, 40).set("loss", 0.0, 40).text(),
        "loss NaN": Run(seed).set("grad_norm", NAN, 30).set("loss", NAN, 30).text(),
        "loss 0.0, no norm": without(Run(seed).set("loss", 0.0, 40), "grad_norm").text(),
        "rate 0": flat(seed, 1.4, 0.01).set("learning_rate", 0.0).text(),
        "no learning": flat(seed, 1.87, 0.01).text(),
        "uniform guess": flat(seed, math.log(5), 0.01).text(),
        "bf16 swallows the updates": flat(seed, 1.43, 0.02, rate=1e-6).text(),
        "overfit": overfit.with_evaluations(lambda d: overfit.noisy(1.25 + 2.5 * max(0.0, d - 0.1), 0.01)).text(),
        "evaluation NaN": Run(seed).with_evaluations(lambda d: NAN).text(),
        "spikes without recovery": spikes.losses(
            lambda d, i, x: x * (1 if i < 40 else 3 if i < 46 else 2.2)).text(),
    }


def without(run, key):
    for row in run.rows:
        row.pop(key, None)
    return run


def healthy(seed):
    """Name -> log. None may be reported above a note."""
    scaled = Run(seed, rows=100, noise=0.05)
    scaled.rows[37]["grad_norm"] = INF
    evaluated = Run(seed, rows=60, epochs=1.0)
    return {
        "fine-tuning": Run(seed, rows=120, noise=0.08).text(),
        "fp16, one skipped step": scaled.text(),
        "with evaluations": evaluated.with_evaluations(
            lambda d: evaluated.noisy(1.15 + 0.5 * math.exp(-5 * d), 0.01), every=6).text(),
    }
