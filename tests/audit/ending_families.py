"""Families of logs that end in a fault, or that only look so: explosions, phases that the log names, losses of 0."""

import json
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


def lost_colours(seed, points):
    for bad in (True, False):
        run = Run(seed, points)
        mark = run.random.choice(("[", "^[[", "#033["))
        value = [NAN if bad and i >= points // 2 else row["loss"] for i, row in enumerate(run.rows)]
        lines = [f"{mark}36mStep {i + 1} {mark}32mloss {v:.4f}{mark}0m" for i, v in enumerate(value)]
        yield Case("37 lost colours", mark, bad, ("health/loss-non-finite", "error") if bad else None, {"c.log": "\n".join(lines) + "\n"})


def steps_as_a_list(seed, points):
    run = Run(seed, points)
    steps, losses = [50 * (i + 1) for i in range(points)], [row["loss"] for row in run.rows]
    yield Case("47 list of steps", "healthy", False, None, {"h.json": json.dumps({"steps": steps, "loss": losses})})
    losses[points // 2:] = [NAN] * (points - points // 2)
    yield Case("47 list of steps", "NaN", True, ("health/loss-non-finite", "error"), {"h.json": json.dumps({"steps": steps, "loss": losses})})


def names_of_cleanrl(seed, points):
    if points < 60:
        return
    for collapses in (True, False):
        rand = Run(seed, points)
        rows = ["global_step,losses/value_loss,losses/policy_loss,losses/entropy,losses/clipfrac,losses/qf1_values,charts/episodic_return"]
        for i in range(points):
            bad = collapses and i >= points // 2
            entropy, clipped, brought = (0.0006, 0.9, 9) if bad else (0.6, 0.1, 200)
            numbers = [0.4, -0.008, entropy, clipped, 3 + i, brought]
            rows.append(",".join([str(512 * (i + 1))] + [f"{rand.noisy(v, 0.05):.5g}" for v in numbers]))
        yield Case("54 CleanRL", "collapses" if collapses else "healthy", collapses,
                   ("health/rl-collapse", "error") if collapses else "note", {"p.csv": "\n".join(rows) + "\n"})


FAMILIES = (explodes_at_the_end, phases, evaluations_of_masked_losses, lost_colours, steps_as_a_list, names_of_cleanrl)
