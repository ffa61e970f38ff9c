"""Detects backward passes without a step of a watched optimizer: either it was replaced, or a loss scaler skips steps."""

import gc
import sys

from .._kinds import KIND_TENSOR
from .unwrap import holders

# After this many times the most backward passes of an update, and after at least this many passes, another optimizer is
# searched.
_TIMES, _FIRST = 8, 16
_REPORTED, _MANY = 64, 256  # the same two numbers for the report that none was found
_NEVER = 4096  # number of passes before that report, if no update has been made and the passes per update are not known
_SCALERS = ("GradScaler", "LossScaler")  # suffixes of the names of scalers' classes


def _alive(fits):
    """Returns objects of the process whose type fits. Reads only types, because an attribute of an object may run
    code."""
    return [one for one in gc.get_objects() if fits(type(one))]


class Standstill:
    """Checks the backward passes of one watch."""

    def __init__(self, run, model, optimizers, scaler, activations, trained):
        self._run, self._model, self._optimizers, self._scaler = run, model, optimizers, scaler
        self._activations, self._trained = activations, trained
        self.most, self._limit = 0, _FIRST  # most: the most backward passes of an update so far
        self._reported = False
        self._has_scaler = True if scaler is not None else None

    def scaled(self):
        """Returns whether this process scales losses; checks this once. If it does, a scaler skipped a missing step."""
        if self._has_scaler is None:
            alive = _alive(lambda kind: kind.__name__.endswith(_SCALERS))
            self._has_scaler = any(getattr(one, "is_enabled", lambda: True)() for one in alive)
        return self._has_scaler

    def moved(self, passes):
        """Called after an update of `passes` backward passes."""
        if passes > self.most:
            self.most, self._limit = passes, max(_FIRST, _TIMES * passes)

    def suspect(self, passes):
        return passes >= self._limit

    def request(self, passes):
        """Searches another optimizer that holds the trained parameters, and replaces the watched ones by it."""
        self._limit = 2 * passes
        others = self._others()
        if others:
            watched = self._run.watch(self._model, others, scaler=self._scaler, activations=self._activations)
            if hasattr(watched, "stages"):
                each = max(self.most, 1)
                missed = passes // each - 1  # number of updates that were made in one step of ours, without being seen
                watched._loop.keep_last(each)
                if not self._run._explicit_steps:
                    self._run._next_step += max(0, missed - 1)  # the open step had the number of the first of these updates
                print(f"plumbline: the optimizer was replaced: the new one is watched; before that {missed} steps were not observed", file=sys.stderr)
                return
        if self._reported or passes < (max(_MANY, _REPORTED * self.most) if self.most else _NEVER):
            return
        self._reported = True
        self._run._warn_once("watch-no-step", f"watch: {passes} backward passes and no step of a watched optimizer; "
                               "was it replaced? expected run.watch(model, optimizer) with the one that steps now")  # fmt: skip
        self._run._declare_site(KIND_TENSOR, "the optimizer's steps", "unhooked: no step of a watched optimizer is observed any more: call "
                                "run.watch(model, optimizer) with the one that steps now")  # fmt: skip

    def _others(self):
        return holders([p for _, p in self._trained], {id(o) for o in self._optimizers})
