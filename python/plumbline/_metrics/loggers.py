"""The loggers that are imported when the watch begins: Weights & Biases and TensorBoard's SummaryWriter."""

import sys

from .._watching.stages import Weakly, take_place

# Module -> (class, method, how its arguments become {name: number}).
_LOGGERS = {
    "wandb.sdk.wandb_run": ("Run", "_log", lambda data, *_, **__: data),
    "torch.utils.tensorboard.writer": ("SummaryWriter", "add_scalar", lambda tag, scalar_value, *_, **__: {tag: scalar_value}),
    "tensorboardX.writer": ("SummaryWriter", "add_scalar", lambda tag, scalar_value, *_, **__: {tag: scalar_value}),
}


class Loggers:
    """All loggers of the process, for the runs that watch a model."""

    logged = Weakly()
    _undo = []

    @classmethod
    def add(cls, logged):
        cls.logged.add(logged)
        if cls._undo:
            return
        for module, (name, method, numbers) in _LOGGERS.items():
            kind = getattr(sys.modules.get(module), name, None)
            plain = getattr(kind, "__dict__", {}).get(method)
            if callable(plain):
                cls._undo.append(take_place(kind, method, plain, cls._reporting(plain, numbers)))

    @classmethod
    def remove(cls, logged):
        cls.logged.discard(logged)
        if not cls.logged.refs:
            undo, cls._undo = cls._undo, []
            for one in undo:
                one()

    @classmethod
    def _reporting(cls, plain, numbers):
        def log(self, *arguments, **words):
            try:
                for held in cls.logged.refs:
                    one = held()
                    if one is not None:
                        one.take(numbers(*arguments, **words))
            except Exception:  # the logger itself reports wrong arguments
                pass
            return plain(self, *arguments, **words)

        return log
