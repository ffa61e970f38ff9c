"""Trainers with one known fault each: silent ones, as they are published in reports. `finds`: {rule: first step; None: any}."""

import torch
from torch import nn
from torch.nn import functional

from healthy import Checkpointed, Ema
from trainers import Language, Trainer

FAULTS = {}


def fault(*kinds, finds, also=()):
    """`also`: rules that may report consequences."""

    def keep(one):
        one.finds, one.also = finds, also
        for kind in kinds:
            FAULTS[f"{kind}_{one.__name__.lower()}"] = (one, kind)
        return one

    return keep


# ---- what trains ---------------------------------------------------------------------------------------


@fault("classifier", "language", "images", finds={"health/no-gradient": 0}, also=("health/not-learning",))
class DetachedHead(Trainer):
    """The loss is a new tensor with the same value."""

    def loss(self, batch):
        return torch.tensor(self.model(batch).item(), requires_grad=True)


@fault("classifier", "images", finds={"health/no-gradient": 0})
class DetachedBody(Trainer):
    def loss(self, batch):
        x, y = batch
        model = self.model
        hidden = model.second(model.first(x)) if hasattr(model, "first") else model.body(x).flatten(1)
        return functional.cross_entropy(model.head(hidden.detach()), y)


@fault("classifier", "language", finds={"health/no-gradient": 0}, also=("health/unchanged-tensor", "health/not-learning", "health/gradient-spike"))
class OtherModelsOptimizer(Trainer):
    def parameters(self):
        return list(type(self.model)().parameters())


@fault("classifier", "language", finds={"health/no-gradient": 0})
class TwoHeadsReplaced(Trainer):
    """A new head after the watch, which no optimizer holds."""

    def watch(self, run):
        super().watch(run)
        self.model.head = nn.Linear(self.model.head.in_features, self.model.head.out_features)


@fault("classifier", "language", finds={"health/no-gradient": (38, 130)}, also=("health/all-zero", "health/loss-spike"))
class ReplacedLater(Trainer):
    def before_step(self):
        if self.step == 40:
            self.model.head = nn.Linear(self.model.head.in_features, self.model.head.out_features)


@fault("classifier", finds={"health/no-gradient": (38, 130)})
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


@fault("classifier", "language", finds={"health/no-gradient": 0})
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


@fault("classifier", "language", finds={"health/no-gradient": 0})
class NothingSteps(Trainer):
    def update(self):
        pass


@fault("dropout", "batch_norm", "images", "language_dropout", finds={"health/eval-mode": 30})
class LeftInEval(Trainer):
    """Validated after 30 steps, and not put back."""

    def before_step(self):
        if self.step == 30:
            self.model.eval()
            with torch.no_grad():
                self.model(self.data())


@fault("classifier", "language", "regression", finds={"precision/stale-gradient": (1, 8)}, also=("health/loss-divergence", "health/loss-spike", "health/update-ratio"))
class NeverCleared(Trainer):
    clear = False


@fault("classifier", "language", finds={"health/learning-rate": 80})
class ScheduleOver(Trainer):
    def scheduled(self):
        return torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: max(0.0, 1 - step / 80))


@fault("classifier", "language", finds={"health/learning-rate": 0})
class RateZero(Trainer):
    def scheduled(self):
        return torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 0.0)


@fault("classifier", "images", finds={"health/all-zero": None}, also=("health/unchanged-tensor", "health/no-gradient", "health/gradient-vanish"))
class HookZeroes(Trainer):
    """A gradient hook that zeroes what it should scale."""

    def build(self, make):
        model = make()
        for p in list(model.parameters())[:2]:
            p.register_hook(lambda gradient: gradient * 0)
        return model


@fault("classifier", finds={"health/all-zero": None}, also=("health/not-learning", "health/gradient-vanish", "health/unchanged-tensor"))
class DeadUnits(Trainer):
    def build(self, make):
        model = make()
        with torch.no_grad():
            model.first[0].bias.fill_(-60)
        return model


# ---- what is lost to precision ------------------------------------------------------------------------


@fault("language", "classifier", finds={"precision/lost-update": None}, also=("health/not-learning",))
class Bf16Weights(Trainer):
    """bf16 weights, SGD at a rate whose updates they swallow."""

    def build(self, make):
        return make().bfloat16()

    def optimize(self):
        return torch.optim.SGD(self.parameters(), lr=1e-4)

    def loss(self, batch):
        batch = (batch[0].bfloat16(), batch[1]) if isinstance(batch, tuple) else batch
        return self.model(batch)


class Bf16Ema(Ema):
    dtype, steps = torch.bfloat16, 400

    def after_update(self):
        with torch.no_grad():
            for mean, p in zip(self.average.parameters(), self.model.parameters()):
                mean.lerp_(p.detach().to(mean.dtype), 0.001)


fault("classifier", "language", finds={"precision/ema-stall": None})(Bf16Ema)


@fault("language", "classifier", finds={"precision/ema-stall": None})
class Bf16EmaByMultiply(Ema):
    dtype, steps = torch.bfloat16, 400

    def after_update(self):
        with torch.no_grad():
            for mean, p in zip(self.average.parameters(), self.model.parameters()):
                mean.copy_(mean.float() * 0.999 + p * 0.001)


@fault("language", finds={"precision/position-collision": None})
class Bf16Positions(Trainer):
    def build(self, make):
        return Language(positions=torch.bfloat16)


@fault("language", "classifier", finds={"precision/lost-update": None}, also=("health/not-learning", "health/update-ratio", "precision/moment-ratchet"))
class Bf16Adam(Bf16Weights):
    """Fine-tuning of bf16 weights: a rate of 1e-5 is far below their last place."""

    def optimize(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-5)


# ---- clips, scales, accumulation ----------------------------------------------------------------------


class Scaled(Trainer):
    """A loss scale of 2^14, with a clip before it is undone."""

    clip, scale, steps = 1.0, 2.0**14, 800

    def backward(self, loss):
        (loss * self.scale).backward()

    def before_update(self):
        nn.utils.clip_grad_norm_(self.parameters(), self.clip)
        for p in self.parameters():
            p.grad /= self.scale


fault("classifier", "language", finds={"health/gradient-vanish": None})(Scaled)


@fault("classifier", finds={"health/update-ratio": None}, also=("health/not-learning",))
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


@fault("classifier", "language", finds={"health/optimizer-state": (63, 70)})
class MomentsLost(Trainer):
    """A restart inside the run: the weights are loaded, the optimizer is new."""

    def before_step(self):
        if self.step == 70:
            self.optimizer = self.optimize()
            self.run.watch(self.model, self.optimizer)


@fault("classifier", "language", finds={"health/optimizer-state": (63, 70)})
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


@fault("classifier", "language", finds={"health/loss-divergence": (150, 154)}, also=("health/loss-spike", "health/all-zero", "health/update-ratio"))
class Diverges(Trainer):
    steps = 300

    def before_step(self):
        if self.step >= 150:
            for group in self.optimizer.param_groups:
                group["lr"] = self.rate * 60


@fault("classifier", finds={"health/not-learning": 0})
class RandomLabels(Trainer):
    noise, steps = 1.0, 300

    def optimize(self):
        return torch.optim.SGD(self.parameters(), lr=0.02)


@fault("classifier", "language", finds={"health/not-learning": 0}, also=("health/update-ratio",))
class RateTooLow(Trainer):
    steps = 200

    def optimize(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-8)


@fault("mixture", finds={"health/dead-expert": 0}, also=("health/expert-imbalance", "health/router-collapse"))
class CollapsedRouter(Trainer):
    steps = 300

    def build(self, make):
        model = make()
        for block in model.blocks:
            with torch.no_grad():
                block["mlp"].gate.weight.zero_()
            block["mlp"].gate.bias = nn.Parameter(torch.tensor([8.0, 4.0, -8.0, -8.0]))
        return model


@fault("classifier", "language", finds={"precision/non-finite": None}, also=("health/loss-non-finite",))
class InfiniteGradient(Trainer):
    def before_update(self):
        if self.step == 60:
            self.parameters()[-1].grad.view(-1)[0] = float("inf")


@fault("classifier", "language", finds={"precision/non-finite": (60, 61), "health/loss-non-finite": (60, 61)})
class NanWeight(Trainer):
    """A weight is poisoned between two steps."""

    def before_step(self):
        if self.step == 60:
            with torch.no_grad():
                self.model.head.weight[0, 0] = float("nan")


@fault("classifier", finds={"health/overfit": None}, also=("health/loss-spike",))
class Overfitted(Trainer):
    """The same 48 rows again and again, with random labels in half of them."""

    steps, noise = 400, 0.5

    def watch(self, run):
        super().watch(run)
        self.kept, self.held_out = [self.data() for _ in range(3)], [self.data() for _ in range(8)]
        self.given = 0

    def loss(self, batch):
        self.given += 1
        return self.model(self.kept[self.given % 3])

    def one_step(self):
        with self.run.step(self.step):
            super().one_step()
            if self.step % 10 == 9:
                self.model.eval()
                with torch.no_grad():
                    value = sum(float(self.model(batch)) for batch in self.held_out) / len(self.held_out)
                self.model.train()
                self.run.scalar("val_loss", value)


@fault("classifier", finds={"health/loss-non-finite": 100})
class NanEvaluation(Overfitted):
    """An evaluation of nothing from step 100 on; the training is sound."""

    steps, noise = 150, 0.1

    def one_step(self):
        with self.run.step(self.step):
            Trainer.one_step(self)
            self.run.scalar("val_loss", float("nan") if self.step >= 100 else 0.5 + 0.01 * (self.step % 7))

    def loss(self, batch):
        return self.model(batch)


@fault("language", finds={"precision/loss-mean-of-means": None})
class MeanOfPacked(MeanOfMeans):
    """As above, of rows whose prompts are masked."""

    def one_step(self):
        loss = 0
        for masked in (4, 12, 20):
            batch = self.data()
            labels = batch[:, 1:].clone()
            labels[:, :masked] = -100
            logits = self.model.head(self.model.hidden(batch[:, :-1]))
            one = functional.cross_entropy(logits.transpose(1, 2), labels) / 3
            one.backward()
            loss += one.detach()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.losses.append(loss)


# ---- parts that are left out of the graph -------------------------------------------------------------


@fault("mixture", finds={"health/no-gradient": 0})
class NoGradExpert(Trainer):
    """One expert's forward runs without a graph."""

    def build(self, make):
        model = make()
        for block in model.blocks:
            expert = block["mlp"].experts[1]
            expert.forward = torch.no_grad()(expert.forward)
        return model


@fault("language", "classifier", finds={"health/no-gradient": 0})
class ReentrantCheckpoint(Checkpointed):
    """Computed again with reentrance, below frozen layers: no input has a gradient, so the part has none."""

    reentrant = True

    def build(self, make):
        model = super().build(make)
        if hasattr(model, "blocks"):
            for name, p in model.named_parameters():
                p.requires_grad_("mlp" in name or "head" in name)
            self.only_last(model)
        else:
            model.first.requires_grad_(False)
        return model

    def only_last(self, model):
        """The head trains, and the first block's part, whose input comes from frozen layers."""
        for name, p in model.named_parameters():
            p.requires_grad_("head" in name or "blocks.0.mlp" in name)


@fault("classifier", "language", finds={"health/no-gradient": 0})
class DetachedAdapter(Trainer):
    """A low-rank adapter on a frozen layer. Its output is detached by mistake; the head trains."""

    def build(self, make):
        model = make().requires_grad_(False)
        model.head.requires_grad_(True)
        layer = model.second[0] if hasattr(model, "second") else model.blocks[1]["mlp"][0]
        layer.lora_a, layer.lora_b = nn.Linear(layer.in_features, 4, bias=False), nn.Linear(4, layer.out_features, bias=False)
        nn.init.zeros_(layer.lora_b.weight)
        plain = layer.forward
        layer.forward = lambda x: plain(x) + layer.lora_b(layer.lora_a(x)).detach()
        return model


@fault("language", finds={"health/accumulation-scale": (0, 4)})
class Undivided(Trainer):
    """Four micro-batches, each with its whole mean, under SGD."""

    micro = 4

    def backward(self, loss):
        loss.backward()

    def optimize(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


@fault("classifier", "language", finds={"precision/stale-gradient": (1, 8)}, also=("health/loss-divergence", "health/loss-spike", "health/update-ratio"))
class NeverClearedMomentum(Trainer):
    clear = False

    def optimize(self):
        return torch.optim.SGD(self.parameters(), lr=0.002, momentum=0.9)


@fault("classifier", finds={"precision/ema-stall": None})
class Bf16Averaged(Ema):
    """torch's AveragedModel of a model, kept in bf16."""

    dtype, steps = torch.bfloat16, 400

    def watch(self, run):
        Trainer.watch(self, run)
        self.average = torch.optim.swa_utils.AveragedModel(self.model, avg_fn=lambda mean, p, n: mean + (0.001 * (p - mean)).to(mean.dtype)).bfloat16()

    def after_update(self):
        self.average.update_parameters(self.model)


@fault("recurrent", "images", "regression", finds={"health/optimizer-state": (63, 70)})
class StateClearedElsewhere(Trainer):
    def before_step(self):
        if self.step == 70:
            self.optimizer.state.clear()


@fault("recurrent", "regression", "autoencoder", finds={"health/loss-non-finite": 50, "precision/non-finite": 50})
class NanAtFiftyMomentum(Trainer):
    def optimize(self):
        return torch.optim.SGD(self.parameters(), lr=0.02, momentum=0.9)

    def loss(self, batch):
        loss = super().loss(batch)
        return loss * float("nan") if self.step == 50 else loss
