"""stop_on: the run is judged during the training, which ends at the first finding of a level.

With a server, the server judges, and orders the end over the stream that carries the evidence. Without one the agent judges what this process
records. The agent keeps the order, which is checked after each step. Ranks end together: rank 0 decides for a later step, through torch's store.
"""

import ctypes
import sys

from ._optimizer_hooks import take_place
from ._ranks import of_process_group

LEVELS = {"warning": 2, "error": 3}  # PLUMBLINE_STOP_ON_*
_LATER = 8  # number of steps by which the end is later than the decision; ranks that train together never differ by more steps
_BYTES = 512  # the most bytes of a reason


class TrainingStopped(SystemExit):
    """Ends a training whose loop does not check run.should_stop. If no code catches it, the exit status of the process is 1. `reason`: the
    finding."""

    def __init__(self, reason):
        super().__init__(1)
        self.reason = reason

    def __str__(self):
        return self.reason


def checked(level):
    """Returns the level as the library takes it, 0 for None. Raises ValueError."""
    if level not in (None, *LEVELS):
        raise ValueError(f"stop_on is {level!r}; expected 'error', 'warning' or None")
    return LEVELS.get(level, 0)


class Order:
    """The order to stop one run, of the server or of the agent."""

    def __init__(self, library, handle):
        self._query, self._handle = library.short.plumbline_stop_order, handle
        self._text, self._ordered = ctypes.create_string_buffer(_BYTES), ctypes.c_int32()

    def reason(self):
        """Returns the reason of the order; None if there is no order."""
        status = self._query(self._handle, self._text, _BYTES, ctypes.byref(self._ordered))
        return self._text.value.decode("utf-8", "replace") if status >= 0 and self._ordered.value else None


class Stopping:
    """Decides whether one run stops. `reason` is None until there is a finding of the level."""

    def __init__(self, order, key):
        """order: an Order, which is read until it has a reason. key: the key of the ranks' agreement, equal on all
        ranks."""
        self._order, self._key, self.reason = order, f"plumbline/stop/{key}", None
        self._agreed, self._reported, self._shared = None, False, False
        self.checked = False  # whether the trainer's loop, or a framework's callback, checks for the end itself

    def due(self, step):
        """Returns whether the training ends after this step. On each rank it is the same step."""
        if self.reason is None:
            self.reason = self._order.reason()
        try:
            group = of_process_group()
            due = self.reason is not None if group is None or group[1] == 1 else self._agree(step, group[0])
        except Exception as error:
            print(f"plumbline: stop_on: the ranks cannot agree on a step: {error!r}; the training continues", file=sys.stderr)
            self.due = lambda step: False
            return False
        if due and not self._reported:
            self._reported = True
            print(f"plumbline: the training ends after step {step}: {self.reason or 'another rank has a finding'}", file=sys.stderr)
        return due

    def _agree(self, step, rank):
        if self._agreed is None and step % _LATER == 0:
            store = sys.modules["torch"].distributed.distributed_c10d._get_default_store()
            if rank != 0:
                if self.reason is not None and not self._shared:
                    self._shared = True
                    store.add(f"{self._key}/found", 1)
                self._agreed = store.add(self._key, 0) or None  # a check that never waits
            elif self.reason is not None or store.add(f"{self._key}/found", 0):
                self._agreed = store.add(self._key, step + _LATER)
        return self._agreed is not None and step >= self._agreed


def stopping(level, library, handle, key):
    """Returns a Stopping, or None if no level was given."""
    return None if level is None else Stopping(Order(library, handle), key)


def enforce(run, watched):
    """Ends the training by TrainingStopped after a step of the watched optimizers, if the trainer's loop does not check for the end."""
    for one in watched.found:
        if one.captured:  # a wrapper has kept the method
            watched._undo.append(one.inner.register_step_post_hook(lambda *_: run._end_training()).remove)
        else:
            watched._undo.append(_after_step(run, one.stepping))


def _after_step(run, optimizer):
    plain = optimizer.step

    def step(self, *arguments, **options):
        result = plain(*arguments, **options)
        run._end_training()
        return result

    step.__dict__.update(getattr(plain, "__dict__", {}))  # torch's schedulers check whether they have wrapped it already
    return take_place(optimizer, "step", plain, step)
