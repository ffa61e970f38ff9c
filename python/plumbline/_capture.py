"""Observes the arguments and the results of all_reduce while a communication hook runs.

A hook scales and casts its bucket before it starts the collective, so the bucket does not show what is sent. While a
captured hook runs, and only in its thread, calls of the process group's `allreduce` go through this module. Before
and after that, torch is unchanged. Calls of other threads pass through.
"""

import sys
import threading

_lock = threading.Lock()
_installed = 0  # number of captures in progress
_methods = []  # (class, original method)
_local = threading.local()


def _owners(kind):
    """Returns the classes that define allreduce for groups of this class."""
    return [c for c in kind.__mro__ if "allreduce" in vars(c)]


def _passing(method):
    def allreduce(self, *arguments, **named):
        original = method.__get__(self, type(self))
        capture = getattr(_local, "capture", None)
        if capture is None:
            return original(*arguments, **named)
        return capture.allreduce(original, self, arguments, named)

    return allreduce


def _install(kind):
    global _installed
    with _lock:
        if _installed == 0:
            for owner in _owners(kind):
                _methods.append((owner, vars(owner)["allreduce"]))
            for owner, method in _methods:
                owner.allreduce = _passing(method)
        _installed += 1


def _uninstall():
    global _installed
    with _lock:
        _installed -= 1
        if _installed == 0:
            while _methods:
                owner, method = _methods.pop()
                owner.allreduce = method


def _given(arguments, named):
    """Returns (tensor, op) of an allreduce of one tensor; None for any other or unknown call."""
    try:
        return _arguments(arguments, named)
    except Exception:
        return None


def _arguments(arguments, named):
    tensors = arguments[0] if arguments else named.get("tensors", named.get("tensor"))
    if isinstance(tensors, (list, tuple)):
        if len(tensors) != 1:
            return None
        tensors = tensors[0]
    options = arguments[1] if len(arguments) > 1 else named.get("opts", named.get("op"))
    op = getattr(options, "reduceOp", options)
    return tensors, _op_name(op)


def _op_name(op):
    if op is None:
        return "sum"  # the default of allreduce
    kinds = sys.modules["torch.distributed"].ReduceOp
    for name in ("SUM", "AVG", "MAX", "MIN", "PRODUCT"):
        kind = getattr(kinds, name, None)
        if kind is not None and op == kind:
            return name.lower()
    return "other"


class _Work:
    """A collective in progress. wait() returns its result after it was observed."""

    def __init__(self, work, looked):
        self._work = work
        self._looked = looked

    def _look(self):
        looked, self._looked = self._looked, None
        if looked is not None:
            looked()

    def get_future(self):
        def look(future):
            value = future.value()  # raises the exception that the collective raised
            self._look()
            return value

        return self._work.get_future().then(look)

    def wait(self, *arguments, **named):
        done = self._work.wait(*arguments, **named)
        self._look()
        return done

    def __getattr__(self, name):
        return getattr(self._work, name)


class Capture:
    """`with Capture(group, started):` observes the tensors that this thread gives to all_reduce inside.

    started(process group, tensor, op) is called before each collective; it returns the function to call when the result is there, or None. Neither
    may raise. `seen` counts the collectives.
    """

    def __init__(self, group, started):
        self._class, self._started = type(group), started
        self._entered = False
        self.seen = 0

    def __enter__(self):
        self._outer = getattr(_local, "capture", None)
        try:
            _install(self._class)
            self._entered = True
            _local.capture = self
        except TypeError:  # in another torch version, the methods of this class cannot be replaced
            pass
        return self

    def __exit__(self, *_):
        if self._entered:
            _local.capture = self._outer
            _uninstall()
        return False

    def allreduce(self, original, group, arguments, named):
        looked = None
        _local.capture = None  # an allreduce that calls other allreduces counts once
        try:
            given = _given(arguments, named)
            if given is not None:
                self.seen += 1
                looked = self._started(group, *given)
            work = original(*arguments, **named)
        finally:
            _local.capture = self
        return work if looked is None or work is None else _Work(work, looked)
