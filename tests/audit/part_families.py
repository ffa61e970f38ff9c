"""Families of logs whose fault is in a part of the run: a critic, a side of a game, one rank, the speed, the labels, the
evaluation, the optimizer; and losses that rise within few rows. Each with a healthy twin."""

import math

from verdict_families import Case, Run


def table(header, rows):
    """A CSV file of rows of numbers."""
    return {"t.csv": "\n".join([",".join(header)] + [",".join(f"{v:.6g}" for v in row) for row in rows]) + "\n"}


def critics(seed, points):
    if points < 60:
        return
    run = Run(seed, points)
    name = run.random.choice(("losses/value_loss", "losses/qf1_loss", "critic_loss", "train/value_loss"))
    each, rewards = run.random.choice((1.9, 3.0)), run.random.choice(("charts/episodic_return", "rollout/ep_rew_mean"))
    first = points - 60 + 20
    for grows in (True, False):
        rows = []
        for i in range(points):
            # A healthy critic's loss follows the rewards, which grow a hundred times.
            value = 0.5 * each ** max(0, i - first) if grows else 0.01 * (1 + 3000 * i / points)
            reward = (200 if i < first else 20) if grows else 5 + 500 * i / points
            rows.append((512 * (i + 1), run.noisy(value, 0.2), run.noisy(0.01) - 0.01, run.noisy(0.6, 0.05), run.noisy(reward, 0.1)))
        header = ("global_step", name, "losses/policy_loss", "losses/entropy", rewards)
        yield Case("55 critic", f"{name} {'explodes' if grows else 'follows the rewards'}", grows,
                   ("health/loss-parts", "error") if grows else "note", table(header, rows))


def sides(seed, points):
    if points < 60:
        return
    run = Run(seed, points)
    d, g = run.random.choice((("Loss_D", "Loss_G"), ("d_loss", "g_loss"), ("loss/D", "loss/G")))
    for won in (True, False):
        rows = []
        for i in range(points):
            lost = won and 2 * i > points
            rows.append((i + 1, round(run.noisy(0.0 if lost else 0.6, 0.3), 4), run.noisy(1.5 + (20 if lost else 0), 0.2)))
        yield Case("6 game", f"{d} {'is 0 for good' if won else 'moves'}", won, ("health/loss-parts", "warning") if won else None,
                   table(("step", d, g), rows))


def speeds(seed, points):
    if points < 60:
        return
    for falls in (True, False):
        run = Run(seed, points, own=False)
        lines = []
        for i, row in enumerate(run.rows):
            slow = 0.2 if falls and i >= points - 30 else 0.5 if i % 9 == 8 else 1
            tps = run.noisy(4300 * slow, 0.02)
            lines.append(f"step: {row['step']:3d}  loss: {row['loss']:8.4f}  grad_norm: {row['norm']:7.4f}  tps: {tps:,.0f}  "
                         f"mfu: {tps / 110:.2f}%")
        yield Case("7 speed", "a fifth of it" if falls else "slow evaluations", falls,
                   ("performance/mfu", "warning") if falls else None, {"t.log": "\n".join(lines) + "\n"})


def ranks(seed, points):
    if points < 60:
        return
    for leaves in (True, False):
        run = Run(seed, points)
        other = run.random.choice((1.0, 1.3))  # a shard of harder data
        lines = []
        for i, row in enumerate(run.rows):
            for rank in range(4):
                times = (1 + 2 * i / points if leaves else other) if rank == 3 else 1
                lines.append(f"rank {rank} step {i + 1} loss {run.noisy(row['loss'], 0.03) * times:.4f}")
        yield Case("30 ranks", "one leaves" if leaves else "one has harder data", leaves,
                   ("health/rank-norms", "warning") if leaves else None, {"r.log": "\n".join(lines) + "\n"})


def labels(seed, points):
    run = Run(seed, points)
    for none in (True, False):
        rows = []
        for i in range(max(points, 10)):
            boxes = 0.0 if none else run.noisy(1.2 - 0.5 * i / points)
            rows.append((i + 1, boxes, run.noisy(42 * math.exp(-6 * i / points) + 0.1), 1.2 * boxes))
        yield Case("35 labels", "none" if none else "some", none, ("health/loss-parts", "warning") if none else None,
                   table(("epoch", "train/box_loss", "train/cls_loss", "train/dfl_loss"), rows))


def answers(seed, points):
    if points < 60:
        return
    run = Run(seed, points)
    for explodes in (True, False):
        rows = []
        for i in range(points):
            done = max(0.0, 2 * i / points - 1) if explodes else 0
            clipped = min(1.0, run.noisy(0.02, 0.2) + 2 * done)
            rows.append((i + 1, run.noisy(0.5 * (1 - 0.9 * done), 0.05), run.noisy(200 + 1800 * done), clipped, run.noisy(0.02)))
        yield Case("56 length", "explodes" if explodes else "stays", explodes, ("health/rl-collapse", "error") if explodes else "note",
                   table(("step", "reward", "completions/mean_length", "completions/clipped_ratio", "kl"), rows))


def preferences(seed, points):
    for same in (True, False):
        run = Run(seed, max(points, 12))
        rows = []
        for i in range(run.points):
            margin = 0.0 if same else run.noisy(0.02 * (i + 1))
            rows.append((i + 1, round(math.log1p(math.exp(-margin)), 4), margin, margin / 2, -margin / 2))
        yield Case("27 preference", "the reference is the policy" if same else "learns", same,
                   ("health/rl-collapse", "warning") if same else None,
                   table(("step", "loss", "rewards/margins", "rewards/chosen", "rewards/rejected"), rows))


def evaluations_that_stand(seed, points):
    for stands in (True, False):
        run = Run(seed, max(points, 20), own=False)
        run.evaluated(max(10, run.points // 4), lambda d: 2.3026 if stands else run.noisy(2.3 * math.exp(-0.4 * d), 0.01))
        yield Case("22 evaluation", "stands" if stands else "falls", stands, (None, "warning") if stands else None, run.file())


def epochs_that_repeat(seed, points):
    if points < 20:
        return
    for repeats in (True, False):
        run = Run(seed, points, own=False)
        epoch = [run.noisy(2.3, 0.05) for _ in range(7)]
        run.put("loss", lambda i: epoch[i % 7] * (1 if repeats else run.noisy(math.exp(-0.05 * (i // 7)), 0.001)))
        run.put("rate", 1e-3)
        yield Case("24 epochs", "digit for digit" if repeats else "each a little lower", repeats,
                   ("health/not-learning", "warning") if repeats else "warning", run.file(),
                   without=() if repeats else ("health/loss-divergence",))


def rises_to_the_end(seed, points):
    if points < 20:
        return
    run = Run(seed, points, own=False)
    height = run.random.choice((2.2, 3))
    shape = run.random.choice((lambda t: height, lambda t: 1 + (height - 1) * t, lambda t: height ** t))
    first = points // 2
    run.end = run.begin * 0.3
    run.put("loss", lambda i: run.noisy(run.begin * (0.3 + 0.7 * math.exp(-8 * i / points)), 0.02))
    level = run.rows[first]["loss"]
    run.put("loss", lambda i: run.noisy(level * shape((i + 1) / (points - first)), 0.02), first)
    yield Case("19 rises to its end", f"{height} times", True, ("health/loss-divergence", "error"), run.file())
    run = Run(seed, points, own=False)
    level = run.rows[first]["loss"]
    run.put("loss", lambda i: run.noisy(level * 1.15, 0.02), first)
    # From 48 points on, a loss that stays a tenth up is a drift: a warning.
    yield Case("19 rises to its end", "by a seventh", False, "warning", run.file(), without=() if points > 48 else ("health/loss-divergence",))


def without_a_lowest_value(seed, points):
    if points < 20:
        return
    for falls in (True, False):
        run = Run(seed, points, own=False).drop("norm")
        first, each = 5, (1e7 ** (1 / (points - 5))) if falls else 1
        run.put("loss", lambda i: run.noisy(0.9 if i < first else -(each ** (i - first)) if falls else 0.9 - 3 * i / points, 0.05))
        yield Case("21 minus infinity", "falls on" if falls else "a likelihood", falls,
                   ("health/loss-divergence", "error") if falls else None, run.file())


FAMILIES = (critics, sides, speeds, ranks, labels, answers, preferences, evaluations_that_stand, epochs_that_repeat, rises_to_the_end,
            without_a_lowest_value)
