"""Families for tables of power and false alarms (verdict_power.py): repeats, speeds that collapse, parts of a loss, ranks and
values that freeze, in the sizes at which a rule begins to see them. The name of a family is a row of the table."""

import math

from part_families import table
from verdict_families import Case, Run


def case(row, faulty, rule, files):
    level = "warning" if faulty else "note"
    return Case(row, row, faulty, (rule, level) if faulty else level, files, without=() if faulty else (rule,))


def repeats(seed, points):
    for period in (3, 7, 15):
        for digits in (3, 4):
            run = Run(seed, points, own=False)
            epoch = [run.noisy(2.3, 0.05) for _ in range(period)]
            rows = [(i + 1, epoch[i % period]) for i in range(points)]
            rounded = [(i, float(f"{v:.{digits}g}")) for i, v in rows]
            yield case(f"repeats, {period} values, {digits} digits", True, "health/not-learning", table(("step", "loss"), rounded))
    for fall in (0.003, 0.01, 0.03):
        run = Run(seed, points, own=False)
        epoch = [run.noisy(2.3, 0.05) for _ in range(7)]
        rows = [(i + 1, round(epoch[i % 7] * math.exp(-fall * (i // 7)), 4)) for i in range(points)]
        yield case(f"healthy: the same 7 batches, {100 * fall:g} % lower in each epoch", False, "health/not-learning",
                   table(("step", "loss"), rows))


def collapses(seed, points):
    rule = "performance/mfu"
    for share in (0.2, 0.4, 0.6):
        for noise in (0.02, 0.1):
            for last in (0.25, 0.5):
                run = Run(seed, points, own=False)
                rows = [(row["step"], row["loss"], run.noisy(52000 * (share if i >= (1 - last) * points else 1), noise))
                        for i, row in enumerate(run.rows)]
                yield case(f"speed, {share:g} of it in the last {100 * last:g} %, noise {100 * noise:g} %", True, rule,
                           table(("step", "loss", "tokens_per_second"), rows))
    shapes = (("noise 10 %", 0.1, lambda done, i: 1), ("noise 40 %", 0.4, lambda done, i: 1),
              ("every ninth row half as fast", 0.03, lambda done, i: 0.5 if i % 9 == 8 else 1),
              ("a third slower in a straight line", 0.03, lambda done, i: 1 - done / 3),
              ("slow at the start", 0.03, lambda done, i: min(1, 0.3 + 5 * done)))
    for name, noise, shape in shapes:
        run = Run(seed, points, own=False)
        rows = [(row["step"], row["loss"], run.noisy(52000 * shape(i / points, i), noise)) for i, row in enumerate(run.rows)]
        yield case(f"healthy: {name}", False, rule, table(("step", "loss", "tokens_per_second"), rows))


def parts(seed, points):
    rule = "health/loss-parts"
    for times, falls in ((1e3, True), (1e5, True), (1e5, False), (1e7, False), (1e9, False)):
        run = Run(seed, points, own=False)
        rows = []
        for i in range(points):
            late = max(0.0, i / points - 0.5) / 0.2
            reward = 200 * min(1, 3 * i / points) * (1 - 0.95 * min(1, late) * falls)
            rows.append((i + 1, run.noisy(0.5 * times ** min(1, late), 0.2), run.noisy(reward + 1, 0.1)))
        yield case(f"critic, {times:g} times in the newer half, the reward {'falls back' if falls else 'stays'}", True, rule,
                   table(("step", "critic_loss", "episode_reward"), rows))
    for times in (1, 3, 10, 300):
        run = Run(seed, points, own=False)
        rows = [(i + 1, run.noisy(0.05 * (1 + times * i / points), 0.5), run.noisy(10 + 300 * i / points, 0.2)) for i in range(points)]
        yield case(f"healthy: critic, {times} times as the reward rises, noise 50 %", False, rule,
                   table(("step", "critic_loss", "episode_reward"), rows))
    for factor in (2, 3, 8):
        run = Run(seed, points, own=False)
        rows = [(i + 1, row["loss"], run.noisy(1.02 + (factor - 1) / (1 + math.exp((0.7 - i / points) / 0.03)), 0.02))
                for i, row in enumerate(run.rows)]
        yield case(f"balancing loss, {factor} times from 70 % on", True, rule, table(("step", "lm_loss", "load_balancing_loss"), rows))
    for factor, ramp in ((1.6, False), (1.1, True)):
        run = Run(seed, points, own=False)
        rows = [(i + 1, row["loss"], run.noisy((1 + (factor - 1) * i / points) * (0.01 * min(1, (i + 1) / 30) if ramp else 1), 0.1))
                for i, row in enumerate(run.rows)]
        yield case(f"healthy: balancing loss, {factor} times{', its coefficient ramps up' if ramp else ''}, noise 10 %", False, rule,
                   table(("step", "lm_loss", "load_balancing_loss"), rows))
    for won in (0.3, 0.6):
        run = Run(seed, points, own=False)
        rows = [(i + 1, round(run.noisy(0.0 if i >= (1 - won) * points else 0.6, 0.3), 4), run.noisy(20 if i >= (1 - won) * points else 1.5, 0.2))
                for i in range(points)]
        yield case(f"game, a side is 0 in the last {100 * won:g} %", True, rule, table(("step", "d_loss", "g_loss"), rows))
    run = Run(seed, points, own=False)
    rows = [(i + 1, run.noisy(0.4, 1.2), run.noisy(2 + 2 * i / points, 0.4)) for i in range(points)]
    yield case("healthy: game, noise of a factor 3", False, rule, table(("step", "d_loss", "g_loss"), rows))


FAMILIES = (repeats, collapses, parts)
