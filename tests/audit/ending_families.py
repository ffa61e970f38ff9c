"""Families of logs that end in a fault, or that only look so: explosions, phases that the log names, losses of 0."""

import math

from verdict_families import NAN, Case, Run


def explodes_at_the_end(seed, points):
    run = Run(seed, max(points, 12), own=False)
    rows, each = run.random.choice((3, 4, 6)), run.random.choice((2.2, 5))
    first = run.points - rows
    level = run.rows[first - 1]["loss"]
    run.put("loss", lambda i: run.noisy(level * each ** (i + 1)), first)
    top = run.rows[-1]["loss"] / max(row["loss"] for row in run.rows[:first])
    if top > 4:
        yield Case("50 explodes at the end", f"{rows} rows, {each} times each", True, ("health/loss-divergence", "error"), run.file())
    run = Run(seed, max(points, 12), own=False)
    run.rows[-3]["loss"] *= 3
    run.rows[-2]["loss"] *= 2
    yield Case("50 explodes at the end", "a spike that falls back", False, "warning", run.file(), without=("health/loss-divergence",))


def phases(seed, points):
    if points < 60:
        return
    run = Run(seed, points, own=False)
    word = run.random.choice(("stage", "phase", "seq_len"))
    third = points // 3
    for k, level in enumerate((1.2, 1.6, 2.1)):
        last = points if k == 2 else (k + 1) * third
        run.put("loss", lambda i, level=level: run.noisy(level * (1 + 0.3 * math.exp(-9 * i / third))), k * third, last)
        run.put(word, k + 1, k * third, last)
    yield Case("29 phases", f"{word} changes as the loss rises", False, "warning", run.file())
    run.put(word, 1)
    run.put("loss", lambda i: run.noisy(6.0), 2 * third)
    yield Case("29 phases", f"{word} does not change", True, ("health/loss-divergence", "error"), run.file())


def evaluations_of_masked_losses(seed, points):
    run = Run(seed, max(points, 20))
    first = run.at(0.3, 0.5)
    run.put("loss", 0.0, first).put("norm", NAN, first)
    run.evaluated(max(5, run.points // 5), lambda d: NAN if d > first / run.points else 1.2)
    yield Case("25 masked loss", "evaluation NaN", True, ("health/loss-non-finite", "error"), run.file(), without=("evaluation",))


FAMILIES = (explodes_at_the_end, phases, evaluations_of_masked_losses)
