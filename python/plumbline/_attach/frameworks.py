"""Trainers of Hugging Face and Lightning, found in the frames that called the optimizer's step: their own callbacks watch them."""

import sys

from .._watching.unwrap import opened

_HUGGING_FACE, _LIGHTNING = ("callback_handler", "add_callback", "state"), ("callbacks", "fit_loop", "strategy")
_PACKAGES = (("transformers", _HUGGING_FACE), ("trl", _HUGGING_FACE), ("lightning", _LIGHTNING), ("pytorch_lightning", _LIGHTNING))


def _is_trainer(one, names):
    return any(kind.__name__.endswith("Trainer") for kind in type(one).__mro__) and all(hasattr(one, name) for name in names)


def calling_trainer():
    """Returns ("transformers" or "lightning", the trainer), or None."""
    if not any(name in sys.modules for name, _ in _PACKAGES):
        return None
    frame = sys._getframe(1)
    while frame is not None:
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        for name, attributes in _PACKAGES:
            one = frame.f_locals.get("self") if package == name else None
            if one is not None and _is_trainer(one, attributes):
                return ("transformers" if attributes is _HUGGING_FACE else "lightning"), one
        frame = frame.f_back
    return None


def has_stepped(trainer, stepped):
    """Returns whether all optimizers of the trainer are in `stepped`. Only then a step of Lightning with several of them is over."""
    given = getattr(trainer, "optimizers", None) or ()
    return not isinstance(given, list) or all(one.inner in stepped for one in opened(given))


def join_transformers(trainer, options):
    """Adds the callback to a Trainer that is in its first step, and begins it. Returns the callback's run."""
    from ..transformers import PlumblineCallback

    handler, callback = trainer.callback_handler, PlumblineCallback(**options)
    trainer.add_callback(callback)
    callback.on_train_begin(trainer.args, trainer.state, trainer.control, model=handler.model, optimizer=handler.optimizer)
    return callback.run


def join_lightning(trainer, options):
    """The same for Lightning's Trainer; the step that is open there is not counted."""
    from ..lightning import PlumblineCallback

    callback = PlumblineCallback(**options)
    trainer.callbacks.append(callback)
    callback.on_train_start(trainer, trainer.lightning_module)
    if hasattr(callback.run, "_next_step"):
        callback.run._next_step += 1
    return callback.run
