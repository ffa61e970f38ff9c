"""Lightning:

    from plumbline.lightning import PlumblineCallback
    Trainer(callbacks=[PlumblineCallback()])

With Fabric, run.watch(fabric_model, fabric_optimizer) is enough.
"""

import sys

if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    from pytorch_lightning import Callback
else:
    from lightning.pytorch import Callback

from ._callbacks import Session, guarded

_SETTINGS = ("max_steps", "max_epochs", "accumulate_grad_batches", "gradient_clip_val", "num_devices", "num_nodes", "log_every_n_steps")


class PlumblineCallback(Callback):
    """Watches the Trainer's module and optimizers; a step has the number that Lightning's loggers give it.

    Keyword arguments are those of plumbline.init: stop_on="error" ends the training at the first error that is found during it.
    Without a server and a record, and without PLUMBLINE_SERVER and PLUMBLINE_RECORD, the record is
    <default_root_dir>/plumbline, and the run has the name of that folder.
    """

    def __init__(self, **options):
        self._session, self._failed, self._evaluated = Session(options), set(), {}

    @property
    def run(self):
        """The run of plumbline.init, from the beginning of the training on."""
        return self._session.run

    @guarded
    def on_train_start(self, trainer, pl_module):
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        step = getattr(trainer.fit_loop.epoch_loop, "_batches_that_stepped", trainer.global_step)
        self._session.begin(trainer.default_root_dir, None, pl_module, trainer.optimizers, scaler, step, trainer.global_step)
        self._session.settings({name: getattr(trainer, name, None) for name in _SETTINGS})

    @guarded
    def on_validation_end(self, trainer, pl_module):
        if not trainer.sanity_checking and self.run is not None:
            logged = getattr(trainer, "logged_metrics", trainer.callback_metrics)
            self._evaluated = {name: value for name, value in logged.items() if name.startswith(("val", "eval", "test"))}

    @guarded
    def on_before_backward(self, trainer, pl_module, loss):
        """Lightning's loggers give an evaluation the number of the next step."""
        self._session.record_settings()
        evaluated, self._evaluated = self._evaluated, {}
        self._session.scalars(evaluated, "eval/")

    @guarded
    def on_train_batch_end(self, trainer, pl_module, *_, **__):
        if self._session.stops(trainer.global_step):
            trainer.should_stop = True

    @guarded
    def on_train_end(self, trainer, pl_module):
        self._session.end()
        self.run.flush()
