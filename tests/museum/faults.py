"""Trainers with one known fault each: silent ones, as they are published in reports. `finds`: {rule: first step; None: any}."""

import torch
from torch import nn
from torch.nn import functional

from healthy import Ema
from trainers import LENGTH, Classifier, Language, Trainer, average_of

FAULTS = {}


def fault(*kinds, **finds):
    """finds: rule="health/…" or rules={…}."""

    def keep(one):
        one.finds = finds["finds"]
        for kind in kinds:
            FAULTS[f"{kind}_{one.__name__.lower()}"] = (one, kind)
        return one

    return keep


# ---- what trains ---------------------------------------------------------------------------------------


@fault("classifier", "language", "images", finds={"health/no-gradient": 0})
class DetachedHead(Trainer):
    """The loss is made anew from its value."""

    def loss(self, batch):
        return torch.tensor(self.model(batch).item(), requires_grad=True)


@fault("classifier", "images", finds={"health/no-gradient": 0})
class DetachedBody(Trainer):
    def loss(self, batch):
        x, y = batch
        model = self.model
        hidden = model.second(model.first(x)) if hasattr(model, "first") else model.body(x).flatten(1)
        return functional.cross_entropy(model.head(hidden.detach()), y)


@fault("classifier", "language", finds={"health/no-gradient": 0})
class OtherModelsOptimizer(Trainer):
    def parameters(self):
        return list(type(self.model)().parameters())


@fault("classifier", "language", finds={"health/no-gradient": 0})
class TwoHeadsReplaced(Trainer):
    """A new head after the watch, which no optimizer holds."""

    def watch(self, run):
        super().watch(run)
        self.model.head = nn.Linear(self.model.head.in_features, self.model.head.out_features)


@fault("classifier", "language", finds={"health/no-gradient": None})
class ReplacedLater(Trainer):
    def before_step(self):
        if self.step == 40:
            self.model.head = nn.Linear(self.model.head.in_features, self.model.head.out_features)


@fault("classifier", finds={"health/no-gradient": None})
class ThawedUnheld(Trainer):
    """The body trains after 40 steps; the optimizer does not get it."""

    def build(self, make):
        model = make()
        for name, p in model.named_parameters():
            p.requires_grad_("head" in name)
        return model

    def before_step(self):
        if self.step == 40:
            self.model.requires_grad_(True)


@fault("classifier", "language", finds={"health/no-gradient": None})
class NeverStepped(Trainer):
    """Two optimizers, one of which is forgotten in the loop."""

    def optimize(self):
        parameters = self.parameters()
        return [torch.optim.AdamW(parameters[:2], lr=self.rate), torch.optim.AdamW(parameters[2:], lr=self.rate)]

    def update(self):
        self.optimizer[0].step()

    def one_step(self):
        loss = self.loss(self.data())
        loss.backward()
        self.update()
        for one in self.optimizer:
            one.zero_grad()
        self.losses.append(loss.detach())


@fault("classifier", "language", finds={"health/no-gradient": None})
class AnotherOneSteps(Trainer):
    """The optimizer is made again after the watch."""

    def watch(self, run):
        super().watch(run)
        self.optimizer = self.optimize()


@fault("classifier", finds={"health/no-gradient": None})
class NothingSteps(Trainer):
    def update(self):
        pass


@fault("dropout", "batch_norm", "images", finds={"health/eval-mode": None})
class LeftInEval(Trainer):
    """Validated after 30 steps, and not put back."""

    def before_step(self):
        if self.step == 30:
            self.model.eval()
            with torch.no_grad():
                self.model(self.data())


@fault("classifier", "language", "regression", finds={"precision/stale-gradient": None})
class NeverCleared(Trainer):
    clear = False


@fault("classifier", "language", finds={"health/learning-rate": None})
class ScheduleOver(Trainer):
    def scheduled(self):
        return torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: max(0.0, 1 - step / 80))


@fault("classifier", "language", finds={"health/learning-rate": 0})
class RateZero(Trainer):
    def scheduled(self):
        return torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 0.0)


@fault("classifier", "language", finds={"health/unchanged-tensor": None})
class PutBack(Trainer):
    """A weight is set back after each step (an old copy is loaded)."""

    def watch(self, run):
        super().watch(run)
        self.kept = self.model.head.weight.detach().clone()

    def after_update(self):
        with torch.no_grad():
            self.model.head.weight.copy_(self.kept)


# ---- what is lost to precision ------------------------------------------------------------------------


@fault("language", "classifier", "recurrent", finds={"precision/lost-update": None})
class Bf16Weights(Trainer):
    """bf16 weights, SGD at a rate whose updates they swallow."""

    def build(self, make):
        model = make().bfloat16()
        return model

    def optimize(self):
        return torch.optim.SGD(self.parameters(), lr=1e-4)

    def loss(self, batch):
        batch = (batch[0].bfloat16(), batch[1]) if isinstance(batch, tuple) else batch
        return self.model(batch)


class Bf16Ema(Ema):
    dtype = torch.bfloat16

    def after_update(self):
        with torch.no_grad():
            for mean, p in zip(self.average.parameters(), self.model.parameters()):
                mean.lerp_(p.detach().to(mean.dtype), 0.001)


fault("classifier", "language", finds={"precision/ema-stall": None})(Bf16Ema)


@fault("language", "classifier", finds={"precision/ema-stall": None})
class Bf16EmaByMultiply(Ema):
    dtype = torch.bfloat16

    def after_update(self):
        with torch.no_grad():
            for mean, p in zip(self.average.parameters(), self.model.parameters()):
                mean.copy_(mean * 0.999 + p * 0.001)


@fault("language", finds={"precision/ema-stall": None})
class Bf16Averaged(Ema):
    def watch(self, run):
        Trainer.watch(self, run)
        self.average = torch.optim.swa_utils.AveragedModel(average_of(self.model, torch.bfloat16), avg_fn=lambda mean, p, n: 0.999 * mean + 0.001 * p)

    def after_update(self):
        self.average.update_parameters(self.model)


@fault("language", finds={"precision/position-collision": None})
class Bf16Positions(Trainer):
    def build(self, make):
        return Language(positions=torch.bfloat16)


@fault("language", "classifier", finds={"precision/epsilon-underflow": None})
class Fp16Epsilon(Trainer):
    def build(self, make):
        model = make()
        return model.half().float().bfloat16() if False else model

    def optimize(self):
        return torch.optim.Adam(self.parameters(), lr=self.rate, eps=0.0)


# ---- clips, scales, accumulation ----------------------------------------------------------------------


class Scaled(Trainer):
    """A loss scale of 2^14, with a clip before it is undone."""

    clip, scale = 1.0, 2.0**14

    def backward(self, loss):
        (loss * self.scale).backward()

    def before_update(self):
        nn.utils.clip_grad_norm_(self.parameters(), self.clip)
        for p in self.parameters():
            p.grad /= self.scale


fault("classifier", "language", finds={"health/gradient-vanish": None})(Scaled)


@fault("classifier", "language", finds={"health/update-ratio": None})
class ClippedFar(Trainer):
    """A clip far below the norm, under SGD."""

    clip, steps = 1e-4, 250

    def optimize(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


@fault("language", finds={"precision/loss-mean-of-means": None})
class MeanOfMeans(Trainer):
    """Micro-batches of unequal lengths, each with its own mean."""

    def one_step(self):
        batch = self.data()
        loss = 0
        for rows, length in ((slice(0, 8), 20), (slice(8, 16), 6)):
            part = batch[rows]
            labels = part[:, 1:].clone()
            labels[:, length:] = -100
            logits = self.model.head(self.model.hidden(part[:, :-1]))
            one = functional.cross_entropy(logits.flatten(0, 1), labels.flatten()) / 2
            one.backward()
            loss += one.detach()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.losses.append(loss)


# ---- restarts -----------------------------------------------------------------------------------------


@fault("classifier", "language", finds={"health/optimizer-state": None})
class MomentsLost(Trainer):
    """A restart inside the run: the weights are loaded, the optimizer is new."""

    def before_step(self):
        if self.step == 70:
            self.optimizer = self.optimize()
            self.run.watch(self.model, self.optimizer)


@fault("language", finds={"health/optimizer-state": None})
class StateCleared(Trainer):
    def before_step(self):
        if self.step == 70:
            self.optimizer.state.clear()


# ---- losses -------------------------------------------------------------------------------------------


@fault("classifier", "language", "regression", "images", finds={"health/loss-non-finite": 50, "precision/non-finite": 50})
class NanAtFifty(Trainer):
    def loss(self, batch):
        loss = super().loss(batch)
        return loss * float("nan") if self.step == 50 else loss


@fault("classifier", "language", finds={"health/loss-divergence": None})
class Diverges(Trainer):
    steps = 300

    def before_step(self):
        if self.step >= 150:
            for group in self.optimizer.param_groups:
                group["lr"] = self.rate * 60


@fault("classifier", "language", finds={"health/not-learning": None})
class RandomLabels(Trainer):
    noise, steps = 1.0, 300

    def optimize(self):
        return torch.optim.SGD(self.parameters(), lr=0.02)


@fault("language", finds={"health/update-ratio": None})
class RateTooHigh(Trainer):
    steps = 200

    def optimize(self):
        return torch.optim.AdamW(self.parameters(), lr=0.5)


@fault("classifier", "language", finds={"health/update-ratio": None})
class RateTooLow(Trainer):
    steps = 200

    def optimize(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-8)


@fault("mixture", finds={"health/expert-imbalance": None, "health/dead-expert": None})
class CollapsedRouter(Trainer):
    steps = 300

    def build(self, make):
        model = make()
        for block in model.blocks:
            with torch.no_grad():
                block["mlp"].gate.weight.zero_()
                block["mlp"].gate.weight[0] = 0.0
            block["mlp"].gate.bias = nn.Parameter(torch.tensor([8.0, 4.0, -8.0, -8.0]))
        return model
