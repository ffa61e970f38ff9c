"""Checks whether .grad was cleared: some elements that a step left in it, and the values that the next step found
there.

A gradient that was not cleared counts only once an update has used it: the generator's backward pass adds to the
discriminator's gradient, which is cleared before the discriminator's own pass.
"""

import sys

_PLACES = 128  # number of elements that are read of one parameter
_CLEARED = 2  # the most records of cleared gradients per parameter; gradients that were not cleared are always recorded


class LeftGradient:
    """The left gradient of one parameter, from the end of a step to the first addend of the next."""

    def __init__(self, parameter):
        self._parameter = parameter
        self._places = self._kept = self._version = None
        self._waiting = self._waits_since = None  # a gradient that was not cleared; the version of the parameter at that time
        self._cleared = 0

    def added(self):
        """Called before each addend. Keeps the parameter's version, which a later update changes."""
        self._version = self._parameter._version
        if self._waiting is not None and not bool(self._elements().ne(0).any()):
            self._waiting = None  # cleared before an update used it

    def forget(self):
        """Called before steps that are not observed."""
        self._kept = self._version = self._waiting = self._waits_since = None

    def used(self):
        """Returns (places, left, found) of a gradient that was not cleared, if an update has used it since; else
        None."""
        if self._waiting is None or self._parameter._version == self._waits_since:
            return None
        used, self._waiting = self._waiting, None
        return used

    def step_ends(self, due):
        """Keeps the elements if `due`: the next step is due too. The optimizer used these values: they are clipped and
        unscaled."""
        self._kept = self._elements() if due else None

    def found(self):
        """Returns (places, left, found) of a gradient that was cleared, before the step's first addend, or None.

        Also returns None if no update of the weights was made in between: then the sum continues on purpose.
        """
        left, self._kept = self._kept, None
        if left is None or self._version in (None, self._parameter._version):
            return None
        now = self._elements()
        if now is None or now.dtype != left.dtype:
            return None
        if not bool(now.ne(0).any()):
            self._cleared += 1
            return None if self._cleared > _CLEARED else (self._places, left, now)
        self._waiting, self._waits_since = (self._places, left, now), self._parameter._version
        return None

    def _elements(self):
        """Returns the elements. A cleared gradient is zero. None: the gradient has no elements of its own (sparse)."""
        torch = sys.modules["torch"]
        total, flat = self._parameter.grad, self._parameter.detach().reshape(-1)
        if total is not None and total.layout is not torch.strided:
            return None
        if self._places is None:
            stride = max(1, flat.numel() // _PLACES)
            self._places = torch.arange(0, flat.numel(), stride, device=flat.device)[:_PLACES]
        if total is None:
            return torch.zeros(len(self._places), dtype=flat.dtype, device=flat.device)
        return total.detach().reshape(-1).index_select(0, self._places)
