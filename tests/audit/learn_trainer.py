"""A small data-parallel trainer on the CPU, with faults: a network of two layers, dropout, a loss scale, Adam with decay, a schedule with a
warm-up, and two ranks in one process. `train` returns the table that such a trainer logs.

The faults are those kinds of TrainCheck's published list that a small trainer on a CPU can have."""

import numpy

RANKS, BATCH, INPUTS, HIDDEN, CLASSES = 2, 16, 20, 32, 4
SCALE = 1024.0

# Name -> what is wrong.
FAULTS = {
    "no-zero-grad": "optimizer.zero_grad() is missing",
    "no-step": "optimizer.step() is not reached",
    "frozen-layer": "the optimizer was made without the first layer",
    "stale-parameters": "the optimizer holds copies of the parameters that the model no longer uses",
    "schedule-not-stepped": "scheduler.step() is missing",
    "schedule-per-rank": "the scheduler is stepped once per rank",
    "rate-too-high": "the learning rate is ten times as high",
    "no-all-reduce": "gradients are not summed over ranks",
    "clip-on-one-rank": "only rank 0 clips its gradient",
    "weights-not-broadcast": "each rank starts with weights of its own",
    "same-data": "both ranks read the same rows",
    "same-batch": "the loader returns one batch again and again",
    "eval-mode": "the model trains in evaluation mode (no dropout)",
    "train-mode": "the model is evaluated in training mode (with dropout)",
    "no-unscale": "gradients keep the loss scale when they are clipped",
    "scale-lost": "the loss is scaled, but gradients are not divided",
    "sum-not-mean": "the loss is a sum over the batch",
    "labels-shifted": "labels belong to the row before",
    "inputs-not-scaled": "inputs are not normalised (times 255)",
    "decay-too-high": "the weight decay is a thousand times as high",
}


def softmax_loss(logits, labels):
    """Returns the mean loss, its gradient with respect to the logits, and the accuracy."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    exps = numpy.exp(shifted)
    shares = exps / exps.sum(axis=1, keepdims=True)
    rows = numpy.arange(len(labels))
    loss = -numpy.log(shares[rows, labels] + 1e-30).mean()
    gradient = shares.copy()
    gradient[rows, labels] -= 1
    return loss, gradient / len(labels), (shares.argmax(axis=1) == labels).mean()


class Rank:
    def __init__(self, draw):
        self.w = [draw.normal(size=(INPUTS, HIDDEN)) * INPUTS ** -0.5, numpy.zeros(HIDDEN),
                  draw.normal(size=(HIDDEN, CLASSES)) * HIDDEN ** -0.5, numpy.zeros(CLASSES)]
        self.grads = [numpy.zeros_like(w) for w in self.w]
        self.m = [numpy.zeros_like(w) for w in self.w]
        self.v = [numpy.zeros_like(w) for w in self.w]
        self.updates = 0

    def forward(self, x, draw, dropout):
        hidden = numpy.maximum(x @ self.w[0] + self.w[1], 0)
        mask = (draw.random(hidden.shape) >= 0.2) / 0.8 if dropout else 1.0
        return hidden * mask, mask, (hidden * mask) @ self.w[2] + self.w[3]

    def backward(self, x, labels, draw, dropout, factor):
        hidden, mask, logits = self.forward(x, draw, dropout)
        loss, d_logits, accuracy = softmax_loss(logits, labels)
        d_logits = d_logits * factor
        d_hidden = d_logits @ self.w[2].T * mask * (hidden > 0)
        for grad, part in zip(self.grads, (x.T @ d_hidden, d_hidden.sum(0), hidden.T @ d_logits, d_logits.sum(0))):
            grad += part
        return loss, accuracy

    def step(self, rate, decay, skipped=()):
        """Adam with decoupled decay. Returns the norm of the update."""
        self.updates += 1
        total = 0.0
        for i, (w, g, m, v) in enumerate(zip(self.w, self.grads, self.m, self.v)):
            if i in skipped:
                continue
            m += 0.1 * (g - m)
            v += 0.01 * (g * g - v)
            update = rate * (m / (1 - 0.9 ** self.updates) / (numpy.sqrt(v / (1 - 0.99 ** self.updates)) + 1e-8) + decay * w)
            w -= update
            total += float((update * update).sum())
        return total ** 0.5


def norm(parts):
    return float(sum(float((p * p).sum()) for p in parts)) ** 0.5


def rate_of(step, steps):
    return 3e-3 * min((step + 1) / 20, 1) * (0.1 + 0.45 * (1 + numpy.cos(numpy.pi * step / steps)))


def train(seed, fault=None, onset=0, steps=200):
    """Returns a CSV table. The fault begins in step `onset`."""
    draw = numpy.random.default_rng(seed)
    centres = numpy.random.default_rng(60).normal(size=(CLASSES, INPUTS)) * 0.7
    ranks = [Rank(numpy.random.default_rng(seed + 10_000)) for _ in range(RANKS)]
    if fault == "weights-not-broadcast":
        ranks[1] = Rank(numpy.random.default_rng(seed + 20_000))

    def batch(rows):
        labels = draw.integers(CLASSES, size=rows)
        return centres[labels] + draw.normal(size=(rows, INPUTS)), labels

    scale = 1.0 if fault == "no-zero-grad" else SCALE  # else dividing what is left would hide it
    held_out, one = batch(256), batch(BATCH)
    out = ["step,rank,loss,accuracy,grad_norm,weight_norm,update_norm,lr,eval/loss,tokens"]
    for step in range(steps):
        bad = fault if step >= onset else None
        batches = [batch(BATCH) for _ in ranks]
        if bad == "same-data":
            batches = batches[:1] * RANKS
        if bad == "same-batch":
            batches = [one] * RANKS
        losses, skipped = [], (0, 1) if bad == "frozen-layer" else ()
        for rank, (x, labels) in zip(ranks, batches):
            if bad != "no-zero-grad":
                for grad in rank.grads:
                    grad[:] = 0
            x = x * 255 if bad == "inputs-not-scaled" else x
            labels = numpy.roll(labels, 1) if bad == "labels-shifted" else labels
            times = BATCH if bad == "sum-not-mean" else 1
            loss, accuracy = rank.backward(x, labels, draw, bad != "eval-mode", scale * times)
            losses.append((loss * times, accuracy))
        if bad != "no-all-reduce":
            for parts in zip(*(rank.grads for rank in ranks)):
                mean = sum(parts) / RANKS
                for part in parts:
                    part[:] = mean
        stepped = {"schedule-not-stepped": onset, "schedule-per-rank": min(steps - 1, onset + RANKS * (step - onset))}.get(bad, step)
        rate = rate_of(stepped, steps) * (10 if bad == "rate-too-high" else 1)
        decay = 0.01 * (1000 if bad == "decay-too-high" else 1)
        for number, rank in enumerate(ranks):
            if bad not in ("no-unscale", "scale-lost"):
                for grad in rank.grads:
                    grad /= scale
            total = norm(rank.grads)
            if total > 1.0 and not (bad == "clip-on-one-rank" and number > 0) and bad != "scale-lost":
                for grad in rank.grads:
                    grad *= 1.0 / total
            if bad == "stale-parameters":
                used, rank.w = rank.w, [w.copy() for w in rank.w]
            moved = 0.0 if bad == "no-step" else rank.step(rate, decay, skipped)
            if bad == "stale-parameters":
                rank.w = used
            evaluated = softmax_loss(rank.forward(held_out[0], draw, bad == "train-mode")[2], held_out[1])[0]
            loss, accuracy = losses[number]
            out.append(f"{step},{number},{loss:.9g},{accuracy:.9g},{total:.9g},{norm(rank.w):.17g},{moved:.9g},{rate:.9g},{evaluated:.9g},"
                       f"{(step + 1) * RANKS * BATCH}")
    return "\n".join(out) + "\n"
