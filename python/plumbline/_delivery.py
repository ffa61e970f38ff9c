"""The end of a run: its evidence is delivered, its hooks are removed, its ending is noted."""

import ctypes
import os
import sys

from . import _endings
from ._library import DEADLINE_EXCEEDED, DISABLED, NO_STEP, UNAVAILABLE, Ending
from ._mistakes import warn


def _millis(seconds):
    return max(0, min(int(seconds * 1000), 2**32 - 1))


class Delivery:
    """Base class of Run."""

    def flush(self, timeout=10.0):
        """Waits until all evidence is delivered. Returns False if that takes more than `timeout` seconds."""
        status = self._blocking.plumbline_flush(self._handle, _millis(timeout))
        if status != DEADLINE_EXCEEDED:
            self._check("flush", status)
        return status >= 0

    def finish(self, timeout=2.0):
        """Delivers the evidence that was not yet delivered, within `timeout` seconds, and ends the run. May be repeated.

        Returns True if all measurements are in the record and acknowledged by the server, or if there
        was nothing to keep (nothing was observed, or PLUMBLINE_DISABLE is set). Returns False if nothing
        was recorded, or if a measurement is missing; standard error has the reason, once.
        """
        _endings.closing(self, sys.exc_info()[1])
        return self._close(timeout)

    def _note_ending(self, how, kind=None, text=None, where=None, code=0, thread=None):
        def encoded(value):
            return None if value is None else value.encode("utf-8", "replace")

        self._short.plumbline_note_ending(self._handle, Ending(
            ctypes.sizeof(Ending), how, encoded(kind), encoded(text), encoded(where), code,
            encoded(thread)))  # fmt: skip

    def _close(self, timeout=2.0):
        if self._kept is not None:  # closed before: the result stays
            return self._kept
        if self._light is not None:
            self._light.end()
        self._models_watched.run_ends()
        if self._late:
            warn(f"scalar: the last values of {len(self._late)} series came after the last step and are not recorded; expected a step to open after them")
        if self._waiting:
            warn(f"observe_logprobs: {len(self._waiting)} calls came after the last step and are not recorded; expected a step to open after them")
        self._step = NO_STEP
        status = self._blocking.plumbline_close(self._handle, _millis(timeout))
        if status == DISABLED:
            self._kept = False
            self._report_forked()
        else:
            self._kept = status >= 0
            if self._strict and status != DEADLINE_EXCEEDED:
                self._check("finish", status)
            elif status < 0 and status != UNAVAILABLE:  # which the library has printed
                print(f"plumbline: {self._library.last_error()}", file=sys.stderr)
        self._models_watched.remove()
        _endings.closed(self)
        return self._kept

    def _report_forked(self):
        if os.getpid() != self._pid:
            print("plumbline: finish: this process was forked from the one that opened the run, so nothing of it "
                  "was recorded", file=sys.stderr)  # fmt: skip

    def __enter__(self):
        return self

    def __exit__(self, kind=None, value=None, trace=None):
        _endings.closing(self, value)
        self._close()
        return False
