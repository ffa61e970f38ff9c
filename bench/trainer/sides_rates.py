#!/usr/bin/python3
"""Measures how often precision/stale-gradient warns of sides that share gradients, in simulated games and tasks, with run.watch's own evidence.

  sides_rates.py [--seeds 200] [--steps 64] [--only NAME]

Prints a line for each: the number of measured steps, quantiles of the mean cosine over the seeds, and the number of runs in which a rule with
this cosine, and this share of the steps, would warn. The names of the faults begin with FAULT.
"""

import argparse
import collections
import pathlib
import sys
import types

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
from plumbline._watching.sides import Sides  # noqa: E402

F = nn.functional
FEWEST, SHARE = 8, 0.05  # measurements; share of the norm: as in the rule
RULES = [(cosine, part) for part in (0.75, 0.9) for cosine in (-0.3, -0.4, -0.5)]
FAMILIES = {}


class Loop:
    """The data of a loop that run.watch passes to Sides; `rows`: (cosine, share) of each measurement."""

    def __init__(self, *optimizers):
        self.rows, self._cosine = [], None
        self._sides, self._of = Sides(self), [types.SimpleNamespace(optimizers=optimizers)]
        self._all, self._stepped, self._micro = len(optimizers), set(), 0

    def _own_scalar(self, name, value):
        if name == "left/share":
            self.rows.append((self._cosine, value))
        self._cosine = value

    def backward(self, loss):
        if self._stepped and not self._micro:
            self._sides.backward_begins(self._of, self._stepped)
        self._micro += 1
        loss.backward()
        if self._sides.open:
            self._sides.backward_ends()

    def step(self, *optimizers):
        for one in optimizers:
            self._sides.before_update(one)
            one.step()
            self._stepped.add(id(one))
            self._micro = 0
        if len(self._stepped) == self._all:
            self._stepped.clear()


def family(name):
    def take(make):
        FAMILIES[name] = make
        return make

    return take


def adam(*models):
    return torch.optim.Adam([p for model in models for p in model.parameters()], lr=1e-3, betas=(0.5, 0.999))


def net(inputs, outputs, act=nn.ReLU):
    return nn.Sequential(nn.Linear(inputs, 24), act(), nn.Linear(24, 24), act(), nn.Linear(24, outputs))


# ---- games ----------------------------------------------------------------------------------------


def normed(inputs, outputs, norm):
    return nn.Sequential(nn.Linear(inputs, 24), norm(24), nn.ReLU(), nn.Linear(24, outputs))


def maker_conv():
    return nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Unflatten(1, (8, 2, 2)), nn.ConvTranspose2d(8, 1, 4, 2, 1), nn.Flatten())


def judge_conv():
    return nn.Sequential(nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 8, 3, 1, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(128, 1))


def cross(scores, target):
    return F.binary_cross_entropy_with_logits(scores, torch.full_like(scores, target))


NETS = {
    "mlp": lambda: (net(4, 2), net(2, 1), 2), "norms": lambda: (normed(4, 2, nn.BatchNorm1d), normed(2, 1, nn.LayerNorm), 2),
    "conv": lambda: (maker_conv(), judge_conv(), 16),
}  # fmt: skip
LOSSES = {  # the judge's loss of real and of made samples, the maker's loss
    "bce": (lambda real, made: cross(real, 1.0) + cross(made, 0.0), lambda made: cross(made, 1.0)),
    "hinge": (lambda real, made: F.relu(1 - real).mean() + F.relu(1 + made).mean(), lambda made: -made.mean()),
    "wgan": (lambda real, made: made.mean() - real.mean(), lambda made: -made.mean()),
    "lsgan": (lambda real, made: (real - 1).square().mean() + made.square().mean(), lambda made: (made - 1).square().mean()),
}


def game(loss, nets, cleared, steps):
    """If not `cleared`, the judge is also updated with the gradients that the maker's loss has left."""
    (of_judge, of_maker), (maker, judge, width) = LOSSES[loss], NETS[nets]()
    makes, judges = adam(maker), adam(judge)
    loop, center = Loop(makes, judges), torch.randn(width)
    for _ in range(steps):
        made = maker(torch.randn(32, 4))
        loop.backward(of_maker(judge(made)))
        loop.step(makes)
        makes.zero_grad()
        if cleared:
            judges.zero_grad()
        loop.backward(of_judge(judge(torch.randn(32, width) / 2 + center), judge(made.detach())))
        loop.step(judges)
        judges.zero_grad()
    return loop.rows


def policy(cleared, steps):
    """An actor whose loss is computed through its critic."""
    actor, critic, world = net(4, 2), net(6, 1), torch.randn(6, 1)
    acts, values = adam(actor), adam(critic)
    loop = Loop(acts, values)
    for _ in range(steps):
        x = torch.randn(32, 4)
        loop.backward(-critic(torch.cat([x, torch.tanh(actor(x))], 1)).mean())
        loop.step(acts)
        acts.zero_grad()
        if cleared:
            values.zero_grad()
        both = torch.cat([x, torch.randn(32, 2)], 1)
        loop.backward(F.mse_loss(critic(both), both @ world))
        loop.step(values)
        values.zero_grad()
    return loop.rows


for cleared in (True, False):
    for loss in LOSSES:
        for nets in NETS:
            kind = f"{'cleared' if cleared else 'FAULT'} game, {loss}, {nets}"
            family(kind)(lambda steps, of=(loss, nets, cleared): game(*of, steps))
    family(f"{'cleared' if cleared else 'FAULT'} policy")(lambda steps, cleared=cleared: policy(cleared, steps))


# ---- several losses on purpose ----------------------------------------------------------------------


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(context, x, factor):
        context.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        return -context.factor * gradient, None


def tasks(kind, apart, steps):
    """Two heads learn from a body, which has an optimizer of its own (`apart`) or one with the second head."""
    body, first, second = net(8, 24), nn.Linear(24, 1), nn.Linear(24, 1)
    mine, theirs = (adam(body), [adam(first), adam(second)]) if apart else (adam(body, second), [adam(first)])
    loop, target = Loop(mine, *theirs), torch.randn(8, 2)
    if kind != "free":
        target[:, 1] = target[:, 0] if kind == "alike" else -target[:, 0]
    for _ in range(steps):
        x = torch.randn(32, 8)
        features = body(x)
        loop.backward(F.mse_loss(first(Reverse.apply(features, 1.0) if kind == "reversed" else features), x @ target[:, :1]))
        loop.step(theirs[0])
        theirs[0].zero_grad()
        loop.backward(F.mse_loss(second(body(x)), x @ target[:, 1:]))
        loop.step(*theirs[1:], mine)
        for one in (*theirs[1:], mine):
            one.zero_grad()
    return loop.rows


for kind in ("free", "alike", "opposed", "reversed"):
    for apart in (True, False):
        family(f"tasks, {kind}, {'apart' if apart else 'two'}")(lambda steps, of=(kind, apart): tasks(*of, steps))

OWN = {
    "l2": lambda body, f, x: 1e-2 * sum(p.square().sum() for p in body.parameters()), "sparse": lambda body, f, x: 1e-2 * f.abs().mean(),
    "alike": lambda body, f, x: -F.cosine_similarity(f, body(x + 0.1 * torch.randn_like(x))).mean(), "small": lambda body, f, x: f.square().mean(),
}  # fmt: skip


def own(penalty, steps):
    """A head's loss trains a body, and so does a loss of the body's own."""
    body, head, target = net(8, 24), nn.Linear(24, 1), torch.randn(8, 1)
    mine, theirs = adam(body), adam(head)
    loop = Loop(mine, theirs)
    for _ in range(steps):
        x = torch.randn(32, 8)
        loop.backward(F.mse_loss(head(body(x)), x @ target))
        loop.step(theirs)
        theirs.zero_grad()
        loop.backward(OWN[penalty](body, body(x), x))
        loop.step(mine)
        mine.zero_grad()
    return loop.rows


for penalty in OWN:
    family(f"own loss, {penalty}")(lambda steps, penalty=penalty: own(penalty, steps))


# ---- rates ------------------------------------------------------------------------------------------


def warns(rows, cosine, part):
    opposed = 0
    for looks, (seen, share) in enumerate(rows, 1):
        opposed += seen <= cosine and share >= SHARE
        if looks >= FEWEST and opposed >= part * looks:
            return True
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name, make in FAMILIES.items():
        if options.only not in name:
            continue
        warned, means, looks = collections.Counter(), [], 0
        for seed in range(options.seeds):
            torch.manual_seed(seed)
            rows = make(options.steps)
            looks = max(looks, len(rows))
            means += [sum(cosine for cosine, _ in rows) / len(rows)] if rows else []
            warned.update(rule for rule in RULES if warns(rows, *rule))
        means.sort()
        spread = " ".join(f"{means[int(q * (len(means) - 1))]:+.2f}" for q in (0.05, 0.5, 0.95)) if means else "none"
        print(f"{name:28} looks {looks:2}, cosine {spread}; warned of {options.seeds}:",
              ", ".join(f"{warned[rule]} ({rule[0]} in {rule[1]:g})" for rule in RULES), flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
