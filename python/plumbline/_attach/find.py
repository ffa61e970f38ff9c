"""Finds the model of an optimizer among the living objects. Reads types and the dictionaries of modules only: an attribute of another object may
run code of the trainer."""

import gc
import sys

from .._watching.frames import _engine
from .._watching.pieces import pieces_of
from .._watching.unwrap import Model, opened

_DEPTH = 12  # the most frames whose variables are searched
_WRAPPERS = ("MegatronOptimizer", "ChainedOptimizer", "_FabricOptimizer")  # wrappers that are no optimizers of torch


class Refused(Exception):
    """Why a process is not watched; printed as it is."""


class Living:
    """One look at the living objects: optimizers of torch.optim, frameworks' wrappers of them, and modules."""

    def __init__(self):
        torch = sys.modules["torch"]
        base, module = torch.optim.Optimizer, torch.nn.Module
        kinds = {}  # type -> the list that gets its objects, or None
        inner, self._wrappers, self.modules = [], [], []
        for one in gc.get_objects():
            kind = type(one)
            if kind not in kinds:
                wraps = any(each.__name__ in _WRAPPERS for each in kind.__mro__)
                kinds[kind] = inner if issubclass(kind, base) else self._wrappers if wraps else self.modules if issubclass(kind, module) else None
            if kinds[kind] is not None:
                kinds[kind].append(one)
        self._opened = [(one, opened(one)) for one in (*inner, *self._wrappers)]
        self.optimizers = [one for one, found in self._opened if any(each.inner is one for each in found)]

    def outermost(self, optimizer):
        """Returns the object that steps this optimizer: a framework's wrapper or container, or the optimizer itself."""
        around = [(len(found), len(found[0].wrappers), one) for one, found in self._opened
                  if one is not optimizer and any(each.inner is optimizer for each in found)]  # fmt: skip
        return max(around, key=lambda each: each[:2])[2] if around else optimizer

    def parameters(self, optimizer):
        """Returns the ids of the model's parameters that the optimizer, or the wrapper around it, updates."""
        return {id(p) for p in parameters_of(self.outermost(optimizer))}


def parameters_of(optimizer):
    """Returns the model's parameters that the given optimizer or wrapper updates."""
    held = []
    for one in opened(optimizer):
        pieces = next((found for found in map(pieces_of, reversed(one.wrappers)) if found), None)
        held += [piece.parameter for piece in pieces] if pieces else one.parameters()
    return held


def engine_of(optimizer):
    """Returns DeepSpeed's engine that steps the optimizer, or None."""
    return _engine(optimizer, None)


# ---- modules -------------------------------------------------------------------------------------


def _fields(module, name):
    """Returns a dictionary of the module without running code of its class."""
    try:
        return object.__getattribute__(module, "__dict__").get(name) or {}
    except Exception:
        return {}


def _of_frames(kind):
    """Returns the modules in the variables of the calling frames. After gc.freeze() the collector lists no older object."""
    found, frame = [], sys._getframe(1)
    for _ in range(_DEPTH):
        frame = frame.f_back
        if frame is None:
            break
        for value in list(frame.f_locals.values()):
            fields = vars(value).values() if type(value).__module__ == "__main__" and hasattr(value, "__dict__") else ()
            found += [one for one in (value, *fields) if issubclass(type(one), kind)]
    return found


class Modules:
    """The living modules."""

    def __init__(self, living, ours=()):
        """ours: ids of modules that are no part of the trainer."""
        found = {id(one): one for one in (*living.modules, *_of_frames(sys.modules["torch"].nn.Module)) if id(one) not in ours}
        inside = {id(child) for one in found.values() for child in _fields(one, "_modules").values()}
        self.roots = [one for one in found.values() if id(one) not in inside]
        self._held = {id(root): self._parameters(root) for root in self.roots}

    def _parameters(self, root):
        """Returns the ids of all parameters in the module."""
        ids, seen, waiting = set(), set(), [root]
        while waiting:
            one = waiting.pop()
            if one is None or id(one) in seen:
                continue
            seen.add(id(one))
            ids.update(id(p) for p in _fields(one, "_parameters").values() if p is not None)
            waiting += _fields(one, "_modules").values()
        return ids

    def holds(self, root):
        """Returns the ids of the parameters of a root. A wrapper that hides its module in an attribute of its own holds none."""
        return self._held.get(id(root)) or self._parameters(root)

    def held(self):
        """Returns the ids of the parameters of all modules."""
        return set().union(*self._held.values()) if self._held else set()

    def owners(self, ids):
        """Returns the modules that own the parameters `ids`, as few as possible, and how many other modules own as many as the first."""
        left, owners, equal = set(ids), [], 0
        while left:
            counts = [(len(left & self._held[id(root)]), root) for root in self.roots]
            most = max((count for count, _ in counts), default=0)
            if most == 0:
                break
            best = [root for count, root in counts if count == most]
            if not owners:
                equal = sum(left & self._held[id(root)] == left & self._held[id(best[0])] for root in best) - 1
            owners.append(max(best, key=self._rank))
            left -= self._held[id(owners[-1])]
        return owners, equal

    def _rank(self, root):
        """Orders modules that own equally many parameters: a wrapper first, then the smaller one, whose forward is more likely the trained one."""
        return Model(root).module is not root, -len(self._held[id(root)])


def describe(module):
    """Returns "Net", or "DistributedDataParallel(Net)"."""
    inner = Model(module).module
    name = type(inner).__name__
    return name if inner is module else f"{type(module).__name__}({name})"
