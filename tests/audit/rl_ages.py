"""Logs of asynchronous training with the age of samples: ages that grow without end, and healthy ones that are constant, bounded, a saw
between rare updates, or noise."""

import json
import random

NAMES = ("staleness", "train/staleness/mean", "off_policy_steps", "version_lag", "policy_lag", "mean_staleness")


def rows_of(draw, ages, name):
    rows = []
    for i, age in enumerate(ages):
        reward = 0.2 + 0.6 * i / len(ages) + draw.gauss(0, 0.03)
        rows.append({"step": i + 1, "reward": reward, "reward_std": 0.3 + draw.gauss(0, 0.02), "policy_loss": draw.gauss(0, 0.02),
                     "entropy": 0.8 + draw.gauss(0, 0.03), "grad_norm": 0.3 + draw.uniform(0, 0.1), name: max(0.0, age)})
    return {"metrics.jsonl": "".join(json.dumps(row) + "\n" for row in rows)}


def constant(draw, points):
    level = draw.choice((0, 1, 4, 16, 64))
    return [level + draw.gauss(0, 0.02 * level) for _ in range(points)]


def bounded(draw, points):
    """Grows to its bound in at most a third of the run, and in at most 100 points."""
    bound, ramp = draw.choice((2, 8, 32)), draw.randrange(2, min(100, points // 3))
    return [bound * min(1, i / ramp) + draw.gauss(0, 0.02 * bound) for i in range(points)]


def saw(draw, points):
    """The engine is updated after each `period` steps."""
    period, phase = draw.choice((8, 40, 100)), draw.randrange(100)
    return [float((i + phase) % period) for i in range(points)]


def noise(draw, points):
    level = draw.choice((1, 20))
    return [level * draw.uniform(0, 2) for _ in range(points)]


def falls(draw, points):
    first = draw.choice((8, 40))
    return [first * (1 - 0.8 * i / points) + draw.gauss(0, 0.02 * first) for i in range(points)]


def slow(draw, points):
    """Longer answers make samples a little older."""
    level = draw.choice((2, 20))
    return [level * (1 + 0.3 * i / points) + draw.gauss(0, 0.05 * level) for i in range(points)]


def grows(draw, points):
    end = draw.choice((30, 100, 1000))
    return [end * i / points + draw.gauss(0, 0.01 * end) for i in range(points)]


HEALTHY = (constant, bounded, saw, noise, falls, slow)


def cases(seeds):
    """Yields (name, expected, files), with `seeds` runs of each family."""
    for number, family in enumerate((*HEALTHY, grows)):
        for seed in range(seeds):
            draw = random.Random(1000 * number + seed)
            points = draw.choice((250, 400, 900) if family is grows else (60, 150, 250, 400, 900))
            expected = [("health/rl-collapse", "warning")] if family is grows else None
            yield f"{family.__name__}-{seed}", expected, rows_of(draw, family(draw, points), draw.choice(NAMES))
