"""Simulated healthy runs of one configuration each, and faults of their series. A family draws a run by its seed alone."""

import math
import random


def ar(draw, noise, rho):
    """Yields correlated normal noise."""
    x = 0.0
    while True:
        x = rho * x + math.sqrt(1 - rho * rho) * draw.gauss(0, noise)
        yield x


def language(draw, steps, rank_draws):
    """Two ranks: losses that fall as a power law, gradient norms, one rate, a counter of tokens, seconds per step."""
    level, tau = 8 + draw.gauss(0, 0.1), 30 * math.exp(draw.gauss(0, 0.05))
    for i in range(steps):
        mean = 2.5 + level * (1 + i / tau) ** -0.6
        rate = 3e-4 * min(1, (i + 1) / 30) * (0.55 + 0.45 * math.cos(math.pi * i / steps))
        for rank, own in enumerate(rank_draws):
            yield i, rank, {"lm_loss": mean * math.exp(own.gauss(0, 0.02)), "grad_norm": (0.4 + 3 / (1 + i / 20)) * math.exp(draw.gauss(0, 0.15)),
                            "lr": rate, "tokens": (i + 1) * 65536, "step_seconds": 0.8 * math.exp(own.gauss(0, 0.05))}


def heavy(draw, steps, rank_draws):
    """One rank: gradient norms with rare peaks (Pareto), and a loss that shows them a little."""
    for i in range(steps):
        peak = draw.paretovariate(1.5)
        yield i, 0, {"loss": 1.2 + 2 * math.exp(-i / 60) + 0.02 * draw.gauss(0, 1) + 0.002 * min(peak, 50), "grad_norm": 0.3 * peak}


def policy(draw, steps, rank_draws):
    """One rank: correlated rewards that rise, a divergence, an entropy that falls, lengths in whole tokens."""
    reward, length = ar(draw, 0.05, 0.9), ar(draw, 0.1, 0.95)
    for i in range(steps):
        rise = 1 - math.exp(-i / 120)
        yield i, 0, {"reward": 0.2 + 0.6 * rise + next(reward), "kl": 0.01 * rise * math.exp(draw.gauss(0, 0.3)) + 1e-4,
                     "entropy": 1.8 * math.exp(-i / 300) * math.exp(draw.gauss(0, 0.03)), "response_length": round(300 * math.exp(next(length)))}


def scaled(draw, steps, rank_draws):
    """Two ranks under a dynamic loss scale: it doubles each 50 steps, and halves at random; accuracy in few digits."""
    scale, since = 2.0 ** 14, 0
    for i in range(steps):
        since += 1
        if draw.random() < 0.02:
            scale, since = max(scale / 2, 1.0), 0
        elif since >= 50:
            scale, since = scale * 2, 0
        share = 1 - 0.8 * math.exp(-i / 80)
        for rank, own in enumerate(rank_draws):
            yield i, rank, {"loss": 2.3 * math.exp(-i / 90) * math.exp(own.gauss(0, 0.05)) + 0.2, "loss_scale": scale,
                            "accuracy": round(min(1.0, max(0.0, share + own.gauss(0, 0.04))), 2), "weight_norm": 20 + i / 50}


def restless(draw, steps, rank_draws):
    """One rank: a random walk, white noise around 0, and a quantity whose level differs between runs by a factor of three."""
    walk, level = 0.0, math.exp(draw.gauss(0, 0.4))
    for i in range(steps):
        walk += draw.gauss(0, 0.1)
        yield i, 0, {"walk": walk, "noise": draw.gauss(0, 1), "level": level * math.exp(draw.gauss(0, 0.1)), "loss": 1 + math.exp(-i / 50) + 0.05 * draw.random()}


FAMILIES = {"language": language, "heavy": heavy, "policy": policy, "scaled": scaled, "restless": restless}


def run(family, seed, steps=240, change=None):
    """Returns a CSV table. `change(step, rank, row)` plants a fault."""
    draw = random.Random(f"{family} {seed}")
    rank_draws = [random.Random(f"{family} {seed} {rank}") for rank in range(2)]
    rows = []
    for i, rank, row in FAMILIES[family](draw, steps, rank_draws):
        if change is not None:
            change(i, rank, row)
        rows.append((i, rank, row))
    names = list(rows[0][2])
    return "\n".join([",".join(["step", "rank", *names])] + [",".join([str(i), str(rank)] + [repr(row[n]) for n in names]) for i, rank, row in rows]) + "\n"
