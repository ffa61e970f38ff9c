#!/usr/bin/env python3
"""Trains small models and writes their losses: one file per run, one line `loss rate` per step.

    small_models.py FOLDER [EACH]

48 healthy runs (classifiers and character models; plain SGD, momentum, Adam; batches of 8 to 256; constant, cosine, warm-up,
restarts), or every EACH-th of them. series_figures_test judges them. Requires only numpy; all runs take a few minutes.
"""
import pathlib
import sys

import numpy as np


def rates(kind, steps, peak):
    t = np.arange(steps)
    if kind == "constant":
        return np.full(steps, peak)
    if kind == "cosine":
        return peak * (0.02 + 0.98 * (1 + np.cos(np.pi * t / steps)) / 2)
    if kind == "warm-up":
        return peak * np.minimum(1, (t + 1) / 200) / np.sqrt(np.maximum(1, t / 200))
    cycle = steps // 3
    return peak * (0.05 + 0.95 * (1 + np.cos(np.pi * (t % cycle) / cycle)) / 2)


def data(rng, kind):
    """Returns inputs [n, d] and labels [n]: clusters with overlapping classes, or the next letter of a Markov text."""
    if kind == "clusters":
        centres = rng.normal(size=(10, 24))
        y = rng.integers(0, 10, 8000)
        return centres[y] + 1.3 * rng.normal(size=(8000, 24)), y, 10
    table = rng.dirichlet(np.full(16, 0.3), size=(16, 16))
    text = [0, 1]
    for _ in range(8000):
        text.append(rng.choice(16, p=table[text[-2], text[-1]]))
    text = np.array(text)
    return np.concatenate([np.eye(16)[text[:-2]], np.eye(16)[text[1:-1]]], 1), text[2:], 16


def train(seed, steps, kind, schedule, optimizer, batch, peak):
    rng = np.random.default_rng(seed)
    x, y, classes = data(rng, kind)
    width = 48
    w = [rng.normal(size=(x.shape[1], width)) / np.sqrt(x.shape[1]), rng.normal(size=(width, classes)) / np.sqrt(width)]
    m, v = [np.zeros_like(p) for p in w], [np.zeros_like(p) for p in w]
    rate, rows = rates(schedule, steps, peak), []
    for step in range(steps):
        pick = rng.integers(0, len(x), batch)
        a = np.tanh(x[pick] @ w[0])
        z = a @ w[1]
        z -= z.max(1, keepdims=True)
        p = np.exp(z)
        p /= p.sum(1, keepdims=True)
        rows.append((float(-np.log(p[np.arange(batch), y[pick]]).mean()), rate[step]))
        p[np.arange(batch), y[pick]] -= 1
        p /= batch
        g = [x[pick].T @ ((p @ w[1].T) * (1 - a * a)), a.T @ p]
        for i in range(2):
            m[i] = 0.9 * m[i] + (0.1 * g[i] if optimizer == "adam" else g[i])
            if optimizer == "adam":
                v[i] = 0.99 * v[i] + 0.01 * g[i] ** 2
                w[i] -= rate[step] * (m[i] / (1 - 0.9 ** (step + 1))) / (np.sqrt(v[i] / (1 - 0.99 ** (step + 1))) + 1e-8)
            else:
                w[i] -= rate[step] * (m[i] if optimizer == "momentum" else g[i])
    return rows


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    each = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    peaks = {"sgd": 0.3, "momentum": 0.03, "adam": 0.003}
    number = 0
    for kind in ("clusters", "letters"):
        for schedule in ("constant", "cosine", "warm-up", "restarts"):
            for optimizer in ("sgd", "momentum", "adam"):
                for _ in range(2):
                    batch = (8, 32, 128, 256)[number % 4]
                    if number % each != 0:
                        number += 1
                        continue
                    rows = train(number, 2000, kind, schedule, optimizer, batch, peaks[optimizer])
                    name = f"{number:02}-{kind}-{schedule}-{optimizer}-{batch}.txt"
                    (folder / name).write_text("".join(f"{loss:.6g} {rate:.6g}\n" for loss, rate in rows))
                    number += 1


if __name__ == "__main__":
    main()
