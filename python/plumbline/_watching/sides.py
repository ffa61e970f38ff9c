"""If several optimizers each have their own backward pass, checks whether one gets gradients that the loss of another
has left. The evidence of precision/stale-gradient for trainers, as of GANs, in which models get each other's gradients
by mistake."""

import itertools
import sys

_ELEMENTS, _PARAMETERS = 64, 4
_COVERED, _LOOKED_AT = 64, 4096  # the most parameters that are checked; the most elements that are read of each


class Sides:
    """The optimizers of one run's loop, each with its own passes. Either all steps of the loop, or none, have passes of
    several optimizers."""

    def __init__(self, run):
        self._run, self._steps = run, 0
        self._left, self._found = {}, {}  # id of an optimizer -> the gradients that a pass finds; id -> (cosine, share) of that pass

    def backward_begins(self, watches, stepped):
        """Called for the first pass after an update of `stepped`, ids of optimizers. Reads the gradients of the
        others."""
        self._left.clear()
        self._steps += 1
        if not _looks(self._steps):
            return
        optimizers = [optimizer for watch in watches for optimizer in watch.optimizers]
        for optimizer in optimizers:
            some = () if id(optimizer) in stepped else _graded(optimizer)
            if some:
                left = _sample(some)
                if bool(left.any()):
                    others = [(one, _touched(one)) for one in optimizers if one is not optimizer]
                    self._left[id(optimizer)] = optimizer, some, left, _bare(optimizer), others

    @property
    def open(self):
        return bool(self._left)

    def backward_ends(self):
        """Compares the gradients that a pass found with those that it added. Ignores a pass that also trains other
        optimizers' parameters, or parameters that the other loss did not reach. Such a pass is one of several tasks:
        they share layers, whose gradients add up on purpose."""
        left, self._left = self._left, {}
        for of, (optimizer, some, before, bare, others) in left.items():
            if any(p.grad is None for p in some) or any(_touched(one) != seen for one, seen in others):
                continue
            if any(_moves(p.grad) for p in bare):
                continue
            added = _sample(some) - before
            size, most = float(before.norm()), float(added.norm())
            if size > 0 and most > 0:  # this is false for NaN
                self._found[of] = float(before @ added) / (size * most), size / most

    def before_update(self, optimizer):
        """Called for an update with these gradients, unless they were cleared since."""
        found = self._found.pop(id(optimizer), None)
        if found is not None and _graded(optimizer):
            self._run._own_scalar("left/cosine", found[0])
            self._run._own_scalar("left/share", found[1])


def _looks(number):
    """Returns whether a step is sampled: 1, 2, 3, 4, 6, 8, 12, 16, 24, ... Few of them are first steps, whose weights are
    still random."""
    while number > 3 and number % 2 == 0:
        number //= 2
    return number <= 3


def _plain(optimizer):
    held = (p for group in optimizer.param_groups for p in group["params"])
    return (p for p in held if type(p.grad).__name__ in ("Tensor", "NoneType") and not getattr(p.grad, "is_sparse", False))


def _moves(gradient):
    return gradient is not None and bool(gradient.detach().reshape(-1)[:_LOOKED_AT].any())


def _graded(optimizer):
    """Returns some parameters whose gradients are not zero."""
    return list(itertools.islice((p for p in _plain(optimizer) if p.grad is not None and bool(p.grad.any())), _PARAMETERS))


def _bare(optimizer):
    """Returns the optimizer's parameters whose gradients are zero."""
    return [p for p in itertools.islice(_plain(optimizer), _COVERED) if not _moves(p.grad)]


def _touched(optimizer):
    """Returns a value that changes if a pass adds to the optimizer's gradients."""
    held = itertools.islice(_plain(optimizer), _COVERED)
    return [None if p.grad is None else (p.grad._version, float(p.grad.detach().reshape(-1)[:_ELEMENTS].double().sum())) for p in held]


def _sample(some):
    return sys.modules["torch"].cat([p.grad.detach().reshape(-1)[:_ELEMENTS] for p in some]).double()
