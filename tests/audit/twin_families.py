"""Families of logs that look alike, one faulty and one healthy: values that repeat, evaluations that are printed again, weights of parts,
losses that reach 0, models that begin anew, and losses that balance."""

import math

from part_families import table
from verdict_families import Case, Run


def epochs_that_begin_to_repeat(seed, points):
    """A run learns at first; then each epoch logs the values of the one before. A twin converges to a small cycle of full batches."""
    if points < 40:
        return
    run = Run(seed, points, own=False)
    period, first = run.random.choice((7, 10)), points - max(20, run.at(0.4, 0.6))
    run.noise = max(run.noise, 0.01)
    run.put("rate", 1e-3).put("loss", lambda i: round(run.noisy(run.end + run.begin * math.exp(-5 * i / points)), 4))
    run.put("loss", lambda i: run.rows[first + i - period * (i // period + 1)]["loss"], first)
    yield Case("repeats", "from some epoch on", True, ("health/not-learning", "warning"), run.file())
    twin = Run(seed, points, own=False)
    twin.put("rate", 1e-3)
    twin.put("loss", lambda i: round(twin.end + twin.begin * 0.7 ** i + 1e-4 * (0, 2, 1, 3)[i % 4], 4))
    yield Case("repeats", "a small cycle", False, "note", twin.file())
    twin.put("loss", lambda i: round(twin.noisy(twin.end + twin.begin * math.exp(-i / 9), 0.05), 4))
    yield Case("repeats", "noise", False, "note", twin.file())


def evaluations_that_are_printed_again(seed, points):
    """One evaluation for many rows, in each row of the training; and a model whose evaluation does not change."""
    if points < 20:
        return
    for form in ("a copy in each row", "evaluated rarely", "epochs"):
        run = Run(seed, points, own=False)
        every = 1 if form == "epochs" else run.random.choice((10, 50, 500))
        value = round(run.noisy(1.2345, 0.1), 5)
        rows = []
        for i, row in enumerate(run.rows):
            falls = run.noisy(run.begin * (0.3 + 0.7 * math.exp(-5 * i / points)))
            rows.append([every * (i + 1), f"{falls:.5g}", f"{value}" if form != "evaluated rarely" or i % 2 else ""])
        text = "\n".join(",".join(map(str, row)) for row in [["step", "train_loss", "val_loss"], *rows]) + "\n"
        copied = form == "a copy in each row"
        yield Case("evaluations", form, not copied, "note" if copied else ("health/not-learning", "warning"), {"t.csv": text})


def weights_that_change(seed, points):
    """The weight of a part, which is not logged, changes in one row; or that part explodes."""
    if points < 40:
        return
    for form in ("weight", "explodes"):
        run = Run(seed, points, own=False)
        first = run.at(0.4, 0.6)
        rows = []
        for i in range(points):
            done = i / points
            main, other = (run.noisy(end + (begin - end) * math.exp(-3 * done), 0.03) for begin, end in ((2.4, 0.8), (1.5, 0.5)))
            times = 0.1 if i < first else 1.0 if form == "weight" else 0.1 * 400 ** ((i - first + 1) / (points - first))
            rows.append((10 * (i + 1), main + times * other, main, times * other))
        explodes = form == "explodes"
        yield Case("weights", form, explodes, ("health/loss-divergence", "error") if explodes else "warning",
                   table(("step", "loss", "loss_seg", "loss_depth"), rows))


def losses_that_reach_zero(seed, points):
    if points < 20:
        return
    for form in ("all right", "masked"):
        run = Run(seed, points, own=False).drop("norm")
        first, hinge = run.at(0.5, 0.6), run.random.choice(("hinge_loss", "loss"))
        rows = []
        for i in range(points):
            loss = 0.0 if i >= first else run.noisy(0.3 + 0.7 * math.exp(-4 * i / points), 0.1)
            accuracy = (1.0 if form == "all right" else 0.1) if i >= first else 1 - 0.5 * loss
            rows.append((i + 1, round(loss, 4), round(accuracy, 4), 0.01))
        masked = form == "masked"
        yield Case("zero", f"{form}, {'loss' if masked else hinge}", masked, ("health/loss-non-finite", "error") if masked else "note",
                   table(("step", "loss" if masked else hinge, "acc", "lr"), rows))


def models_that_begin_anew(seed, points):
    """Members of an ensemble, or folds, one after the other; and a run that diverges as a fold begins."""
    if points < 100:
        return
    for form in ("each begins anew", "one diverges"):
        run = Run(seed, points, own=False)
        key, of_each = run.random.choice(("member", "fold", "seed")), points // 5
        rows = []
        for i in range(points):
            model = min(4, i // of_each)
            loss = 0.4 + 2 * math.exp(-4 * (i % of_each) / of_each) if model < 5 else 0
            if form != "each begins anew" and model >= 3:
                loss = 40.0
            rows.append((i + 1, model, run.noisy(loss, 0.02)))
        diverges = form != "each begins anew"
        yield Case("models", f"{key}, {form}", diverges, (None, "warning") if diverges else "note", table(("step", key, "train_loss"), rows),
                   without=())


def balances_by_other_names(seed, points):
    if points < 60:
        return
    for form in ("collapses", "classes"):
        run = Run(seed, points, own=False)
        name = (run.random.choice(("moe_aux_loss", "router_aux_loss", "aux_loss", "train/moe_aux_loss")) if form == "collapses" else
                run.random.choice(("class_balance_loss", "label_balance_loss")))
        run.put(name, lambda i: run.noisy(1.01 + 6.8 / (1 + math.exp((0.4 - i / points) / 0.03)), 0.01))
        collapses = form == "collapses"
        yield Case("balance", f"{name} {form}", collapses, ("health/loss-parts", "warning") if collapses else "note", run.file())


def boosted_trees(seed, points):
    """Trees that find no further split, by LightGBM and XGBoost; and an evaluation that rises."""
    if points < 60:
        return
    run = Run(seed, points, own=False)
    at, form = run.at(0.5, 0.8), run.random.choice(("[{}]\ttraining's binary_logloss: {:.6f}\tvalid_1's binary_logloss: {:.6f}",
                                                    "[{}]\ttrain-logloss:{:.5f}\teval-logloss:{:.5f}"))
    values = [0.69 * math.exp(-2 * min(i, at) / points) * (1 + 0.02 * run.random.gauss(0, 1) if i < at else 1) for i in range(points)]
    values[at:] = [values[at - 1]] * (points - at)
    yield Case("boosted", "no further split", False, "note",
               {"t.log": "".join(form.format(i + 1, value, value + 0.05) + "\n" for i, value in enumerate(values))})


def scales_that_come_back(seed, points):
    if points < 60:
        return
    for back in (True, False):
        run = Run(seed, points, own=False).drop("norm")
        highest, first = run.random.choice((2.0, 1024.0, 65536.0)), points // 2
        low, length = 2.0 ** -14, max(8, points // 6)
        run.put("scale", lambda i: low if i >= first and (not back or i < first + length) else highest)
        yield Case("scales", "comes back" if back else "stays at its floor", not back, "note" if back else ("health/loss-scale", "warning"),
                   run.file())


FAMILIES = (epochs_that_begin_to_repeat, evaluations_that_are_printed_again, weights_that_change, losses_that_reach_zero,
            models_that_begin_anew, balances_by_other_names, boosted_trees, scales_that_come_back)
