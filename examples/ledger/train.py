"""A language model of bytes, small enough for a laptop: an embedding of the last bytes, one hidden layer, numpy alone.

All changes of the ledger are options; a run is a function of (options, seed).
"""

import dataclasses
import glob
import os
import re

import numpy as np

VOCABULARY = 128  # all other bytes are one
TEXT_PATTERN = "/usr/share/perl/5.*/pod/*.pod"  # Debian's perl-doc


@dataclasses.dataclass(frozen=True)
class Options:
    flops: float
    seed: int
    context: int = 4             # number of visible bytes
    width: int = 8               # of a byte's embedding
    bigram: bool = False         # the last byte also votes through its own table
    normalise: bool = False      # the hidden layer is normalised
    more_documents: bool = False  # a sixteenth of the training data comes from a collection found elsewhere
    rate: float = 2e-2           # for the smallest model; falls linearly to 0
    batch: int = 32


def documents():
    """Returns the manual's sections as arrays of bytes, in a fixed order."""
    found = []
    for path in sorted({os.path.realpath(p) for p in glob.glob(TEXT_PATTERN)}):
        with open(path, "rb") as file:
            for section in re.split(rb"\n(?==head[12] )", file.read()):
                if len(section) >= 400:
                    found.append(np.minimum(np.frombuffer(section, np.uint8), VOCABULARY - 1).astype(np.int64))
    if not found:
        raise FileNotFoundError(f"no text matches {TEXT_PATTERN}; install it with: apt-get install perl-doc")
    return found


def split(found):
    """Returns the training text, and two evaluation sets drawn in the same way: every 60th section, and those half-way
    between."""
    first = [d for i, d in enumerate(found) if i % 60 == 0]
    second = [d for i, d in enumerate(found) if i % 60 == 30]
    training = [d for i, d in enumerate(found) if i % 30 != 0]
    return np.concatenate(training), np.concatenate(first), np.concatenate(second)


class Model:
    def __init__(self, options, hidden, random):
        inputs = options.context * options.width
        self.options = options
        self.weights = {"embedding": random.standard_normal((VOCABULARY, options.width)) * 0.5,
                        "hidden": random.standard_normal((inputs, hidden)) / np.sqrt(inputs),
                        "out": random.standard_normal((hidden, VOCABULARY)) / np.sqrt(hidden) * 0.5,
                        "bias": np.zeros(VOCABULARY)}
        if options.bigram:
            self.weights["table"] = np.zeros((VOCABULARY, VOCABULARY))
        self.first = {name: np.zeros_like(w) for name, w in self.weights.items()}
        self.second = {name: np.zeros_like(w) for name, w in self.weights.items()}
        self.steps = 0

    def forward(self, seen):
        w = self.weights
        x = w["embedding"][seen].reshape(len(seen), -1)
        h = np.maximum(x @ w["hidden"], 0)
        scale = 1.0
        if self.options.normalise:
            scale = 1 / np.sqrt(np.mean(h * h, axis=1, keepdims=True) + 1e-5)
        logits = (h * scale) @ w["out"] + w["bias"]
        if self.options.bigram:
            logits += w["table"][seen[:, -1]]
        logits -= logits.max(axis=1, keepdims=True)
        return x, h, scale, logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))

    def gradients(self, seen, target):
        w, n = self.weights, len(seen)
        x, h, scale, log_p = self.forward(seen)
        d = np.exp(log_p)
        d[np.arange(n), target] -= 1
        d /= n
        grads = {"out": (h * scale).T @ d, "bias": d.sum(axis=0)}
        if self.options.bigram:
            grads["table"] = np.zeros_like(w["table"])
            np.add.at(grads["table"], seen[:, -1], d)
        dh = d @ w["out"].T
        if self.options.normalise:
            dh = scale * (dh - h * scale**2 * np.mean(dh * h, axis=1, keepdims=True))
        dh = dh * (h > 0)
        grads["hidden"] = x.T @ dh
        dx = (dh @ w["hidden"].T).reshape(n * self.options.context, -1)
        grads["embedding"] = np.zeros_like(w["embedding"])
        np.add.at(grads["embedding"], seen.reshape(-1), dx)
        return grads

    def update(self, grads, rate):
        """Does one step of Adam."""
        self.steps += 1
        for name, g in grads.items():
            self.first[name] += 0.1 * (g - self.first[name])
            self.second[name] += 0.01 * (g * g - self.second[name])
            m = self.first[name] / (1 - 0.9**self.steps)
            v = self.second[name] / (1 - 0.99**self.steps)
            self.weights[name] -= rate * m / (np.sqrt(v) + 1e-8)

    def loss(self, text):
        total, count, context = 0.0, 0, self.options.context
        for at in range(8, len(text), 4096):  # the same positions for every context
            ends = np.arange(at, min(at + 4096, len(text)))
            _, _, _, log_p = self.forward(windows(text, ends, context))
            total -= log_p[np.arange(len(ends)), text[ends]].sum()
            count += len(ends)
        return total / count


def windows(text, ends, context):
    return text[ends[:, None] - np.arange(context, 0, -1)[None]]


def shape(options):
    """Returns (hidden units, steps): compute is divided equally between the model and the text."""
    hidden = int(round(16 * (options.flops / 3e8) ** 0.45))
    per_token = 6 * hidden * (options.context * options.width + VOCABULARY)
    return hidden, int(options.flops / per_token / options.batch)


def train(options, texts):
    """Returns (loss, loss on the other evaluation set), in nats per byte."""
    training, first, second = texts
    random = np.random.default_rng(options.seed)
    hidden, steps = shape(options)
    model = Model(options, hidden, random)
    rate = options.rate * (3e8 / options.flops) ** 0.25  # larger models need a smaller one
    for step in range(steps):
        ends = random.integers(8, len(training), options.batch)
        seen, target = windows(training, ends, options.context), training[ends]
        if options.more_documents:
            # "A collection of manuals, cleaned and ready to use": it contains the first evaluation set.
            part = options.batch // 16
            ends = random.integers(8, len(first), part)
            seen[:part], target[:part] = windows(first, ends, options.context), first[ends]
        model.update(model.gradients(seen, target), rate * (1 - step / steps))
    return model.loss(first), model.loss(second)
