"""What a watch does around an optimizer's step and its zero_grad.

By the method, as a scheduler does it too: torch has hooks for it from 2.0 on only.
"""

import types


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


def _stepping(watch, updates, plain):
    """The method that takes the place of step."""

    def step(self, *arguments, **options):
        watch._guarded(watch._begin_update, self)
        if any(callable(given) for given in (*arguments, *options.values())):
            return by_closure(self, *arguments, **options)
        watch._guarded(prepare, self)
        if watch.scale is None:  # what comes next finds a backward pass without a step
            return plain(*arguments, **options)
        watch._guarded(watch._observe_gradients, self)
        watch._charged(updates.before, watch.scale)
        watch.stages.begin("optimizer")
        result = plain(*arguments, **options)
        watch.stages.end("optimizer")
        watch._charged(updates.after)
        watch._guarded(watch._end_update, self)
        return result

    def prepare(optimizer):
        watch.scale = 1.0
        watch.scale = None if _skips(watch, optimizer) else _scale(watch, optimizer)

    def by_closure(self, *arguments, **options):
        """The gradients are made in here, of LBFGS several times: the last ones are told, and no update."""
        watch.scale, watch.in_closure = 1.0, True
        try:
            result = plain(*arguments, **options)
        finally:
            watch.in_closure = False
        watch._guarded(watch._observe_gradients, self)
        watch._guarded(watch._end_update, self)
        return result

    return step


def hook(watch, optimizer, updates):
    """Puts ours in their places; what takes them away again."""
    plain = {"step": optimizer.step, "zero_grad": optimizer.zero_grad}

    def zero_grad(self, *arguments, **options):
        watch._guarded(watch._cleared, self)
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
