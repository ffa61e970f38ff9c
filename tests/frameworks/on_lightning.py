"""Lightning and Fabric: watched from a callback when the training starts, or as Fabric's objects."""

import os

import lightning
import torch
from lightning.fabric import Fabric
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.plugins import MixedPrecision

from harness import case, expect
from plumbline.lightning import PlumblineCallback
from small import Language, words

STEPS = 20


class Module(lightning.LightningModule):
    def __init__(self, detached=False):
        super().__init__()
        self.model, self.losses, self.norms, self.detached = Language(), [], [], detached

    def training_step(self, batch, _):
        loss = self.model(batch)
        self.losses.append(loss.detach().clone())
        self.log("train/loss", loss)
        return loss.detach().requires_grad_() if self.detached else loss

    def on_before_optimizer_step(self, optimizer):  # after the clip's unscaling, before the clip
        self.norms.append(torch.stack([p.grad.norm() for p in self.parameters() if p.grad is not None]).norm() if not self.detached else 0)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Watch(lightning.Callback):
    def __init__(self, run):
        self.run = run

    def on_train_start(self, trainer, pl_module):
        self.run.watch(pl_module, trainer.optimizers)


def fit(callbacks=(), module=None, batches=STEPS, **options):
    module = module or Module()
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, callbacks=list(callbacks), enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, log_every_n_steps=1, **{"logger": False, "max_steps": STEPS, **options},
    )  # fmt: skip
    trainer.fit(module, torch.utils.data.DataLoader(words(batches * 8), batch_size=8))
    return module


def results(module):
    return module.losses, module.state_dict()


@case(steps=STEPS, level="warning", states="AdamW$")
def trainer(run):
    module = fit([Watch(run)])
    expect(loss=module.losses, tokens=[8 * 16] * STEPS)
    return results(module)


@case(steps=STEPS, level="warning")
def clipped(run):
    module = fit([Watch(run)], gradient_clip_val=0.1)
    expect(loss=module.losses, grad_norm=module.norms)
    return results(module)


@case(steps=STEPS, level="warning")
def micro_batches(run):
    module = fit([Watch(run)], batches=4 * STEPS, accumulate_grad_batches=4)
    expect(loss=[torch.stack(module.losses[4 * k : 4 * k + 4]).mean() for k in range(STEPS)])
    return results(module)


@case(steps=STEPS, level="warning")
def scaled(run):
    """The scaler is the precision plugin's."""
    scaler = torch.amp.GradScaler("cpu", growth_interval=5)
    module = fit([Watch(run)], plugins=[MixedPrecision("16-mixed", "cpu", scaler)])
    expect(loss=module.losses)
    return results(module)


@case(level="warning", finds={"health/no-gradient": 0})
def loss_is_detached(run):
    return results(fit([Watch(run)], Module(detached=True)))


class Validated(Module):
    def validation_step(self, batch, _):
        self.log("val_loss", self.model(batch))

    def on_validation_epoch_end(self):
        self.validated = {**getattr(self, "validated", {}), self.trainer.global_step: self.trainer.callback_metrics["val_loss"].clone()}

    def val_dataloader(self):
        return torch.utils.data.DataLoader(words(16), batch_size=8)


@case(steps=STEPS, level="warning", states="AdamW$", opens=False)
def by_callback(_):
    callback = PlumblineCallback()
    module = fit([callback], Validated(), val_check_interval=5, default_root_dir="out")
    if type(callback.run).__name__ == "Run":
        callback.run.finish()
        os.rename("out/plumbline", "record")
        seen = {step: value for step, value in module.validated.items() if 0 < step < STEPS}
        expect(loss=module.losses, tokens=[8 * 16] * STEPS, **{"eval/val_loss": seen})
    return results(module)


LONG = 200


class Ruined(Validated):
    ruined_at = None

    def training_step(self, batch, number):
        loss = super().training_step(batch, number)
        return loss * float("nan") if number == self.ruined_at else loss


class Lights(lightning.Callback):
    """Counts the light steps: nothing is due in most steps under the default budget."""

    def __init__(self, watching):
        self.watching, self.count = watching, 0

    def on_train_batch_end(self, trainer, pl_module, *_):
        watched = self.watching._session._watched
        self.count += getattr(watched, "light", None) is not None


def long_training(ruined_at=None, **more):
    callback, module = PlumblineCallback(budget=0.01), Ruined()
    module.ruined_at, lights = ruined_at, Lights(callback)
    options = {"max_steps": LONG, "val_check_interval": 50, "gradient_clip_val": 0.1, "default_root_dir": "out", **more}
    fit([callback, lights], module, batches=LONG, **options)
    if type(callback.run).__name__ == "Run":
        callback.run.finish()
        os.rename("out/plumbline", "record")
        assert lights.count > LONG // 2, lights.count
    return module


@case(steps=LONG, level="warning", others=True, opens=False, budgeted=True)
def light_steps(_):
    module = long_training()
    seen = {step: value for step, value in module.validated.items() if 0 < step < LONG}
    expect(loss=module.losses, tokens=[8 * 16] * LONG, grad_norm=module.norms, **{"eval/val_loss": seen})
    return results(module)


@case(steps=LONG, level="warning", others=True, opens=False, budgeted=True)
def light_steps_scaled(_):
    scaler = torch.amp.GradScaler("cpu", growth_interval=40)
    module = long_training(plugins=[MixedPrecision("16-mixed", "cpu", scaler)])
    norms = {step: norm for step, norm in enumerate(module.norms) if norm.isfinite()}  # the scale grows until steps are skipped
    expect(loss=module.losses, tokens=[8 * 16] * LONG, grad_norm=norms)
    return results(module)


@case(level="warning", others=True, finds={"health/loss-non-finite": 150}, opens=False, budgeted=True)
def nan_in_a_light_step(_):
    return results(long_training(150))


class Game(lightning.LightningModule):
    """Two optimizers, stepped by hand."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.one, self.other, self.losses = Language(), Language(), []

    def training_step(self, batch, _):
        for model, optimizer in zip((self.one, self.other), self.optimizers()):
            optimizer.zero_grad()
            loss = model(batch)
            self.manual_backward(loss)
            optimizer.step()
            self.losses.append(loss.detach().clone())

    def configure_optimizers(self):
        return [torch.optim.AdamW(model.parameters(), lr=1e-3) for model in (self.one, self.other)]


@case(level="warning", states="2 of AdamW$")
def two_optimizers(run):
    module = fit([Watch(run)], Game(), max_steps=2 * STEPS)
    expect(**{"partial_loss": module.losses[::2], "partial_loss.1": module.losses[1::2]})
    return results(module)


@case(level="warning", states="2 of AdamW$")
def two_wrapped_optimizers(run):
    """As module.optimizers() gives them."""

    class Late(lightning.Callback):
        def on_train_start(self, trainer, pl_module):
            run.watch(pl_module, pl_module.optimizers())

    module = fit([Late()], Game(), max_steps=2 * STEPS)
    return results(module)


def fabric(run, micro=1, scaled=False):
    precision = {"plugins": [lightning.fabric.plugins.MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu"))]} if scaled else {}
    fabric = Fabric(accelerator="cpu", devices=1, **precision)
    model = Language()
    model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    data = fabric.setup_dataloaders(torch.utils.data.DataLoader(words(STEPS * micro * 8), batch_size=8))
    run.watch(model, optimizer)
    losses, means, norms = [], [], []
    for k, batch in enumerate(data):
        loss = model(batch)
        losses.append(loss.detach())
        fabric.backward(loss / micro)
        if (k + 1) % micro == 0:
            norms.append(fabric.clip_gradients(model, optimizer, max_norm=0.1))
            optimizer.step()
            optimizer.zero_grad()
            means.append(torch.stack(losses[-micro:]).mean())
    expect(loss=means, grad_norm=norms)
    return losses, model.state_dict()


@case(steps=STEPS, level="warning", states="AdamW$")
def of_fabric(run):
    return fabric(run)


@case(steps=STEPS, level="warning", states="AdamW$")
def of_fabric_micro_batches(run):
    return fabric(run, micro=4)


@case(steps=STEPS, level="warning", states="AdamW$")
def of_fabric_scaled(run):
    return fabric(run, scaled=True)


@case(reads="tensorboard", steps=STEPS)
def its_tensorboard_files():
    fit(logger=TensorBoardLogger("."))
