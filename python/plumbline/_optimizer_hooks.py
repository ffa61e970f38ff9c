"""Hooks of a watch around an optimizer's step and its zero_grad.

They replace the method, as a scheduler does: torch has hooks for it only from 2.0 on.
"""

import types
from time import thread_time_ns

from ._watching.stages import NONE, OPTIMIZER


def _skips(watch, optimizer):
    """A fused step checks itself whether its scaler found infinities, and then does nothing."""
    found = getattr(optimizer, "found_inf", None)
    if found is None or (found.device.type != "cpu" and not watch.looks()):
        return False
    return bool(found)


def _scale(watch, optimizer):
    """A fused step also unscales the gradients itself: those that it gets are too large by this factor."""
    scale = getattr(optimizer, "grad_scale", None)
    if scale is None or (scale.device.type != "cpu" and not watch.looks()):
        return 1.0
    return float(scale)


def begins(watch, updates, optimizer):
    """Called before the update."""
    began = thread_time_ns()
    try:
        watch._begin_update(optimizer)
        if hasattr(optimizer, "found_inf") or hasattr(optimizer, "grad_scale"):  # a scaler has set these attributes
            watch.scale = None if _skips(watch, optimizer) else _scale(watch, optimizer)
            if watch.scale is None:
                return
        try:
            watch._observe_gradients(optimizer)
        finally:  # an error in one observation does not prevent the other
            step = watch._run._step
            if watch.updates_due(updates, step):
                watch._charged(updates.before, watch.scale, False, watch._looks.chosen(step))
    except Exception as error:  # no error of this package may end the trainer's step
        watch._failed("before_update", error)
    finally:
        watch.budget.spent += thread_time_ns() - began


def ends(watch, updates, optimizer):
    """Called after the update."""
    watch.ends_began = thread_time_ns()
    try:
        if updates.kept:
            watch._charged(updates.after)
        watch._end_update(optimizer)
    except Exception as error:
        watch._failed("after_update", error)
    finally:
        if watch.ends_began is not None:  # the step did not end
            watch.budget.spent += thread_time_ns() - watch.ends_began
            watch.ends_began = None


class _Closure:
    """A closure of a known rule, which calls it once and first: its gradients are read when it returns, before the
    update."""

    def __init__(self, watch, updates, optimizer, closure):
        self._watch, self._updates, self._optimizer, self._closure = watch, updates, optimizer, closure
        self.returned = False

    def __call__(self, *arguments, **options):
        watch = self._watch
        watch.in_closure = True
        try:
            result = self._closure(*arguments, **options)
        finally:
            watch.in_closure = False
        if not self.returned:
            self.returned = True
            light = watch._light
            if not light.on or (len(light.rows) == light.at and not light.screens()):
                begins(watch, self._updates, self._optimizer)
                watch.stages.enter(OPTIMIZER)
        return result


def _stepping(watch, updates, plain, inner):
    """Returns the replacement of step. `inner`: the watched optimizer, if `self` is a wrapper of it."""

    light = watch._light
    stepped, rows = light.keeper(inner), light.rows

    def step(self, *arguments, **options):
        if light.on and not arguments and not options and len(rows) != light.at:  # no arguments to unpack
            result = plain()
            stepped()
            return result
        given = closes = None
        if arguments or options:  # accelerate calls step(None)
            given = [one for one in (*arguments, *options.values()) if one is not None]
            closes = any(map(callable, given))
        if light.on and not (closes and updates.kind is not None):
            if given:
                light.leave()
            elif len(rows) != light.at:
                result = plain(*arguments, **options)
                stepped()
                return result
            elif light.screens():
                result = plain(*arguments, **options)
                light.screened(stepped)
                return result
        watch.scale = 1.0
        if closes:
            return by_closure(arguments, options) if updates.kind is None else before_update(arguments, options)
        begins(watch, updates, inner)
        if watch.scale is None:  # later code detects a backward pass without a step
            return plain(*arguments, **options)
        watch.stages.enter(OPTIMIZER)
        result = plain(*arguments, **options)
        watch.stages.enter(NONE)
        ends(watch, updates, inner)
        return result

    def by_closure(arguments, options):
        """The closure computes the gradients, for LBFGS several times. Records the last ones, and no update."""
        watch._guarded(watch._begin_update, inner)
        watch.in_closure = True
        try:
            result = plain(*arguments, **options)
        finally:
            watch.in_closure = False
        watch._guarded(watch._observe_gradients, inner, True)
        watch._guarded(watch._end_update, inner)
        return result

    def before_update(arguments, options):
        """Lightning calls the replaced step in this way."""
        closures = []

        def wrapped(given):
            if not callable(given):
                return given
            closures.append(_Closure(watch, updates, inner, given))
            return closures[-1]

        result = plain(*map(wrapped, arguments), **{name: wrapped(given) for name, given in options.items()})
        returned = any(one.returned for one in closures)
        if light.on:
            if returned:
                light.screened(stepped) if light.screening else stepped()
            return result
        watch.stages.enter(NONE)
        if returned and watch.scale is not None:
            ends(watch, updates, inner)
        return result

    return step


def _by_hooks(watch, optimizer, updates):
    """Uses torch's own hooks, if a wrapper calls the step method that it has kept."""

    light = watch._light
    stepped, rows = light.keeper(optimizer), light.rows

    def before(*_):
        if watch.light is not None and (len(rows) != light.at or light.screens()):
            return
        watch.scale = 1.0
        begins(watch, updates, optimizer)

    def after(*_):
        if watch.light is not None:
            light.screened(stepped) if light.screening else stepped()
        elif watch.scale is not None:
            ends(watch, updates, optimizer)

    handles = (optimizer.register_step_pre_hook(before), optimizer.register_step_post_hook(after))
    return lambda: [handle.remove() for handle in handles]


def hook(watch, opened, updates):
    """Installs our methods; returns a function that removes them. `opened`: an unwrap.Opened."""
    optimizer, stepping, light = opened.inner, opened.stepping, watch._light
    cleared = stepping.zero_grad

    def zero_grad(self, *arguments, **options):
        if light.on:
            if not light.passes:
                light.zeroed = True
                return cleared(*arguments, **options) if arguments or options else cleared()
            light.leave()
        watch._guarded(watch._loop.cleared, optimizer, watch)
        result = cleared(*arguments, **options)
        watch._zeroed.add(id(optimizer))
        return result

    undo = [take_place(stepping, "zero_grad", cleared, zero_grad)]
    if opened.captured:
        undo.append(_by_hooks(watch, optimizer, updates))
    else:
        step = _stepping(watch, updates, stepping.step, optimizer)
        # torch's schedulers check whether they have wrapped it already.
        step.__dict__.update(getattr(stepping.step, "__dict__", {}))
        undo.append(take_place(stepping, "step", stepping.step, step))
    return lambda: [one() for one in undo]


def take_place(optimizer, name, plain, ours):
    method = types.MethodType(ours, optimizer)
    setattr(optimizer, name, method)

    def undo():
        if optimizer.__dict__.get(name) is method:
            setattr(optimizer, name, plain)

    return undo
