"""stop_on: the server judges the run, and the training ends at the first finding of a level.

The server orders it over the stream that carries the evidence; the agent keeps the order, which is checked after each step. Ranks end
together: rank 0 decides for a later step, through torch's store.
"""

import ctypes
import os
import sys

from ._ranks import of_process_group

LEVELS = {"warning": 2, "error": 3}  # PLUMBLINE_STOP_ON_*
_LATER = 8  # number of steps by which the end is later than the decision; ranks that train together never differ by more steps
_BYTES = 512  # the most bytes of a reason
NEEDS_A_SERVER = ("needs a server (server=, or PLUMBLINE_SERVER), which judges the run during training; without a server the training continues, "
                  "and `plumb audit` judges the record afterwards")  # fmt: skip


def checked(level):
    """Returns the level as the library takes it, 0 for None. Raises ValueError."""
    if level not in (None, *LEVELS):
        raise ValueError(f"stop_on is {level!r}; expected 'error', 'warning' or None")
    return LEVELS.get(level, 0)


class Order:
    """The server's order to stop one run."""

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
        self._agreed, self._reported = None, False

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
            print(f"plumbline: the training ends after step {step}: {self.reason or 'rank 0 has a finding'}", file=sys.stderr)
        return due

    def _agree(self, step, rank):
        if self._agreed is None and step % _LATER == 0:
            store = sys.modules["torch"].distributed.distributed_c10d._get_default_store()
            if rank == 0 and self.reason is not None:
                self._agreed = store.add(self._key, step + _LATER)
            elif rank != 0:
                self._agreed = store.add(self._key, 0) or None  # a check that never waits
        return self._agreed is not None and step >= self._agreed


def stopping(level, server, library, handle, key):
    """Returns a Stopping. Returns None if no level was given, or if there is no server; prints the latter."""
    if level is None:
        return None
    if not (server or os.environ.get("PLUMBLINE_SERVER")):
        print(f'plumbline: stop_on="{level}" {NEEDS_A_SERVER}', file=sys.stderr)
        return None
    return Stopping(Order(library, handle), key)
