"""Several optimizers, each with a backward pass of its own: does one of them get what the loss of another has left in its gradients? The
evidence of precision/stale-gradient for a game whose sides are not kept apart."""

import itertools
import sys

_FIRST = 8  # steps that are looked at; then powers of two
_ELEMENTS, _PARAMETERS = 64, 4


class Sides:
    """Of one run's loop. All of its steps, or none, have passes of several optimizers."""

    def __init__(self, run):
        self._run, self._steps = run, 0
        self._left, self._found = {}, {}  # by id of an optimizer: its gradients before a pass; (cosine, share) of that pass

    def backward_begins(self, watches, stepped):
        """The first pass after an update of `stepped`, ids of optimizers: what lies in the gradients of the others?"""
        self._left.clear()
        self._steps += 1
        if self._steps > _FIRST and self._steps & (self._steps - 1):
            return
        for watch in watches:
            for optimizer in watch.optimizers:
                some = () if id(optimizer) in stepped else _graded(optimizer)
                if some:
                    left = _sample(some)
                    if bool(left.any()):
                        self._left[id(optimizer)] = some, left

    @property
    def open(self):
        return bool(self._left)

    def backward_ends(self):
        left, self._left = self._left, {}
        for of, (some, before) in left.items():
            if all(p.grad is not None for p in some):
                added = _sample(some) - before
                size, most = float(before.norm()), float(added.norm())
                if size > 0 and most > 0:  # NaN is neither
                    self._found[of] = float(before @ added) / (size * most), size / most

    def before_update(self, optimizer):
        """With these gradients, unless they were cleared since."""
        found = self._found.pop(id(optimizer), None)
        if found is not None and _graded(optimizer):
            self._run._own_scalar("left/cosine", found[0])
            self._run._own_scalar("left/share", found[1])


def _graded(optimizer):
    """Some parameters whose gradients are not zero."""
    held = (p for group in optimizer.param_groups for p in group["params"])
    plain = (p for p in held if type(p.grad).__name__ == "Tensor" and not p.grad.is_sparse)
    return list(itertools.islice((p for p in plain if bool(p.grad.any())), _PARAMETERS))


def _sample(some):
    return sys.modules["torch"].cat([p.grad.detach().reshape(-1)[:_ELEMENTS] for p in some]).double()
