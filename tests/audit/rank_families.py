"""Families of logs in which several ranks write, as text, as a table and as JSON lines: the loss of one rank, or of a node, becomes 0,
freezes or leaves the others. Each with healthy twins."""

import json
import math

from verdict_families import Case, Run


def written(run, rows, form):
    """`rows`: a list of (step, rank, loss). Rows of ranks are mixed within a step, or all of one rank come first."""
    if run.random.random() < 0.2 and form != "text":
        rows = sorted(rows, key=lambda row: row[1])
    key = run.random.choice(("rank", "rank", "global_rank", "process_index"))
    if form == "text":
        word = run.random.choice(("[rank{}]: step: {} loss: {:.4f} lr: 1.0e-03", "rank {} step {} loss {:.4f}"))
        return {"r.log": "".join(word.format(rank, step, loss) + "\n" for step, rank, loss in rows)}
    if form == "table":
        return {"r.csv": f"{key},step,loss,lr\n" + "".join(f"{rank},{step},{loss:.4f},0.001\n" for step, rank, loss in rows)}
    return {"r.jsonl": "".join(json.dumps({key: rank, "step": step, "loss": round(loss, 6)}) + "\n" for step, rank, loss in rows)}


def logs(run, count, change, noise=0.04):
    """`change(rank, row, value)` returns the value that the rank logs."""
    rows = []
    for i, row in enumerate(run.rows):
        rows += [(row["step"], rank, change(rank, i, run.noisy(row["loss"], noise))) for rank in range(count)]
    return written(run, rows, run.random.choice(("text", "table", "JSON")))


def zeros(seed, points):
    if points < 20:
        return
    run = Run(seed, points, own=False)
    count, at, bad = run.random.choice((2, 4, 8)), run.at(0.3, 0.5), run.random.choice((0, 1))
    yield Case("ranks", "one becomes 0", True, ("health/rank-norms", "warning"),
               logs(run, count, lambda rank, i, value: 0.0 if rank == bad and i >= at else value))
    yield Case("ranks", "a pipeline, whose last rank has the loss", False, "note",
               logs(run, 4, lambda rank, i, value: value if rank == 3 else 0.0))
    yield Case("ranks", "one has no labels in some rows", False, "note",
               logs(run, 4, lambda rank, i, value: 0.0 if rank == 1 and i % 7 == 3 else value))


def values_that_stand(seed, points):
    if points < 20:
        return
    run = Run(seed, points, own=False)
    count, at, held = run.random.choice((2, 4, 8)), run.at(0.3, 0.4), {}
    bad = (1, 2) if count == 8 else (1,)
    yield Case("ranks", "one stands", True, ("health/rank-norms", "warning"),
               logs(run, count, lambda rank, i, value: held.setdefault(rank, 1.2345 + value / 10) if rank in bad and i >= at else value))
    kept = {}
    yield Case("ranks", "one logs each tenth value", False, "note",
               logs(run, 4, lambda rank, i, value: kept.setdefault(i // 10, round(value, 4)) if rank == 1 else value))


def nodes(seed, points):
    if points < 60:
        return
    run = Run(seed, points, own=False)
    at, times = points // 3, run.random.choice((0.1, 0.3, 3))
    bad = run.random.choice(((2, 3), (6, 7), (5,)))
    yield Case("ranks", "those of a node leave", True, ("health/rank-norms", "warning"),
               logs(run, 8, lambda rank, i, value: value * (times if rank in bad and i >= at else 1)))
    away = [0.0] * 8

    def lasting(rank, _, value):
        away[rank] = 0.9 * away[rank] + 0.44 * run.random.gauss(0, 1)
        return value * math.exp(0.15 * away[rank])
    # Rank 0 alone, with noise that lasts, may drift.
    yield Case("ranks", "noise that lasts", False, "error", logs(run, 8, lasting), without=("health/rank-norms",))
    levels = [math.exp(run.random.gauss(0, 0.25)) for _ in range(8)]
    yield Case("ranks", "each has its own data", False, "note", logs(run, 8, lambda rank, i, value: value * levels[rank]))


def numbers_that_are_no_ranks(seed, points):
    """An effective rank, logged over steps: the rows are one series."""
    run = Run(seed, points, own=False)
    rows = [(row["step"], run.random.choice((61, 62, 63)) if i else 64, row["loss"]) for i, row in enumerate(run.rows)]
    rows[points // 2:] = [(step, rank, 20 * loss) for step, rank, loss in rows[points // 2:]]
    yield Case("ranks", "effective ranks", True, (None, "error"), written(run, rows, run.random.choice(("table", "JSON"))))


FAMILIES = (zeros, values_that_stand, nodes, numbers_that_are_no_ranks)
