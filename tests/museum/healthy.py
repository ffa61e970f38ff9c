"""Healthy trainers: recipes, each for several models. None of them has a finding above a note."""

import contextlib
import copy
import math

import torch
import torch.utils.checkpoint
from torch import nn

from trainers import KINDS, Data, Language, Trainer, average_of

RECIPES = {}


def recipe(*kinds):
    def keep(one):
        for kind in kinds or KINDS:
            RECIPES[f"{kind}_{one.__name__.lower()}"] = (one, kind)
        return one

    return keep


@recipe()
class Plain(Trainer):
    pass


@recipe("classifier", "images", "language", "recurrent")
class Momentum(Trainer):
    def optimize(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


@recipe("classifier", "regression", "language")
class Nesterov(Trainer):
    def optimize(self):
        return torch.optim.SGD(self.parameters(), lr=0.03, momentum=0.9, nesterov=True, weight_decay=1e-4)


@recipe("regression", "recurrent", "language")
class Adam(Trainer):
    def optimize(self):
        return torch.optim.Adam(self.parameters(), lr=self.rate, betas=(0.9, 0.95))


@recipe("classifier", "recurrent")
class Rmsprop(Trainer):
    def optimize(self):
        return torch.optim.RMSprop(self.parameters(), lr=1e-3)


@recipe("classifier", "language")
class Adagrad(Trainer):
    def optimize(self):
        return torch.optim.Adagrad(self.parameters(), lr=0.02)


@recipe("language", "images", "recurrent", "mixture")
class Clipped(Trainer):
    clip = 0.5


@recipe("language", "classifier", "batch_norm", "mixture")
class Accumulated(Trainer):
    micro = 3


@recipe("language", "classifier", "images")
class Cosine(Trainer):
    def scheduled(self):
        def rate(step):
            return (step + 1) / 20 if step < 20 else 0.05 + 0.95 * (0.5 + 0.5 * math.cos(math.pi * (step - 20) / (self.steps - 20)))

        return torch.optim.lr_scheduler.LambdaLR(self.optimizer, rate)


@recipe("language", "recurrent")
class LinearToZero(Trainer):
    def scheduled(self):
        return torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: max(0.0, 1 - step / self.steps))


@recipe("language", "classifier", "images")
class Autocast(Trainer):
    def context(self):
        return torch.autocast("cpu", dtype=torch.bfloat16)


@recipe("classifier", "language")
class RemadeOptimizer(Trainer):
    """The optimizer is made again after the watch, before the first step."""

    def watch(self, run):
        super().watch(run)
        self.optimizer = self.optimize()


@recipe("dropout", "batch_norm", "images", "language", "language_dropout")
class Validated(Trainer):
    """Every 25 steps, and back to training."""

    def validate(self):
        if self.step % 25 == 24:
            self.model.eval()
            with torch.no_grad():
                value = float(self.model(self.data()))
            self.model.train()
            self.run.scalar("val_loss", value)

    def one_step(self):
        with self.run.step(self.step):
            super().one_step()
            self.validate()


@recipe("batch_norm", "images")
class FrozenNorms(Trainer):
    """The statistics of a pretrained base stay: its norms are in eval mode from the first step on, also after each train()."""

    def before_step(self):
        self.model.train()
        for module in self.model.modules():
            if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
                module.eval()


@recipe("dropout")
class WithoutDropout(Trainer):
    """Fine-tuned in eval mode from the first step on, on purpose."""

    def build(self, make):
        return make().eval()


@recipe("classifier", "language")
class Ema(Trainer):
    dtype = None

    def watch(self, run):
        super().watch(run)
        self.average = average_of(self.model, self.dtype)

    def after_update(self):
        with torch.no_grad():
            for mean, p in zip(self.average.parameters(), self.model.parameters()):
                mean.lerp_(p.detach().to(mean.dtype), 0.01)


@recipe("classifier", "language")
class Averaged(Ema):
    def watch(self, run):
        Trainer.watch(self, run)
        self.average = torch.optim.swa_utils.AveragedModel(self.model, avg_fn=lambda mean, p, n: 0.99 * mean + 0.01 * p)

    def after_update(self):
        self.average.update_parameters(self.model)


@recipe("language", "recurrent")
class QuickBf16Ema(Ema):
    """In bf16, with a decay that bf16 holds."""

    dtype = torch.bfloat16

    def after_update(self):
        with torch.no_grad():
            for mean, p in zip(self.average.parameters(), self.model.parameters()):
                mean.lerp_(p.detach().to(mean.dtype), 0.5)


@recipe("classifier", "images")
class FrozenBase(Trainer):
    def build(self, make):
        model = make()
        for name, p in model.named_parameters():
            p.requires_grad_("head" in name)
        return model


@recipe("classifier")
class Thawed(FrozenBase):
    """All of it trains after 40 steps: the optimizer gets it."""

    def before_step(self):
        if self.step == 40:
            late = [p for p in self.model.parameters() if not p.requires_grad]
            for p in late:
                p.requires_grad_(True)
            self.optimizer.add_param_group({"params": late})


@recipe("classifier", "regression")
class Lbfgs(Trainer):
    steps, rows, batch = 40, 256, None

    def optimize(self):
        return torch.optim.LBFGS(self.parameters(), lr=0.02, max_iter=3, line_search_fn="strong_wolfe")

    def one_step(self):
        batch = self.batch = self.batch or self.data()  # one batch: its curvature is of one loss

        def closure():
            self.optimizer.zero_grad()
            loss = self.model(batch)
            loss.backward()
            return loss

        self.losses.append(self.optimizer.step(closure).detach())


@recipe("language", "classifier")
class TwoOptimizers(Trainer):
    """One for matrices, one for the rest."""

    def optimize(self):
        return [
            torch.optim.SGD([p for p in self.parameters() if p.dim() > 1], lr=0.02, momentum=0.9),
            torch.optim.AdamW([p for p in self.parameters() if p.dim() <= 1], lr=self.rate),
        ]

    def update(self):
        for one in self.optimizer:
            one.step()

    def one_step(self):
        loss = self.loss(self.data())
        loss.backward()
        self.update()
        for one in self.optimizer:
            one.zero_grad()
        self.losses.append(loss.detach())


@recipe("language")
class Tied(Trainer):
    def build(self, make):
        return Language(tied=True)


@recipe("language")
class Rotary(Trainer):
    def build(self, make):
        return Language(positions=torch.float32)


@recipe("language", "classifier")
class OwnScale(Trainer):
    """A loss scale of one's own, undone before the clip."""

    clip = 1.0

    def backward(self, loss):
        (loss * 4096).backward()

    def before_update(self):
        for p in self.parameters():
            p.grad /= 4096
        super().before_update()


@recipe("language")
class ContinuedPreTraining(Trainer):
    """Goes on with a model that has learned: its loss hardly falls any more."""

    steps = 600

    def build(self, make):
        model, data, state = make(), Data("text", 16), torch.get_rng_state()
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        for _ in range(300):
            model(data()).backward()
            optimizer.step()
            optimizer.zero_grad()
        torch.set_rng_state(state)
        return model

    def optimize(self):
        return torch.optim.AdamW(self.parameters(), lr=2e-4)


@recipe("classifier", "images")
class NotEvaluated(Trainer):
    """A row of all series in each step: NaN where the evaluation is not due, and for the loss that there is none of before the first step."""

    def watch(self, run):
        super().watch(run)
        self.last = math.nan

    def one_step(self):
        with self.run.step(self.step):
            super().one_step()
            with torch.no_grad():
                value = float(self.model(self.data())) if self.step % 20 == 19 else math.nan
            self.run.scalar("val_loss", value)
            self.run.scalar("train_loss", self.last)
            self.last = float(self.losses[-1])


@recipe("classifier", "language")
class Resumed(Trainer):
    """A restart inside the run: weights, moments and steps are loaded."""

    def before_step(self):
        if self.step == 70:
            model, state = copy.deepcopy(self.model.state_dict()), copy.deepcopy(self.optimizer.state_dict())
            self.model.load_state_dict(model)
            self.optimizer = self.optimize()
            self.optimizer.load_state_dict(state)
            self.run.watch(self.model, self.optimizer)


@recipe("dropout")
class EvaluatesEachStep(Trainer):
    """eval() and train() within each step."""

    def after_update(self):
        self.model.eval()
        with torch.no_grad():
            self.model(self.data())
        self.model.train()


@recipe("language")
class TokenWeighted(Trainer):
    """Micro-batches of unequal lengths: divided by the tokens of all."""

    def one_step(self):
        batch = self.data()
        parts = [batch[:8, :20], batch[8:, :8]]
        total = sum(part[:, 1:].numel() for part in parts)
        with contextlib.ExitStack():
            for part in parts:
                (self.model(part) * part[:, 1:].numel() / total).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.losses.append(torch.zeros(()))


@recipe("classifier")
class LongTail(Trainer):
    """Long enough that the loss is flat."""

    steps = 700


@recipe("language", "classifier", "images")
class DynamicScale(OwnScale):
    """A loss scale that doubles each 30 steps."""

    steps = 200

    def backward(self, loss):
        self.scale = 256.0 * 2 ** (self.step // 30)
        (loss * self.scale).backward()

    def before_update(self):
        for p in self.parameters():
            p.grad /= self.scale
        Trainer.before_update(self)


@recipe("language", "classifier", "recurrent")
class BatchRamp(Trainer):
    """1, 2, 4 micro-batches a step, each with its whole loss; the gradients are divided afterwards."""

    steps = 210

    def one_step(self):
        self.micro = 2 ** min(2, self.step // 70)
        super().one_step()

    def backward(self, loss):
        loss.backward()

    def before_update(self):
        for p in self.parameters():
            p.grad /= self.micro


@recipe("language", "classifier")
class RateRests(Trainer):
    """A rate of 0 for 15 steps that returns by itself: a note."""

    steps = 200

    def scheduled(self):
        return torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 0.0 if 80 <= step < 95 else 1.0)


@recipe("classifier", "regression")
class VectorLoss(Trainer):
    """One loss a row, weighed by backward."""

    def loss(self, batch):
        x, y = batch
        if self.kind == "regression":
            return (self.model.body(x).squeeze(1) - y) ** 2
        return nn.functional.cross_entropy(self.model.logits(x), y, reduction="none")

    def backward(self, loss):
        loss.backward(torch.full_like(loss, 1 / len(loss)))
        self.rows_lost = loss

    def one_step(self):
        super().one_step()
        self.losses[-1] = self.losses[-1].mean()


@recipe("classifier", "language")
class SeveralLosses(Trainer):
    """A loss and a penalty, handed to torch.autograd.backward together."""

    def backward(self, loss):
        penalty = 1e-4 * sum(p.square().sum() for p in self.parameters())
        torch.autograd.backward([loss, penalty])


@recipe("classifier", "images")
class Surgery(Trainer):
    """Two tasks, each with a backward pass of its own; the combined gradient has no part against either."""

    def one_step(self):
        kept, parameters = [], self.parameters()
        x, y = self.data()
        for half in (slice(0, 8), slice(8, 16)):
            self.optimizer.zero_grad()
            loss = self.model((x[half], y[half]))
            loss.backward()
            kept.append([p.grad.clone() for p in parameters])
        for p, a, b in zip(parameters, *kept):
            against = (a * b).sum()
            p.grad = a + b - (against / b.square().sum().clamp_min(1e-12) * b if against < 0 else 0)
        self.optimizer.step()
        self.losses.append(loss.detach())


@recipe("classifier", "language")
class Sharpness(Trainer):
    """SAM: a first pass for the perturbation, cleared, and a second one that is used."""

    def one_step(self):
        batch, parameters = self.data(), self.parameters()
        self.model(batch).backward()
        with torch.no_grad():
            norm = torch.sqrt(sum(p.grad.square().sum() for p in parameters))
            moves = [0.02 * p.grad / (norm + 1e-12) for p in parameters]
            for p, move in zip(parameters, moves):
                p.add_(move)
        self.optimizer.zero_grad()
        loss = self.model(batch)
        loss.backward()
        with torch.no_grad():
            for p, move in zip(parameters, moves):
                p.sub_(move)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.losses.append(loss.detach())


@recipe("mixture")
class ExpertNowAndThen(Trainer):
    """An expert that is left out of every other step has a gradient now and then."""

    def before_step(self):
        for block in self.model.blocks:
            block["mlp"].experts[3].requires_grad_(self.step % 2 == 0)


@recipe("classifier")
class UnusedHead(Trainer):
    """A head that the loss does not use: a note."""

    def build(self, make):
        model = make()
        model.spare = nn.Linear(48, 3)
        return model


@recipe("language", "classifier")
class Checkpointed(Trainer):
    """Activations are computed again, without reentrance."""

    reentrant = False

    def build(self, make):
        model = make()
        parts = model.blocks if hasattr(model, "blocks") else [model.second]
        for part in parts:
            part = part["mlp"] if isinstance(part, nn.ModuleDict) else part
            part.forward = self.again(part.forward)
        return model

    def again(self, plain):
        return lambda x: torch.utils.checkpoint.checkpoint(plain, x, use_reentrant=self.reentrant)


@recipe("language", "classifier")
class Lion(Trainer):
    """An optimizer of one's own, by the sign of a momentum."""

    def optimize(self):
        class Signs(torch.optim.Optimizer):
            def __init__(self, parameters, lr):
                super().__init__(parameters, {"lr": lr})

            @torch.no_grad()
            def step(self):
                for group in self.param_groups:
                    for p in group["params"]:
                        mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                        p.sub_(group["lr"] * (0.9 * mean + 0.1 * p.grad).sign())
                        mean.lerp_(p.grad, 0.01)

        return Signs(self.parameters(), self.rate / 5)
