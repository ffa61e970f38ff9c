"""Finds the optimizers and the model inside of the objects that a framework gives to its user."""

import gc
import inspect
import sys

from .._compiled import is_compiled, unwrapped
from .._tensors import local
from .ddp import around, is_ddp

_DEPTH = 8  # the most wrappers around one another
_CAPTURED = "_optimizer_original_step_method"  # an attribute of accelerate's wrapper, if it has a scaler
_OWN_STEP = ("ZeroRedundancyOptimizer",)  # this wrapper sends weights after the inner step, so its own step is hooked


class Opened:
    """One optimizer of torch.optim. `stepping`: the object whose step() makes the complete update; else `inner`
    itself.

    `captured`: whether the wrapper has kept inner.step. Then a method that replaces inner.step is not called, and
    torch's own hooks are used. `frame`: an object of frames.py, if the framework's step consists of steps of this
    optimizer. `pieces`: the tensors that the optimizer holds in the place of parameters. `elsewhere`: parameters that
    the optimizers of other ranks hold, for this rank too.
    """

    __slots__ = ("inner", "stepping", "captured", "wrappers", "frame", "pieces", "elsewhere")

    def __init__(self, inner, stepping, captured, wrappers):
        self.inner, self.stepping, self.captured, self.wrappers = inner, stepping, captured, wrappers
        self.frame, self.pieces, self.elsewhere = None, [], []

    def groups(self):
        """Returns the optimizer's parameter groups. The inner optimizer of ZeroRedundancyOptimizer holds only those of
        this rank."""
        return getattr(self.stepping, "param_groups", self.inner.param_groups)

    def parameters(self):
        """Returns the model's parameters that this optimizer updates, even if it holds only copies or parts of them."""
        return [piece.parameter for piece in self.pieces] or [p for group in self.groups() for p in group["params"]]

    def graded(self, ids):
        """Returns those of `ids` that have a gradient. If a framework keeps gradients in its own buffer, zeros do not
        count."""
        if self.frame is None:
            return [p for p in self.parameters() if p.grad is not None and id(p) in ids]
        held = [(piece.parameter, piece) for piece in self.pieces] or [(p, p) for p in self.parameters()]
        return [p for p, piece in held if id(p) in ids and piece.grad is not None and bool(local(piece.grad).any())]


def held_by(found):
    """Returns the ids of the parameters that optimizers hold."""
    return {id(p) for one in found for p in one.parameters()}


def held_elsewhere(found):
    """Returns the ids of the parameters that other ranks' optimizers hold, and none here."""
    return {id(p) for one in found for p in one.elsewhere} - held_by(found)


def _inside(optimizer, base):
    """Returns the optimizers that the object wraps; empty if it wraps none."""
    chained = getattr(optimizer, "chained_optimizers", None)  # Megatron-core
    if chained is not None:
        return list(chained)
    for name in ("optimizer", "optim"):
        inner = inspect.getattr_static(optimizer, name, None)
        inner = getattr(optimizer, name, None) if inner is not None else None
        if inner is not None and inner is not optimizer and hasattr(inner, "step"):
            return [inner]
    if hasattr(type(optimizer), "__iter__"):  # torchtitan's container
        held = list(optimizer)
        if held and all(isinstance(one, base) or hasattr(one, "optimizer") for one in held):
            return held
    return []


def _open(optimizer, base, wrappers, stepping, captured):
    inside = _inside(optimizer, base) if len(wrappers) < _DEPTH else []
    if not inside:
        return [Opened(optimizer, stepping or optimizer, captured, wrappers)] if isinstance(optimizer, base) else []
    if stepping is None and type(optimizer).__name__ in _OWN_STEP:
        stepping = optimizer
    captured |= hasattr(optimizer, _CAPTURED)
    return [one for each in inside for one in _open(each, base, (*wrappers, optimizer), stepping, captured)]


def opened(optimizer):
    """Returns [Opened] of the given object: an optimizer, a wrapper of one, a container, or a list. Empty if the object has no optimizer of
    torch.optim."""
    base = sys.modules["torch"].optim.Optimizer
    given = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
    found, known = [], set()
    for each in given:
        for one in _open(each, base, (), None, False) if each is not None else ():
            if id(one.inner) not in known:
                known.add(id(one.inner))
                one.captured = (one.captured or _is_captured(one.inner)) and hasattr(base, "register_step_pre_hook")
                found.append(one)
    return found


def _is_captured(optimizer):
    """Returns whether a living wrapper of accelerate's, which the caller did not pass, has captured it."""
    kind = getattr(sys.modules.get("accelerate.optimizer"), "AcceleratedOptimizer", None)
    alive = gc.get_objects() if kind is not None else ()
    return any(type(one) is kind and hasattr(one, _CAPTURED) and one.optimizer is optimizer for one in alive)


def inner_ids(optimizer):
    return {id(one.inner) for one in opened(optimizer)}


class Model:
    """`given`: the object that the trainer calls. `ddp`: the DistributedDataParallel around this object or in it, or
    None. `module`: the module that the trainer wrote."""

    def __init__(self, given):
        self.given, self.ddp, self.compiled = given, None, False
        at = given
        for _ in range(_DEPTH):
            self.compiled |= is_compiled(at)
            if is_ddp(at):
                self.ddp = at
            inner = _module_in(at)
            if inner is None:
                break
            at = inner
        self.module = at
        if self.ddp is None:  # the given object may be a LightningModule, or the object that a callback gets
            self.ddp = around(at)
            self.given = given if self.ddp is None else self.ddp


def _module_in(module):
    """Returns the wrapped object, or None."""
    if unwrapped(module) is not module:
        return unwrapped(module)
    if is_ddp(module) or _is_wrapper(module):
        return module.module
    inner = module._modules.get("_forward_module")  # Fabric's wrapper; its .module is the model before a strategy wrapped it
    if inner is not None and type(module).__name__ == "_FabricModule":
        return inner
    return None


def _is_wrapper(module):
    """Returns whether the object is DeepSpeed's engine, or Megatron-core's DistributedDataParallel, Float16Module or
    similar."""
    if "module" not in module._modules:
        return False
    return type(module).__module__.startswith("megatron.core.") or any(kind.__name__ == "DeepSpeedEngine" for kind in type(module).__mro__)


def holders(parameters, known=()):
    """Returns living optimizers that hold some of the parameters: inner ones that are not in `known`, ids of inner
    ones."""
    base, ids = sys.modules["torch"].optim.Optimizer, {id(p) for p in parameters}
    alive = [one for one in gc.get_objects() if issubclass(type(one), base)]  # reads only types, because an attribute of an object may run code
    mine = [o for o in alive if any(id(p) in ids for group in getattr(o, "param_groups", ()) for p in group["params"])]
    wrapped = {inner for o in mine for inner in inner_ids(o) if inner != id(o)}
    return [o for o in mine if id(o) not in wrapped and not (inner_ids(o) | {id(o)}) & set(known)]
