"""The memory into which light steps are stored, and that the agent reads (plumbline/steps.h)."""

import ctypes

from .weights import CHECKSUM

_HEAD, _WORDS, _STEPS = 8, 16, 1024  # fields of plumbline_steps_t
_READ = 1
_ENDED, _GIVEN, _VALUES = 1, 2, 4  # positions of fields of one step, which begins with its number
_SERIES = ("loss", "grad_norm", "lr", "lr.1", "lr.2", "lr.3", "tokens", "update_ratio", "optimizer.step", "loss_scale", CHECKSUM)
_TOKENS, _SCALE = _SERIES.index("tokens"), _SERIES.index("loss_scale")
RATES = 4  # the most learning rates of a step
_FULL = _STEPS - 64


class Ring:
    """The ring of one run. One thread writes."""

    __slots__ = ("_run", "_words", "_values", "written")

    def __init__(self, run):
        self._run, self._words, self._values = run, None, None
        self.written = 0  # number of steps so far

    def open(self):
        """Returns False if no agent reads it."""
        if self._words is None and not self._map():
            return False
        self.written = self._words[0]
        return True

    def _map(self):
        run = self._run
        names = (ctypes.c_char_p * len(_SERIES))(*(name.encode() for name in _SERIES))
        where = ctypes.c_void_p()
        status = run._short.plumbline_steps(run._handle, names, len(_SERIES), ctypes.byref(where))
        if status < 0:
            run._check("steps", status)
        if not where.value:
            return False
        memory = memoryview((ctypes.c_uint64 * (_HEAD + _WORDS * _STEPS)).from_address(where.value)).cast("B")
        self._words, self._values = memory.cast("Q"), memory.cast("d")
        return True

    def full(self):
        """Returns whether the agent has not read the steps before."""
        return self._words is not None and self._words[0] - self._words[_READ] > _FULL

    def store(self, first, rows):
        """Stores the steps from `first` on. Returns the losses of their passes."""
        words, values, losses = self._words, self._values, []
        for step, (ended, passes, loss, tokens, rate, norm, scale, more) in enumerate(rows, first):
            at = _HEAD + self.written % _STEPS * _WORDS
            place, given = at + _VALUES, 4
            words[at], words[at + _ENDED], values[place + 2] = step, ended, rate if rate.__class__ is float else rate[0]
            if passes:
                given, values[place] = 5, loss
                losses += [loss / passes] * passes
            if norm is not None:
                given, values[place + 1] = given | 2, norm
            if rate.__class__ is not float:
                for number, one in enumerate(rate[1:], 1):
                    given, values[place + 2 + number] = given | 4 << number, one
            if tokens:
                given, values[place + _TOKENS] = given | 1 << _TOKENS, tokens
            if scale is not None:
                given, values[place + _SCALE] = given | 1 << _SCALE, scale
            for number, one in enumerate(more or (), _TOKENS + 1):  # `more` are the values of a screened step
                if one is not None:
                    given, values[place + number] = given | 1 << number, one
            words[at + _GIVEN] = given
            self.written += 1
        words[0] = self.written
        return losses
