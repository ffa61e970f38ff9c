"""Communication hooks of DistributedDataParallel, registered at any time.

torch accepts one hook in a model's life and returns none, and before 2.0 does not report whether a hook is registered.
So from plumbline.init on, the class itself registers a hook that checks each time whether its model is watched by now.
If it is not, the cost is one dictionary lookup.
"""

import functools
import gc
import sys
import weakref

from .._hooks import observed

_hooks = weakref.WeakKeyDictionary()  # model -> {"plain": the trainer's hook, "observed": ours or None}
_observed = weakref.WeakSet()  # models whose trainer has registered a hook of run.observed()


def is_ddp(model):
    return type(model).__name__ == "DistributedDataParallel" and hasattr(model, "reducer")


def around(module):
    """Returns the living DistributedDataParallel with this module, or None: a framework may have wrapped the module
    where the trainer does not see it."""
    if "torch.nn.parallel.distributed" not in sys.modules or not _in_group():
        return None
    kind = sys.modules["torch.nn.parallel.distributed"].DistributedDataParallel
    found = [one for one in gc.get_objects() if issubclass(type(one), kind) and is_ddp(one)]
    return next((one for one in found if getattr(one.module, "_orig_mod", one.module) is module), None)


def _in_group():
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and distributed.is_available() and distributed.is_initialized()


def prepare():
    """Replaces the method once torch's DistributedDataParallel is imported; hooks registered before are not seen."""
    module = sys.modules.get("torch.nn.parallel.distributed")
    ddp = getattr(module, "DistributedDataParallel", None)
    plain = getattr(ddp, "register_comm_hook", None)  # from torch 1.8 on
    if plain is None or hasattr(plain, "plumbline"):
        return

    @functools.wraps(plain)
    def register_comm_hook(self, state, hook):
        if getattr(hook, "plumbline", False):
            _observed.add(self)
        if not callable(hook) or getattr(hook, "plumbline", False):
            return plain(self, state, hook)
        known = {"plain": hook, "observed": None}

        @functools.wraps(hook)
        def late(state, bucket):
            return (known["observed"] or hook)(state, bucket)

        result = plain(self, state, late)
        _hooks[self] = known
        return result

    register_comm_hook.plumbline = True
    ddp.register_comm_hook = register_comm_hook


def lowest_rank(hook):
    """Returns the lowest rank of the group over which DistributedDataParallel sums. None: `hook` is None, or the group has one rank."""
    group = None if hook is None else getattr(hook._model(), "process_group", None)
    if group is None or not hasattr(sys.modules["torch.distributed"], "get_process_group_ranks"):
        return None
    ranks = sys.modules["torch.distributed"].get_process_group_ranks(group)
    return min(ranks) if len(ranks) > 1 else None


class Hook:
    """The hook of one watched model."""

    def __init__(self, run, model, name, paced):
        """name: the name of the sites, to which the bucket's number is appended. paced: a PacedSums."""
        self._run, self._model, self._name, self._paced = run, weakref.ref(model), name, paced
        prepare()

    def observe(self):
        """Observes the trainer's hook, or DDP's own sum. Called at each forward pass until it returns True."""
        model, run = self._model(), self._run
        if model is None or model in _observed:  # the trainer has registered run.observed() itself
            return True
        known = _hooks.get(model)
        if known is not None:
            known["observed"] = observed(run, known["plain"], self._name, self._paced)
            return True
        try:
            model.register_comm_hook(None, observed(run, None, self._name, self._paced))
        except AttributeError:
            run._warn_once("watch-hook", "watch: the sums of DistributedDataParallel are not observed; expected torch 1.8 or newer")
        except RuntimeError as error:  # a hook is registered already
            run._warn_once("watch-hook", f"watch: a communication hook was registered before plumbline.init, and is not "
                             f"observed ({error}); expected init first, or run.observed(hook)")  # fmt: skip
        return True

    def remove(self):
        known = _hooks.get(self._model())
        if known is not None:
            known["observed"] = None
