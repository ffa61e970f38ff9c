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


def values_that_freeze(seed, points):
    """A loss, or an evaluation, that is one number from some row on; and one that comes to rest in ever smaller moves."""
    if points < 20:
        return
    run = Run(seed, points, own=False)
    run.put("rate", 1e-3).put("loss", lambda i: round(run.rows[i]["loss"], 4))
    first = points - max(10, run.at(0.3, 0.6))
    twin = Run(seed, points, own=False)
    share = twin.random.choice((0.3, 0.7, 0.9))
    twin.put("loss", lambda i: round(twin.end + twin.begin * share ** (i + 1), 4)).drop("norm")
    yield Case("30 freezes", "a loss of full batches converges", False, "note", twin.file())
    run.put("loss", run.rows[first]["loss"], first)
    yield Case("30 freezes", "the training loss", True, ("health/not-learning", "warning"), run.file())
    for stale in (True, False):
        run = Run(seed, points, own=False)
        run.put("loss", lambda i: run.noisy(run.begin * (1 - 0.8 * i / points)))
        run.put("eval", lambda i: round(run.noisy(1.2 - 0.4 * i / points, 0.03), 4))
        if stale:
            run.put("eval", run.rows[first]["eval"], first)
        yield Case("29 evaluation", "freezes" if stale else "falls", stale, ("health/not-learning", "warning") if stale else "note", run.file())


def parts_that_are_switched_on(seed, points):
    if points < 60:
        return
    for form in ("0 before", "absent before", "explodes"):
        run = Run(seed, points, own=False).drop("norm")
        first, size = run.at(0.4, 0.6), run.begin * run.random.choice((0.3, 0.6, 1))
        games = () if form == "explodes" else ("g_loss", "gan_g_loss")
        term = run.random.choice(("perceptual_loss", "l1_loss", "lpips_loss", "dice_loss", *games))
        run.names.of["loss"] = run.random.choice(("loss", "total_loss", "train/loss"))
        times = 40 if form == "explodes" else 1
        for i, row in enumerate(run.rows):
            part = run.noisy(size * math.exp(-(i - first) / points)) if i >= first else 0.0
            row.update({"recon_loss": row["loss"], "loss": row["loss"] + part * times})
            if part or form != "absent before":
                row[term] = part
        explodes = form == "explodes"
        yield Case("35 switched on", f"{term} {form}", explodes, ("health/loss-divergence", "error") if explodes else "note", run.file())


def actors_and_critics(seed, points):
    """Losses of an own DDPG, without a reward; and of three tasks."""
    if points < 20:
        return
    run = Run(seed, points, own=False)
    form = run.random.choice(("loss_{}", "{}_loss", "train/loss_{}"))
    for tasks in (False, True):
        rows = []
        for i in range(points):
            q = 0.5 + 2000 * i / points
            values = (run.noisy(9 if 2 * i > points else 1), run.noisy(0.6), run.noisy(9 if 2 * i > points else 1)) if tasks else (
                run.noisy(-q, 0.05), run.noisy(0.05 + 0.05 * q, 0.25))
            rows.append((i + 1, *values))
        header = ("step", *(form.format(letter) for letter in ("abc" if tasks else "ac")))
        yield Case("33 letters", "three tasks" if tasks else "an actor and a critic", tasks,
                   ("health/loss-divergence", "error") if tasks else "note", table(header, rows))


def balances(seed, points):
    if points < 60:
        return
    for collapses in (True, False):
        run = Run(seed, points, own=False)
        name = run.random.choice(("load_balancing_loss", "moe/load balancing loss", "lb_loss", "balance_loss"))
        experts, even = run.random.choice(((8, 1.0), (64, 1.0), (4, 0.01), (16, 2.0)))
        end = 0.98 * experts if collapses else 1.5
        run.put(name, lambda i: even * run.noisy(1.02 + (end - 1) / (1 + math.exp((0.4 - i / points) / 0.03)), 0.01))
        yield Case("31 balance", "collapses" if collapses else "a little uneven", collapses,
                   ("health/loss-parts", "warning") if collapses else "note", run.file())


def steps_by_other_names(seed, points):
    run = Run(seed, points, own=False)
    unit = run.random.choice(("episode", "round", "itr", "timestep", "timesteps", "batch", "generation", "opt_step", "Episode"))
    rows = [(i + 1, row["loss"], row["rate"]) for i, row in enumerate(run.rows)]
    yield Case("4 steps", unit, False, "note", table((unit, "loss", "lr"), rows))
    rows[points // 2:] = [(i, 20 * loss, rate) for i, loss, rate in rows[points // 2:]]
    yield Case("4 steps", f"{unit}, diverges", True, (None, "error"), table((unit, "loss", "lr"), rows))


def starts_in_one_log(seed, points):
    """A dictionary a row, without totals: the epoch falls back at the second start."""
    if points < 20:
        return
    run = Run(seed, points, own=False)
    for resumes in (True, False):
        lines, at = [], run.at(0.4, 0.7)
        for part in (range(at), range(at // 2 if resumes else 0, points)):
            for i in part:
                loss = run.noisy(0.5 + 1.8 * math.exp(-8 * i / points), 0.02)
                lines.append(f"{{'loss': {loss:.4f}, 'grad_norm': {run.noisy(1, 0.1):.4f}, 'learning_rate': {3e-4 * (1 - i / points):.4e}, "
                             f"'epoch': {3 * (i + 1) / points:.2f}}}")
        yield Case("17 starts", "a resume" if resumes else "from the beginning", False, "note", {"train.log": "\n".join(lines) + "\n"})


def scales_without_end(seed, points):
    if points < 60:
        return
    for falls in (True, False):
        run = Run(seed, points, own=False)
        at = points - 30 if falls else 3
        scale = run.random.choice((8.0, 65536.0)) if falls else 65536.0
        run.put("scale", lambda i: scale * 0.5 ** max(0, i - at if falls else min(i, at)))
        yield Case("32 scale", "falls without end" if falls else "finds its level", falls,
                   ("health/loss-scale", "warning") if falls else "note", run.file())


def ranks_below(seed, points):
    if points < 60:
        return
    for form in ("falls", "stands", "noise that lasts", "easier data"):
        run = Run(seed, points)
        count = 8 if form == "noise that lasts" else 4
        away, lines = [0.0] * count, []
        for i, row in enumerate(run.rows):
            for rank in range(count):
                away[rank] = 0.9 * away[rank] + 0.44 * run.random.gauss(0, 1)
                noise = 0.15 * away[rank] if form == "noise that lasts" else 0.03 * run.random.gauss(0, 1)
                value = row["loss"] * math.exp(noise)
                if rank == 2:
                    value *= {"falls": 0.1 ** min(1, 1.5 * i / points), "easier data": 0.7}.get(form, 1)
                    if form == "stands" and 3 * i > points:
                        value = 1.2345
                lines.append(f"rank {rank} step {i + 1} loss {value:.4f}")
        faulty = form in ("falls", "stands")
        # Rank 0 alone, with noise that lasts, may drift.
        allowed = "warning" if form == "noise that lasts" else None
        yield Case("22 ranks", form, faulty, ("health/rank-norms", "warning") if faulty else allowed, {"r.log": "\n".join(lines) + "\n"},
                   without=() if faulty else ("health/rank-norms",))


def parts_without_a_whole(seed, points):
    """Of parts without a total one explodes; or a detector finds more boxes."""
    if points < 20:
        return
    for times in (1e4, 3):
        run = Run(seed, points, own=False)
        cls, box = run.random.choice((("loss_cls", "loss_bbox"), ("cls_loss", "iou_loss"), ("loss_rpn_cls", "loss_rpn_bbox")))
        rows = [(i + 1, row["loss"], run.noisy(0.5 * times ** max(0, 2 * i / points - 1), 0.05)) for i, row in enumerate(run.rows)]
        yield Case("28 parts", f"{box} {times:g} times", times > 3, ("health/loss-divergence", "warning") if times > 3 else "note",
                   table(("step", cls, box), rows))


FAMILIES = (critics, sides, speeds, ranks, labels, answers, preferences, evaluations_that_stand, epochs_that_repeat, rises_to_the_end,
            without_a_lowest_value, values_that_freeze, parts_that_are_switched_on, actors_and_critics, balances, steps_by_other_names,
            starts_in_one_log, scales_without_end, ranks_below, parts_without_a_whole)
