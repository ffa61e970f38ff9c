"""The context managers of a run: a step, a stage of the loop, a graph's capture."""

import threading


class Step:
    """The context of one training step. Its run uses it again for each step."""

    __slots__ = ("_run", "_number")

    def __init__(self, run):
        self._run = run
        self._number = 0

    def __enter__(self):
        self._run._explicit_steps = True
        self._run._begin_step(self._number)
        return self._run

    def __exit__(self, kind=None, *_):
        if kind is not None:  # an exception ends the step in this thread
            self._run._broken = threading.get_ident()
        self._run._end_step()
        return False


class Span:
    """The context of one stage of the training loop."""

    __slots__ = ("_run", "_kind", "_name", "_id")

    def __init__(self, run, kind, name):
        self._run = run
        self._kind = kind
        self._name = name
        self._id = 0

    def __enter__(self):
        self._id = self._run._begin_span(self._kind, self._name)
        return self

    def __exit__(self, *_):
        if self._id:
            self._run._end_span(self._id)
        return False


class Capturing:
    """The context of a CUDA graph's capture."""

    __slots__ = ("_run", "_stream", "_former_step")

    def __init__(self, run, stream):
        self._run = run
        self._stream = stream
        self._former_step = None

    def __enter__(self):
        self._former_step = self._run._begin_capture(self._stream)
        return self._run

    def __exit__(self, *_):
        if self._former_step is not None:
            self._run._end_capture(self._former_step)
        return False
