"""Averages of a model's weights (EMA) that the trainer keeps in addition to the model: the evidence of
precision/ema-stall.

No hook reports them. In the step before a due one, this module observes torch's in-place operations from the update
to the next forward pass. If a tensor has the shape of a weight, it repeats the operation in double precision. The
tensor is an average if its new value lies between its old value and the weight, by the same share for all elements.
"""

import sys
from threading import get_ident

from .._compiled import compiles
from .._kinds import KIND_UPDATE
from .._tensors import local

_ELEMENTS, _MOST, _MOST_TENSORS = 4096, 64, 2048
_METHODS = ("lerp_", "mul_", "add_", "sub_", "copy_")
_FIRST = 4  # the first step in which averages are searched: earlier steps already have the highest cost
_CLOSE = 1e-3  # tolerance of the share, between elements
_ROUNDING = 2.0**-22  # tolerance of a copied value, if it was computed in single precision


def _block(tensor):
    return tensor.detach().reshape(-1)[:_ELEMENTS]


class _Touched:
    """A tensor that was changed in place. `shadow`: its value without rounding."""

    __slots__ = ("tensor", "before", "shadow", "from_weight", "share")

    def __init__(self, tensor):
        self.tensor, self.before, self.from_weight, self.share = tensor, _block(tensor).clone(), None, None
        self.shadow = self.before.double()

    def take(self, name, arguments, options, declared):
        """Repeats one operation. `declared`: the share of the weight in an AveragedModel's own update, or None."""
        if declared is not None and name == "copy_":  # the share of the value that it computes, in the type of the average
            self.share, self.shadow = declared, self._value(arguments[0])
            return
        other = arguments[0] if arguments else options.get("other", options.get("end"))
        value = self._value(other)
        if value is None:
            self.shadow = None
        elif name == "copy_":
            self.shadow = value
        elif name == "mul_":
            self.shadow = self.shadow * value
        elif name == "lerp_":
            share = arguments[1] if len(arguments) > 1 else options.get("weight")
            share = self._value(share)
            self.shadow = None if share is None else self.shadow + share * (value - self.shadow)
            self.share = None if share is None else float(share)
        else:
            factor = float(options.get("alpha", 1)) * (1 if name == "add_" else -1)
            self.shadow = self.shadow + factor * value
            self.share = factor if "alpha" in options else None

    def _value(self, other):
        if isinstance(other, (int, float)):
            return float(other)
        if not hasattr(other, "detach") or other.device != self.tensor.device:
            return None
        if other.numel() == 1:
            return other.detach().double().reshape(())
        if other.shape != self.tensor.shape:
            return None
        self.from_weight = other.data_ptr() if self.from_weight is None else self.from_weight
        return _block(other).double()


class Averages:
    """Finds the averages of one watch's weights."""

    armed = None  # the object of this process that observes operations now

    def __init__(self, run, model, prefix):
        self._run, self._model, self._prefix = run, model, prefix
        self._touched, self._thread, self._undo, self.seen = {}, None, (), []
        self._reported = {}  # name -> due word
        self._weights, self._declared = (), None
        self._empty = 0  # number of searches that found no average
        self._next = self._doubled = _FIRST

    @property
    def known(self):
        """Returns whether averages were found."""
        return bool(self._reported)

    # ---- when ----------------------------------------------------------------------------------

    def wants(self):
        """Returns whether averages are due in the next step. If none were found so far, they are seldom due."""
        step = self._run._next_step
        if step < self._next:
            return False
        self._next = step + 1
        if self._reported:
            return any(word[0] <= step for word in self._reported.values())
        due = step >= self._doubled
        if due:
            self._doubled = 1 << step.bit_length()
        return due and self._empty < _MOST

    def arm(self):
        if Averages.armed is not None or compiles():
            return
        Averages.armed, self._thread, self._touched = self, get_ident(), {}
        self._weights = [(self._prefix + name, local(p)) for name, p in self._model.named_parameters() if p.is_floating_point()]
        self._shapes = {p.shape for _, p in self._weights}
        self._own = {p.data_ptr() for _, p in self._weights}
        torch, undo = sys.modules["torch"], []
        for name in _METHODS:
            undo.append(self._take_place(torch.Tensor, name, self._method(name, getattr(torch.Tensor, name))))
            many = getattr(torch, f"_foreach_{name}", None)
            if many is not None:
                undo.append(self._take_place(torch, f"_foreach_{name}", self._foreach(name, many)))
        averaged = getattr(sys.modules.get("torch.optim.swa_utils"), "AveragedModel", None)
        if averaged is not None:
            undo.append(self._take_place(averaged, "update_parameters", self._averaged(averaged.update_parameters)))
        self._undo = undo

    def _averaged(self, plain):
        def update_parameters(module, model):
            if get_ident() == self._thread:
                self._declared = self._share_of(module)
            try:
                return plain(module, model)
            finally:
                self._declared = None

        return update_parameters

    def _share_of(self, module):
        """Returns the share of the weight in an average's function, from its results for 0 and 1."""
        torch = sys.modules["torch"]
        thread, self._thread = self._thread, None
        try:
            if getattr(module, "avg_fn", None) is None or not int(module.n_averaged):
                return None
            of = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64), module.n_averaged.clone()
            share = float(module.avg_fn(*of))
            return share if 0 < share < 1 else None
        except Exception:  # the average's function does not accept numbers
            return None
        finally:
            self._thread = thread

    @staticmethod
    def _take_place(owner, name, ours):
        had, plain = name in owner.__dict__, owner.__dict__.get(name)
        setattr(owner, name, ours)
        return lambda: setattr(owner, name, plain) if had else delattr(owner, name)

    def disarm(self):
        """Keeps the averages that were found until the end of the next step."""
        if Averages.armed is not self:
            return
        Averages.armed = None
        undo, self._undo = self._undo, ()
        for one in undo:
            one()
        touched, self._touched = [one for one in self._touched.values() if one.shadow is not None], {}
        self.seen = self._matched(touched)
        self._weights = ()
        self._empty = 0 if self.seen else self._empty + 1

    # ---- changed tensors -----------------------------------------------------------------------

    def _method(self, name, plain):
        def method(tensor, *arguments, **options):
            if get_ident() == self._thread:
                self._take(name, tensor, arguments, options)
            return plain(tensor, *arguments, **options)

        return method

    def _foreach(self, name, plain):
        def many(tensors, *arguments, **options):
            if get_ident() == self._thread:
                for number, tensor in enumerate(tensors):
                    mine = tuple(a[number] if isinstance(a, (list, tuple)) else a for a in arguments)
                    self._take(name, tensor, mine, options)
            return plain(tensors, *arguments, **options)

        return many

    def _take(self, name, tensor, arguments, options):
        try:
            if tensor.shape not in self._shapes or not tensor.is_floating_point() or len(self._touched) >= _MOST_TENSORS:
                return
            at = tensor.data_ptr()
            if at in self._own:
                return
            thread, self._thread = self._thread, None  # our own operations here are not the trainer's
            try:
                one = self._touched.get(at)
                if one is None:
                    one = self._touched[at] = _Touched(tensor)
                if one.shadow is not None:
                    one.take(name, arguments, options, self._declared)
            finally:
                self._thread = thread
        except Exception:  # an operation that raises is not understood
            self._touched.pop(at, None) if "at" in locals() else None

    # ---- whether they are averages -------------------------------------------------------------

    def _matched(self, touched):
        """Returns [(name, before, after, intended, decay)] of the tensors that are the average of a weight."""
        by_place = {p.data_ptr(): (name, p) for name, p in self._weights}
        waiting = list(self._weights)
        found = []
        for one in touched:
            pair = by_place.get(one.from_weight)
            if pair is None:  # the next weight of that shape: averages are updated in the model's order
                pair = next(((name, p) for name, p in waiting if p.shape == one.tensor.shape), None)
            if pair is None:
                continue
            waiting = [other for other in waiting if other[1] is not pair[1]]
            share = self._share(one, _block(pair[1]))
            if share is not None:
                found.append((pair[0], one.before, _block(one.tensor).clone(), one.shadow - one.before.double(), 1 - share))
        return found[:_MOST]

    @staticmethod
    def _share(one, weight):
        if weight.device != one.before.device:
            return None
        before = one.before.double()
        apart, moved = weight.double() - before, one.shadow - before
        square, size = float(apart @ apart), float(before.norm())
        share = one.share or (float(apart @ moved) / square if square > 0 else 0.0)
        if not 0 < share < 1:
            return None
        wrong = float((moved - share * apart).norm())
        if one.share:  # the weight may have been rounded to the average's type before
            eps = sys.modules["torch"].finfo(one.tensor.dtype).eps
            rounding = share * eps * float(weight.double().norm())
            if wrong <= eps * size:  # the copied value was rounded before
                one.shadow = before + share * apart
                return share
        else:
            rounding = _ROUNDING * size if float(moved.norm()) > 4 * _ROUNDING * size else 0.0
        return share if wrong <= max(_CLOSE * float(moved.norm()), rounding) else None

    # ---- records -------------------------------------------------------------------------------

    def step_ends(self):
        """Records the averages in the open step."""
        seen, self.seen = self.seen, []
        run = self._run
        with run.together():
            for name, before, after, intended, decay in seen:
                layer = f"average.{name}"
                if layer not in self._reported:
                    self._reported[layer] = run._site(KIND_UPDATE, layer, "update").word
                run.observe_update(layer, before, after, intended, optimizer="ema", decay=decay)

    def remove(self):
        self.disarm()
        self.seen = []
