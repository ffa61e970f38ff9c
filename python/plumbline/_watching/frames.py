"""The step of a framework that consists of steps of inner optimizers: DeepSpeed's engine.step, Megatron-core's
optimizer.step.

The inner optimizers step once for each group, for each part of one, or not at all. The framework counts the steps.
"""

import gc
import sys
import types
from threading import get_ident
from time import thread_time, thread_time_ns

from .._library import NO_STEP
from .copies import megatron_wrapper
from .pieces import pieces_of, spread_of
from .stages import NONE, NOW, OPTIMIZER


class _Megatron:
    """`owner`: the outermost optimizer, usually a ChainedOptimizer. Its step() returns (whether the step was made, norm
    before the clip, number of zeros)."""

    is_light = False  # its steps may be light

    def __init__(self, owner, model):
        """model: an unwrap.Model."""
        self.owner, self._config = owner, getattr(model.module, "config", None)
        self.wrapper = megatron_wrapper(model.given)

    def will_step(self):
        return True

    def made(self, result):
        return bool(result[0]) if isinstance(result, tuple) and result else True

    def norm(self, result):
        norm = result[1] if isinstance(result, tuple) and len(result) > 1 else None
        return norm or None  # if the norm is 0.0, the optimizer does not clip and has not computed one

    def scale(self):
        """Returns the factor by which the loss that backward gets is too large."""
        scaled = getattr(self._config, "grad_scale_func", None) is not None
        return float(self.owner.get_loss_scale()) if scaled else 1.0


class _DeepSpeed:
    """`owner`: the engine, which counts its steps, including those that it skips."""

    is_light = True

    def __init__(self, owner):
        self.owner, self._before = owner, (0, 0)

    def will_step(self):
        self._before = (self.owner.global_steps, self.owner.skipped_steps)
        return self.owner.is_gradient_accumulation_boundary() or not self._managed()

    def _managed(self):
        managed = getattr(self.owner, "managed_gradient_accumulation", None)
        return managed is None or managed()

    def made(self, _result):
        """Returns None after a micro-batch of a step that is not complete."""
        steps, skipped = self._before
        if self.owner.global_steps == steps:
            return None
        return self.owner.skipped_steps == skipped

    def norm(self, _result):
        norm = self.owner.get_global_grad_norm()
        return norm if not hasattr(norm, "device") or norm.device.type == "cpu" else None

    def scale(self):
        return 1.0  # these are arguments of engine.backward

    def loss(self, loss, scale_wrt_gas=True):
        """Returns the argument of engine.backward; these losses of a step add up to their mean."""
        passes = self.owner.gradient_accumulation_steps() if scale_wrt_gas else 1
        return loss.detach() if passes == 1 else loss.detach() / passes


def _is_kind(one, name):
    return any(kind.__name__ == name for kind in type(one).__mro__)


def _engine(optimizer, model):
    """Returns the DeepSpeed engine that steps the optimizer: the given model, or a living engine."""
    if "deepspeed" not in sys.modules:
        return None
    if _is_kind(model, "DeepSpeedEngine"):
        return model
    for one in gc.get_objects():
        if not _is_kind(one, "DeepSpeedEngine"):
            continue
        if any(one.__dict__.get(name) is optimizer for name in ("optimizer", "basic_optimizer")):
            return one
    return None


def own_optimizer(model):
    """Returns the optimizer that DeepSpeed's engine steps; else None."""
    return getattr(model, "optimizer", None) if _is_kind(model, "DeepSpeedEngine") else None


def complete(found, model):
    """Gives each unwrap.Opened its frame and its pieces. model: an unwrap.Model."""
    frames = {}
    for one in found:
        wrappers = list(one.wrappers)
        owner = next((each for each in wrappers if _is_kind(each, "MegatronOptimizer")), None)
        engine = None if owner is not None else _engine(wrappers[-1] if wrappers else one.inner, model.given)
        if engine is not None:
            wrappers.append(engine.optimizer)  # the trainer may have given the inner optimizer
        if owner is not None or engine is not None:
            known = frames.get(id(owner or engine))
            made = known or (_Megatron(owner, model) if engine is None else _DeepSpeed(engine))
            one.frame = frames[id(owner or engine)] = made
            one.pieces = next((pieces for pieces in map(pieces_of, reversed(wrappers)) if pieces), [])
            one.elsewhere = next((spread for spread in map(spread_of, reversed(wrappers)) if spread), [])


def _take_place(owner, name, ours):
    plain = getattr(owner, name)
    had = owner.__dict__.get(name)
    method = types.MethodType(ours(plain), owner)
    object.__setattr__(owner, name, method)

    def undo():
        if owner.__dict__.get(name) is method:
            if had is None:
                object.__delattr__(owner, name)
            else:
                object.__setattr__(owner, name, had)

    return undo


def _takes(light, loss):
    """Called in a light step before a pass of the framework. Counts it. `loss`: without a scale; None: not known. Returns
    False if the step must be a whole one."""
    value = None
    if loss is not None and light.passes < light.most and get_ident() == light.thread:
        try:
            value = loss.item()
        except Exception:  # the framework raises the error
            pass
    if value is None or not value <= light.alarm:
        light.leave()
        return False
    light.fronted.begun = False
    light.passes += 1
    light.loss += value
    light.marks[NOW], light.marked = light.mark, True
    return True


class Framed:
    """The hooks of one frame in a watch."""

    def __init__(self, watch, frame, parts):
        """parts: [(unwrap.Opened, Updates)] of the inner optimizers."""
        self._watch, self._frame, self._parts = watch, frame, parts
        self._undo = [_take_place(frame.owner, "step", self._stepping)]
        if hasattr(frame, "loss"):
            self._undo.append(_take_place(frame.owner, "backward", self._backward))
        for opened, updates in parts:
            self._undo.append(self._hook(opened.inner, updates))

    def _stepping(self, plain):
        watch, light, frame = self._watch, self._watch._light, self._frame
        stepped = light.keeper(self._parts[0][0].inner)

        def step(_owner, *arguments, **options):
            steps = True
            began = thread_time_ns()
            try:
                steps = frame.will_step()
                if steps and not light.on:
                    watch.frame_begins()
                    watch.stages.enter(OPTIMIZER)
            except Exception as error:  # no error of this package may end the trainer's step
                watch._failed("frame", error)
            watch.budget.spent += 0 if light.on else thread_time_ns() - began
            result = plain(*arguments, **options)
            if steps:
                self._light_ends(result, stepped) if light.on else self._whole_ends(result)
            return result

        return step

    def _whole_ends(self, result):
        watch = self._watch
        watch.ends_began = thread_time_ns()
        watch.stages.enter(NONE)
        watch._guarded(self._ends, result)
        if watch.ends_began is not None:  # the step continues
            watch.budget.spent += thread_time_ns() - watch.ends_began
            watch.ends_began = None

    def _light_ends(self, result, stepped):
        light = self._watch._light
        try:
            made = self._frame.made(result)
            if made:
                norm = self._frame.norm(result)
                stepped(None if norm is None else float(norm))
            elif made is not None:  # skipped: there is no update
                light.leave()
                self._ends(result)
        except Exception as error:
            light.failed(error)

    def _ends(self, result):
        made = self._frame.made(result)
        if made is not None:
            inner = [opened.inner for opened, _ in self._parts]
            self._watch.frame_ends(inner, made, self._frame.norm(result))

    def _backward(self, plain):
        watch, light, frame = self._watch, self._watch._light, self._frame

        def backward(_owner, loss, *arguments, **options):
            given = None
            try:
                given = frame.loss(loss, options.get("scale_wrt_gas", arguments[1] if len(arguments) > 1 else True))
            except Exception as error:
                watch._failed("engine's loss", error)
            if light.on and not light.running and _takes(light, given):
                light.running = True
                try:
                    return plain(loss, *arguments, **options)
                finally:
                    light.running = False
            loop = watch._loop
            loop.given_loss = given
            try:
                return plain(loss, *arguments, **options)
            finally:
                loop.given_loss = None

        return backward

    def _hook(self, optimizer, updates):
        watch, light = self._watch, self._watch._light

        def before(*_):
            if not light.on:
                watch._counted(self._before_inner, optimizer, updates)

        def after(*_):
            if updates.kept:
                watch._counted(watch._charged, updates.after)

        handles = (optimizer.register_step_pre_hook(before), optimizer.register_step_post_hook(after))
        return lambda: [handle.remove() for handle in handles]

    def _before_inner(self, optimizer, updates):
        try:
            self._watch.observe_framed(optimizer)
        finally:  # an error in one observation does not prevent the others
            if self._watch.framed_due:
                watch = self._watch
                watch._charged(updates.before, 1.0, True, watch._looks.chosen(watch._run._step))

    def remove(self):
        for one in reversed(self._undo):
            one()


class FrameworkSteps:
    """The part of Watch that a framework's step calls. The attributes are made by Watch."""

    def frame_scale(self):
        """Returns the factor by which a framework has scaled the loss, if torch's scalers do not show it."""
        return next((frame.scale() for frame in self._frames.values()), 1.0)

    def framework_steps(self):
        """Returns the steps that each framework has counted."""
        owners = [frame.owner for frame in self._frames.values()]
        return [owner.global_steps for owner in owners if hasattr(owner, "global_steps")]

    def frame_begins(self):
        """Called when its inner optimizers are about to step, each perhaps several times: checks once what is due."""
        if self._run._step == NO_STEP:
            self._loop.open()
        step = self._run._step
        chosen = self._looks.chosen(step)
        self.scale = 1.0
        self.framed_due = any(self.updates_due(updates, step) for updates in self._updates.values())
        self._gradients.frame_begins(chosen)
        if self._pace.due(step):
            began = thread_time()
            self._ratio.before()
            self._screening = thread_time() - began

    def observe_framed(self, optimizer):
        """Called before a step of an inner optimizer."""
        if self._untrained.looks:
            self._guarded(self._untrained.before_update, optimizer)
        step = self._run._step
        self._gradients.observe(optimizer, self._pace.due(step), 1.0, chosen=self._looks.chosen(step))

    def frame_ends(self, optimizers, made, norm):
        """Called after the framework's step. `made`: False if the framework skipped the step."""
        self._gradients.frame_ends(made, norm)
        if made:
            for one in optimizers:
                self._end_update(one)
        elif self._loop.backwards and not self._loop.stepped:
            self._loop.close()
