"""The numbers that a trainer logs: they are recorded as `logged/NAME` in the step in which they are logged, or in the
next one if no step is open. health/metric-truth compares them with what the watch measures."""

import numbers

from .._library import NO_STEP

MEASURED = frozenset(("loss", "grad_norm", "lr", "tokens"))  # series of the watch that a logged number may state
_WORDS = ("loss", "norm", "lr", "learning_rate", "tokens")  # a name without any of them is left out
_MOST_NAMES = 16
_EACH, _PERIOD = 64, 16  # number of first calls that are recorded each; the fewest steps between later ones
_LIGHT_PERIOD = 64  # ... if the step would be a light one


class Logged:
    """The logged numbers of a run. The attributes are used by the thread that trains."""

    def __init__(self, run):
        self._run, self._names = run, {}  # name -> whether it is recorded
        self._waiting = {}  # name -> value, until the end of the open step, or of the next one
        self._called, self._since = 0, 1  # step of the last call; number of steps between the call before and it
        self._recorded, self._next, self._next_light = 0, 0, 0  # number of recorded calls; the first step of the next one

    def take(self, values):
        """Takes the numbers of one call of a logger: {name: number}. Others than numbers are left out."""
        run = self._run
        step = run._following() if run._step == NO_STEP else run._step
        if step != self._called:
            self._since, self._called = step - self._called, step
        light = run._light if not self._waiting else None
        if step < self._next or (light is not None and step < self._next_light):
            return
        kept = {name: float(value) for name, value in values.items() if self._keeps(name) and _is_number(value)}
        if not kept:
            return
        if light is not None:
            light.open()  # the step is a whole one, so that its values and these are recorded in it
        self._waiting.update(kept)

    def _keeps(self, name):
        known = self._names.get(name)
        if known is None:
            small = name.lower()
            known = len(self._names) < 4 * _MOST_NAMES and sum(self._names.values()) < _MOST_NAMES and any(word in small for word in _WORDS)
            if len(self._names) < 4 * _MOST_NAMES:
                self._names[name] = known
        return known

    def step_ends(self, passes):
        """Records what was logged. Called when a whole step ends, with the number of its backward passes."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, {}
        record = self._run._own_scalar
        record("logged/.every", float(self._since))
        record("logged/.passes", float(passes))
        for name, value in waiting.items():
            record(f"logged/{name}", value)
        self._recorded += 1
        self._next = self._called + (1 if self._recorded < _EACH else _PERIOD)
        self._next_light = self._called + _LIGHT_PERIOD


def _is_number(value):
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
