"""What a watch does around an optimizer's step and its zero_grad.

By the method, as a scheduler does it too: torch has hooks for it from 2.0 on only.
"""

import types

from ._watching.stages import NONE, OPTIMIZER


def _skips(watch, optimizer):
    """A fused step looks itself whether its scaler found infinities, and then does nothing."""
    found = getattr(optimizer, "found_inf", None)
    if found is None or (found.device.type != "cpu" and not watch.looks()):
        return False
    return bool(found)


def _scale(watch, optimizer):
    """And it unscales the gradients itself: what it is handed is too large by so much."""
    scale = getattr(optimizer, "grad_scale", None)
    if scale is None or (scale.device.type != "cpu" and not watch.looks()):
        return 1.0
    return float(scale)


def begins(watch, updates, optimizer):
    """In front of its update."""
    try:
        watch._begin_update(optimizer)
        if hasattr(optimizer, "found_inf") or hasattr(optimizer, "grad_scale"):  # of a scaler
            watch.scale = None if _skips(watch, optimizer) else _scale(watch, optimizer)
            if watch.scale is None:
                return
        try:
            watch._observe_gradients(optimizer)
        finally:  # each by itself
            if updates.due(watch._run._step):
                watch._charged(updates.before, watch.scale)
    except Exception as error:  # nothing of ours may end the trainer's step
        watch._failed("before_update", error)


def ends(watch, updates, optimizer):
    """Behind it."""
    try:
        if updates.kept:
            watch._charged(updates.after)
        watch._end_update(optimizer)
    except Exception as error:
        watch._failed("after_update", error)


def _stepping(watch, updates, plain):
    """The method that takes the place of step."""

    def step(self, *arguments, **options):
        watch.scale = 1.0
        if (arguments or options) and any(callable(given) for given in (*arguments, *options.values())):
            watch._guarded(watch._begin_update, self)
            return by_closure(self, *arguments, **options)
        begins(watch, updates, self)
        if watch.scale is None:  # what comes next finds a backward pass without a step
            return plain(*arguments, **options)
        watch.stages.enter(OPTIMIZER)
        result = plain(*arguments, **options)
        watch.stages.enter(NONE)
        ends(watch, updates, self)
        return result

    def by_closure(self, *arguments, **options):
        """The gradients are made in here, of LBFGS several times: the last ones are told, and no update."""
        watch.in_closure = True
        try:
            result = plain(*arguments, **options)
        finally:
            watch.in_closure = False
        watch._guarded(watch._observe_gradients, self, True)
        watch._guarded(watch._end_update, self)
        return result

    return step


def hook(watch, optimizer, updates):
    """Puts ours in their places; what takes them away again."""
    plain = {"step": optimizer.step, "zero_grad": optimizer.zero_grad}

    def zero_grad(self, *arguments, **options):
        watch._guarded(watch._loop.cleared, self, watch)
        result = plain["zero_grad"](*arguments, **options)
        watch._zeroed.add(id(self))
        return result

    step = _stepping(watch, updates, plain["step"])
    # torch's schedulers ask whether they have wrapped it already.
    step.__dict__.update(getattr(plain["step"], "__dict__", {}))
    ours = {"step": types.MethodType(step, optimizer), "zero_grad": types.MethodType(zero_grad, optimizer)}
    for name, method in ours.items():
        setattr(optimizer, name, method)

    def undo():
        for name, method in ours.items():
            if optimizer.__dict__.get(name) is method:
                setattr(optimizer, name, plain[name])

    return undo
