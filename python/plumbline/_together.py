"""Observations of tensors on a device that are launched together, in one launch for many."""

from threading import get_ident

from ._library import OK

_MOST_BYTES = 64 << 20  # the most bytes that are kept from being freed; if there are more, waiting calls are launched at once


class _Held:
    """Keeps the tensors that waiting calls will read, so that they are not freed before."""

    __slots__ = ("_kept", "_bytes", "_thread")

    def __init__(self):
        self._kept, self._bytes, self._thread = [], 0, get_ident()

    def add(self, keep):
        """Returns True if too much is kept. Calls of other threads do not wait."""
        if get_ident() != self._thread:
            return False
        self._kept.append(keep)
        for one in keep:
            if hasattr(one, "element_size"):  # a torch tensor
                self._bytes += one.numel() * one.element_size()
        return self._bytes > _MOST_BYTES

    def clear(self):
        self._kept.clear()
        self._bytes = 0


class _Together:
    """The context between its begin and its end."""

    __slots__ = ("_run", "_begun", "_outer")

    def __init__(self, run):
        self._run, self._begun, self._outer = run, False, None

    def __enter__(self):
        run = self._run
        self._begun = run._begin_together()
        if self._begun:
            self._outer, run._held = run._held, _Held()
        return run

    def __exit__(self, *_):
        if self._begun:
            self._run._end_together()
            self._run._held = self._outer
        return False


class Gathering:
    """Base class of Run."""

    _held = None  # the kept tensors inside of together(), else None

    def together(self):
        """`with run.together():` tensors and updates on a GPU that this thread observes inside are measured in few launches. Put it around a loop
        over a model's parameters.

        They are read at the end of the block at the latest, so nothing inside may write them. The
        records are the same. Other observations, and those of other threads, are launched at once.
        """
        return _Together(self)

    def _begin_together(self):
        return self._short.plumbline_together_begin(self._handle) == OK

    def _end_together(self):
        self._short.plumbline_together_end(self._handle)

    def _hold(self, keep):
        """Keeps the tensors that a waiting call will read. Launches the waiting calls if too much is kept."""
        held = self._held
        if held is not None and keep and held.add(keep):
            self._end_together()
            held.clear()
            self._begin_together()
