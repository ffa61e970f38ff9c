"""The sites of a run: places in the model, each with the step from which on it is due."""

import array
import ctypes
from time import thread_time_ns

from ._kinds import NAMES
from ._tensors import Scratch, Unsupported

MAX_SAMPLES = 4096

_scratch = Scratch()
_observes = {kind: f"plumbline_observe_{name}" for kind, name in NAMES.items()}


class Site:
    """A place in the model where observations are made: its handle and its due word."""

    __slots__ = ("handle", "word", "observe", "key")

    def __init__(self, handle, word, observe, key):
        self.handle, self.word, self.observe, self.key = handle, word, observe, key


class Sites:
    """Base class of Observations. A site is due from the step `word[0]` on."""

    def _unknown(self, call, layer, unknown):
        """Reports a keyword that the call does not have. Nothing is observed, because the intended argument may matter."""
        import difflib
        import inspect

        known = [p for p in inspect.signature(getattr(type(self), call)).parameters
                 if p not in ("self", "unknown")]  # fmt: skip
        name = min(unknown)
        near = difflib.get_close_matches(name, known, 1)
        meant = f"is {near[0]!r} meant?" if near else f"it takes {', '.join(known)}"
        self._report_error((call, repr(layer), name), f"{call}({layer!r}): there is no argument {name!r}; {meant}")

    def _site(self, kind, layer, op):
        """Returns the site of that name, and declares it at the first call. Returns None if that fails; the error was reported."""
        key = (kind, layer, op)
        site = self._open_sites.get(key)
        if site is not None:
            return site
        if not isinstance(layer, str) or not isinstance(op, str):
            raise Unsupported(f"names are strings, not {layer!r} and {op!r}")
        handle = self._declare_site(kind, layer, op)
        if handle is None:
            return None
        word = memoryview(ctypes.c_uint64.from_address(handle)).cast("B").cast("Q")
        site = Site(handle, word, getattr(self._short, _observes[kind]), key)
        return self._open_sites.setdefault(key, site)

    def _observe(self, kind, layer, op, words, pack, arguments):
        """Records one observation if its site is due. `words`: the dictionary of due words of the call's fast path, and the key."""
        keep = []
        if self._light is not None:
            self._light.interrupted()
        try:
            site = self._site(kind, layer, op)
            if site is None:
                return
            if words is not None:
                words[0][words[1]] = site.word
            if self._step < site.word[0]:
                return
            began = thread_time_ns()
            packed = pack(_scratch, keep, *arguments)
            self._spent += thread_time_ns() - began
            status = site.observe(site.handle, packed)
            self._hold(keep)
            if status < 0:
                self._check((site.key,), status)
        except self._mistake:
            raise
        except Exception as error:  # no error of this package may end the trainer's step
            what = _observes[kind].removeprefix("plumbline_")
            text = error if isinstance(error, Unsupported) else repr(error)
            self._report_error((kind, repr(layer)), f"{what}({layer!r}): {text}")

    def _end_observations(self):
        """Sends the records that were gathered in the step, before the step ends."""
        for call in self._at_step_end:
            call()

    def _indices(self, site, count, most=MAX_SAMPLES):
        """Returns an array('q') of sampled indices, or None."""
        if self._step < site.word[0]:
            return None
        indices = array.array("q", bytes(8 * min(count, most)))
        n = ctypes.c_uint32()
        status = self._short.plumbline_sample_indices(
            site.handle, count, indices.buffer_info()[0], len(indices), ctypes.byref(n)
        )
        if status < 0:
            self._check(site.key, status)
        return indices[: n.value] if n.value else None
