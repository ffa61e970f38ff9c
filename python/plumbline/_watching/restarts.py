"""Counts the steps of an optimizer's state, to find whether the state starts again within the run, or in a process that continues with the weights of
another. The evidence of health/optimizer-state."""

import math
from collections import deque

_LOOKED_AT = 4  # the most parameters of an optimizer whose state is read
_ENOUGH = 8  # the fewest steps before a restart
# The first level is the mean of this many losses; the recent level is that of this many newest losses, recorded at
# powers of two.
_FIRST_LOSSES, _RECENT = 3, 8


def _kept(optimizer):
    """Returns whether the optimizer's state of a parameter is more than a count of steps."""
    for state in optimizer.state.values():
        if isinstance(state, dict) and any(getattr(value, "numel", int)() > 1 or getattr(value, "dim", int)() > 0 for value in state.values()):
            return True
    return False


def _made(optimizer):
    """Returns (id of a parameter, the steps of its state), or None. Does not read a state on a device, because that
    would block."""
    looked = 0
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state = optimizer.state.get(parameter)
            made = state.get("step") if state else None
            if made is not None:
                return (id(parameter), int(made)) if getattr(made, "is_cpu", True) else None
            looked += 1
            if looked == _LOOKED_AT:
                return None
    return None


class Restarts:
    """The counts of steps in one run's loop: those of the optimizer that steps first."""

    def __init__(self, run):
        self._run, self._parameter, self._last, self._reported = run, None, 0, 0
        self._step = 0
        self._had_state, self._first = None, True  # whether the first update found a state (None: not checked); whether that update is still to come
        self._losses, self._sum, self._recent = 0, 0.0, deque(maxlen=_RECENT)

    def before_update(self, optimizer):
        if self._first and self._had_state is None:
            self._had_state = _kept(optimizer)

    def loss(self, value):
        """Records, in the open step, the level at which the loss began, and its recent level."""
        if not math.isfinite(value):
            return
        self._losses += 1
        self._recent.append(value)
        record = self._run._own_scalar
        if self._losses <= _FIRST_LOSSES:
            self._sum += value
        if self._losses == _FIRST_LOSSES:
            record("trained/first_loss", self._sum / _FIRST_LOSSES)
        if self._losses >= _RECENT and self._losses & (self._losses - 1) == 0:
            mean = sum(self._recent) / _RECENT
            record("trained/recent_loss", mean)
            record("trained/recent_spread", math.sqrt(sum((one - mean) ** 2 for one in self._recent) / _RECENT))

    def _after_first(self, optimizer):
        self._first = False
        if self._had_state is not None and _kept(optimizer):
            self._run._own_scalar("trained/anew", not self._had_state)
            if self._run._made_before:
                self._run._own_scalar("trained/resumed", self._run._made_before)

    def after_update(self, optimizer):
        """Records the count of steps in the open step."""
        if self._first:
            self._after_first(optimizer)
        made = self.made(optimizer, self._run._step)
        if made is not None:
            self._run._own_scalar("optimizer.step", made)

    def made(self, optimizer, step):
        """Returns the steps of the optimizer's state, if they are recorded in step `step`; else None."""
        now = _made(optimizer)
        if now is None:
            return None
        parameter, made = now
        if self._parameter is None:
            self._parameter = parameter
        if parameter != self._parameter:
            return None
        since, self._step = max(1, step - self._step), step
        anew = made <= since and made <= self._last and self._last >= _ENOUGH  # after a return to a checkpoint, the state has more steps
        self._last = made
        if not (anew or since > 1 or (made > self._reported and made & (made - 1) == 0)):  # since > 1: there were light steps in between
            return None
        self._reported = max(self._reported, made)
        return made
