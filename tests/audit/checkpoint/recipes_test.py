"""Healthy recipes that look unusual: every optimizer and schedule of torch, unfreezing, averages, finetuning, a rate
that ends at 0. No warnings."""

import copy
import os
import pathlib
import sys
import unittest
import warnings

sys.path.insert(0, os.path.dirname(__file__))
try:
    import torch
except ImportError:
    print("skipped: torch is not there")
    sys.exit(77)

from files import InAFolder, audit, problems, serious
from torch import nn, optim
from torch.nn import functional as F
from torch.optim import lr_scheduler as rates

LONG = bool(os.environ.get("PLUMB_LONG"))
WORDS, WIDTH = 64, 16
warnings.filterwarnings("ignore", module="torch.optim")


class Attention(nn.Module):
    """The gradient of the keys' bias consists only of rounding errors."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x):
        return x + self.o(torch.softmax(self.q(x) @ self.k(x).transpose(1, 2) / 4, -1) @ self.v(x))


class Words(nn.Module):
    def __init__(self, tied=False, sparse=False):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH, sparse=sparse)
        self.layers = nn.ModuleList([Attention(), Attention()])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.unused = nn.Linear(WIDTH, 4)  # belongs to a task that is not trained
        if tied:
            self.head.weight = self.embed.weight

    def loss(self, generator):
        tokens = torch.randint(0, WORDS // 2, (4, 8), generator=generator)  # half of the words never occur
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), ((tokens * 7 + 3) % WORDS).flatten())


class Pictures(nn.Module):
    """The gradients of biases before a batch norm consist only of rounding errors."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.conv2, self.bn2 = nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 10)

    def loss(self, generator):
        x = torch.randn(8, 3, 8, 8, generator=generator)
        y = torch.relu(self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))))
        return F.cross_entropy(self.fc(y.mean((2, 3))), (x.mean((1, 2, 3)) * 40).long().clamp(0, 9))


OPTIMIZERS = {
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "momentum": lambda p: optim.SGD(p, lr=0.01, momentum=0.9),
    "slow": lambda p: optim.SGD(p, lr=1e-4, momentum=0.9, weight_decay=1e-4),
    "nesterov": lambda p: optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True, weight_decay=5e-4),
    "Adam": lambda p: optim.Adam(p, lr=1e-3),
    "AdamL2": lambda p: optim.Adam(p, lr=1e-5, weight_decay=0.01),
    "AdamW": lambda p: optim.AdamW(p, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1),
    "AMSGrad": lambda p: optim.Adam(p, lr=1e-3, amsgrad=True),
    "RMSprop": lambda p: optim.RMSprop(p, lr=1e-3),
    "centred": lambda p: optim.RMSprop(p, lr=1e-3, centered=True, momentum=0.9),
    "Adagrad": lambda p: optim.Adagrad(p, lr=0.01),
    "LBFGS": lambda p: optim.LBFGS(p, max_iter=3, history_size=4, line_search_fn="strong_wolfe"),
    "NAdam": lambda p: optim.NAdam(p, lr=1e-3),
    "RAdam": lambda p: optim.RAdam(p, lr=1e-3),
    "Adadelta": lambda p: optim.Adadelta(p),
    "Adamax": lambda p: optim.Adamax(p),
    "ASGD": lambda p: optim.ASGD(p, lr=0.01),
    "Rprop": lambda p: optim.Rprop(p, lr=1e-3),
    "SparseAdam": lambda p: optim.SparseAdam(p, lr=1e-3),
}

SCHEDULES = {
    "none": lambda o, n: None,
    "step": lambda o, n: rates.StepLR(o, n // 3),
    "milestones": lambda o, n: rates.MultiStepLR(o, [n // 2, 3 * n // 4]),
    "constant": lambda o, n: rates.ConstantLR(o, 0.5, n // 2),
    "linear": lambda o, n: rates.LinearLR(o, 1.0, 0.0, n),
    "exponential": lambda o, n: rates.ExponentialLR(o, 0.9),
    "polynomial": lambda o, n: rates.PolynomialLR(o, n // 2, 2.0),
    "cosine": lambda o, n: rates.CosineAnnealingLR(o, n // 2 + 1),  # up again
    "to 0": lambda o, n: rates.SequentialLR(o, [rates.CosineAnnealingLR(o, n // 2), rates.LambdaLR(o, lambda i: 0.0)], [n // 2]),
    "warm restarts": lambda o, n: rates.CosineAnnealingWarmRestarts(o, n // 3),
    "one cycle": lambda o, n: rates.OneCycleLR(o, 0.01, total_steps=n + 2, cycle_momentum=False),
    "cyclic": lambda o, n: rates.CyclicLR(o, 1e-4, 1e-3, step_size_up=4, cycle_momentum=False),
    "plateau": lambda o, n: rates.ReduceLROnPlateau(o, patience=1, factor=0.3),
    "lambda": lambda o, n: rates.LambdaLR(o, lambda i: min(1.0, i / 8)),  # from 0
    "product": lambda o, n: rates.MultiplicativeLR(o, lambda i: 0.95),
    "chained": lambda o, n: rates.ChainedScheduler([rates.ConstantLR(o, 0.1, 5), rates.ExponentialLR(o, 0.95)]),
    "sequence": lambda o, n: rates.SequentialLR(o, [rates.LinearLR(o, 0.1, 1.0, n // 4), rates.CosineAnnealingLR(o, 3 * n // 4)], [n // 4]),
}

WAYS = ("plain", "resumed", "thaw", "thaw late groups", "freeze", "ema", "swa", "tied", "pictures", "weights alone", "skipped", "finetuned", "rebuilt",
        "every other", "begun again", "named last")


class Recipe:
    def __init__(self, optimizer, schedule, way, seed=0, saves=7, every=4):
        self.optimizer, self.schedule, self.way, self.seed, self.saves, self.every = optimizer, schedule, way, seed, saves, every
        self.steps = saves * every

    def __str__(self):
        return f"{self.optimizer}, {self.schedule}, {self.way}, seed {self.seed}"

    def build(self):
        self.model = Pictures() if self.way == "pictures" else Words(self.way == "tied", self.optimizer == "SparseAdam")
        self.frozen = [p for n, p in self.model.named_parameters() if n.startswith(("layers.0", "embed"))]
        if self.way.startswith("thaw"):
            for p in self.frozen:
                p.requires_grad_(False)
        self.optim_all()

    def optim_all(self):
        parameters = list(self.model.parameters())
        if self.way == "thaw late groups":
            parameters = [p for p in parameters if p.requires_grad]
        if self.optimizer == "SparseAdam":
            self.optims = [OPTIMIZERS["SparseAdam"]([self.model.embed.weight]), OPTIMIZERS["Adam"]([p for n, p in self.model.named_parameters() if not n.startswith("embed")])]
        else:
            self.optims = [OPTIMIZERS[self.optimizer](parameters)]
        self.schedules = [SCHEDULES[self.schedule](o, self.steps) for o in self.optims]
        if self.way == "swa":
            self.averaged = optim.swa_utils.AveragedModel(self.model)
            self.swa = [optim.swa_utils.SWALR(o, swa_lr=5e-4, anneal_epochs=3) for o in self.optims]

    def train(self, folder):
        torch.manual_seed(self.seed)
        generator = torch.Generator().manual_seed(self.seed)
        self.build()
        if self.way == "finetuned":  # from another run's model, in a separate folder
            for step in range(1, self.steps + 1):
                self.step(step, generator)
                self.save(folder, step, "base/step-{}/model.pt")
            kept = self.model.state_dict()
            self.build()
            self.model.load_state_dict(kept)
            folder = folder / "finetuned"
        if self.way == "begun again":  # into the folder of an abandoned run
            for step in range(1, self.steps // 2 + 1):
                self.step(step, generator)
                self.save(folder, step, "step-{}/model.pt")
            self.optim_all()
        self.shadow = copy.deepcopy(self.model.state_dict())
        for step in range(1, self.steps + 1):
            self.change(step)
            self.step(step, generator)
            self.save(folder, step, "step-{}/model.pt")
            if self.way in ("resumed", "rebuilt") and step in (self.every * 2, self.every * 4 + 1):
                self.resume(folder)

    def change(self, step):
        if step != self.steps // 2:
            return
        if self.way.startswith("thaw"):
            for p in self.frozen:
                p.requires_grad_(True)
            if self.way == "thaw late groups":
                for o in self.optims:
                    o.add_param_group({"params": self.frozen, "lr": o.param_groups[0]["lr"] / 10})
                self.schedules = [None] * len(self.optims)
        if self.way == "freeze":
            for p in self.frozen:
                p.requires_grad_(False)
                p.grad = None

    def step(self, step, generator):
        state = generator.get_state()

        def closure():
            generator.set_state(state)
            for o in self.optims:
                o.zero_grad(set_to_none=True)
            self.model.zero_grad(set_to_none=True)
            loss = self.model.loss(generator)
            loss.backward()
            return loss

        if self.optimizer == "LBFGS":
            loss = self.optims[0].step(closure)
        else:
            loss = closure()
            for o in self.optims:
                if self.way != "skipped" or step > 6:  # a gradient scaler that searches its scale
                    o.step()
        swa = self.way == "swa" and step > self.steps // 2
        for schedule in self.swa if swa else self.schedules:
            if schedule is not None:
                schedule.step(*([loss] if isinstance(schedule, rates.ReduceLROnPlateau) else []))
        if swa:
            self.averaged.update_parameters(self.model)
        if self.way == "ema":
            for k, v in self.model.state_dict().items():
                self.shadow[k] = self.shadow[k] * 0.95 + v * 0.05

    def save(self, folder, step, name):
        if step % (self.every * (2 if self.way == "every other" and step < self.steps // 2 else 1)):
            return
        checkpoint = {"model": self.model.state_dict(), "epoch": step // 10, "global_step": step}
        if self.way != "weights alone":
            states = [o.state_dict() for o in self.optims]
            checkpoint["optimizer"] = states[0] if len(states) == 1 else states
            if self.schedules[0] is not None:
                # CyclicLR of torch 1.13 refers to one of its methods, which cannot be pickled.
                checkpoint["lr_scheduler"] = [{k: v for k, v in s.state_dict().items() if k != "_scale_fn_ref"} for s in self.schedules]
        if self.way == "ema":
            checkpoint["ema"] = self.shadow
        if self.way == "swa":
            checkpoint["swa_ema"] = self.averaged.state_dict()
        self.path = pathlib.Path(folder) / name.format(step)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(checkpoint, self.path)
        if self.way == "named last":
            for also in ("last.pt", "best.pt"):
                torch.save(checkpoint, pathlib.Path(folder) / also)
        self.saved = checkpoint

    def resume(self, folder):
        """In the middle of an epoch; `rebuilt`: by a program that was started again."""
        checkpoint = torch.load(self.path)
        if self.way == "rebuilt":
            self.build()
        self.model.load_state_dict(checkpoint["model"])
        states = checkpoint["optimizer"] if isinstance(checkpoint["optimizer"], list) else [checkpoint["optimizer"]]
        for o, state in zip(self.optims, states):
            o.load_state_dict(state)
        for schedule, state in zip(self.schedules, checkpoint.get("lr_scheduler", [])):
            schedule.load_state_dict(state)


def recipes():
    optimizers, schedules = list(OPTIMIZERS), list(SCHEDULES)
    if LONG:
        for o in optimizers:
            for i, way in enumerate(WAYS):
                yield o, schedules[(i + optimizers.index(o)) % len(schedules)], way
        for s in schedules:
            for o in ("momentum", "slow", "AdamW"):
                yield o, s, "plain"
        for way in WAYS:
            yield "LBFGS", "none", way
        return
    yield "LBFGS", "none", "finetuned"
    for i in range(max(len(optimizers), len(schedules), len(WAYS))):
        yield optimizers[i % len(optimizers)], schedules[(5 * i) % len(schedules)], WAYS[i % len(WAYS)]


def fits(optimizer, schedule, way):
    """Returns whether torch supports the combination."""
    if optimizer == "SparseAdam" and way in ("tied", "pictures", "thaw late groups"):
        return False  # dense gradients; one optimizer for the embedding alone
    if optimizer == "Adagrad" and way == "thaw late groups":
        return False  # creates its state for its initial groups
    # When built again, these have no lambda: torch does not save it in the state.
    if way == "rebuilt" and schedule in ("to 0", "sequence"):
        return False
    # Its line search divides by 0 if a step changes nothing, and needs all gradients.
    return optimizer != "LBFGS" or (schedule in ("none", "step", "constant") and way in ("plain", "resumed", "ema", "tied", "finetuned"))


class Recipes(InAFolder):
    def test_nothing_to_warn_of(self):
        count = 0
        for optimizer, schedule, way in recipes():
            if not fits(optimizer, schedule, way):
                continue
            recipe = Recipe(optimizer, schedule, way, seed=count)
            with self.subTest(str(recipe)):
                folder = self.folder / f"run{count}"
                recipe.train(folder)
                status, report = audit(folder)
                self.assertEqual((status, problems(report), serious(report)), (0, "", []))
                self.assertGreater(report["coverage"]["judged"], 5)
            count += 1
        print(f"{count} recipes")


if __name__ == "__main__":
    unittest.main()
