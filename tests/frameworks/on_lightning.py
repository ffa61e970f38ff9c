"""Lightning: watched from a callback when the training starts."""

import lightning
import torch
from lightning.pytorch.loggers import TensorBoardLogger

from harness import case
from small import Language, words

STEPS = 20


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model, self.losses = Language(), []

    def training_step(self, batch, _):
        loss = self.model(batch)
        self.losses.append(loss.detach().clone())
        self.log("train/loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Watch(lightning.Callback):
    def __init__(self, run):
        self.run = run

    def on_train_start(self, trainer, pl_module):
        self.run.watch(pl_module, trainer.optimizers)


def fit(callbacks=(), **options):
    module = Module()
    trainer = lightning.Trainer(
        max_steps=STEPS, accelerator="cpu", devices=1, callbacks=list(callbacks), enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, log_every_n_steps=1, **{"logger": False, **options},
    )  # fmt: skip
    trainer.fit(module, torch.utils.data.DataLoader(words(STEPS * 8), batch_size=8))
    return module.losses, module.state_dict()


@case(steps=STEPS)
def trainer(run):
    return fit([Watch(run)])


@case(steps=STEPS)
def clipped(run):
    return fit([Watch(run)], gradient_clip_val=0.5)


@case(reads="tensorboard", steps=STEPS)
def its_tensorboard_files():
    fit(logger=TensorBoardLogger("."))
