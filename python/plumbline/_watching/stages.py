"""The stages of the training loop. One word, which the agent reads, records a stage of every step (plumbline/marks.h):
a call into the library would cost 30 us when the trainer has filled the caches. The other stages are spans."""

import ctypes
import gc
import sys
import weakref
from threading import get_ident
from time import monotonic_ns, perf_counter

from .._data.loaded import Loaded

NONE, FORWARD, BACKWARD, OPTIMIZER, DATA, COLLECTIVE = range(6)  # PLUMBLINE_STAGE_*
_NAMES = (None, "forward", "backward", "optimizer", "data")
NOW, _LOST, _AT, _GAP, _FIRST = range(5)  # positions of the words of plumbline_marks_t
_MARKS, _GAP_BIT = 4096, 8


def take_place(home, name, plain, ours):
    """Replaces the function `plain` of a class or module by `ours`. Returns a function that restores it, unless it
    was replaced again since."""
    ours.__doc__, ours.__name__ = plain.__doc__, plain.__name__
    setattr(home, name, ours)

    def undo():
        if home.__dict__.get(name) is ours:
            setattr(home, name, plain)

    return undo


class Weakly:
    """Some objects, held weakly; every step iterates over them as `for one in held.refs`. The code of a WeakSet costs
    30 us there."""

    def __init__(self):
        self.refs = ()

    def _drop(self, gone):
        self.refs = tuple(one for one in self.refs if one is not gone)

    def add(self, one):
        if all(held() is not one for held in self.refs):
            self.refs += (weakref.ref(one, self._drop),)

    def discard(self, one):
        self.refs = tuple(held for held in self.refs if held() is not one)


class _Span:
    """The span of one kind, which may be open. Makes its arguments once, because it runs when the trainer has filled
    the caches."""

    __slots__ = ("kind", "name", "number", "where", "open")

    def __init__(self, kind, name):
        self.kind, self.name = kind.encode(), None if name is None else name.encode()
        self.number = ctypes.c_uint64()
        self.where = ctypes.byref(self.number)
        self.open = False


class Stages:
    """The stages of one run's loop; each kind until the trainer has its own spans of that kind."""

    def __init__(self, run):
        self._run, self._spans = run, {}  # kind -> _Span
        self._begin, self._end = run._short.plumbline_span_begin, run._short.plumbline_span_end
        self._undo, self._evaluated = [], -1.0
        self._thread, self._words, self._refused = None, None, False  # the thread of the marks, and their addresses
        self.stage = NONE

    # ---- by marks ------------------------------------------------------------------------------

    def enter(self, stage):
        """Enters a stage; the stage before it ends."""
        if stage == self.stage:
            return
        if get_ident() != self._thread and (self.stage != NONE or not self.adopt()):
            return  # two threads at once have no common stage, so only the first thread counts
        own = self._run._trainers_stages
        if own and _NAMES[stage] in own:
            stage = NONE
            if self.stage == NONE:
                return
        self.stage = stage
        words, word = self._words, monotonic_ns() << 4 | stage
        words[NOW] = word
        at = words[_AT]
        if words[_FIRST + at]:  # the agent has not read the words for a long time
            words[_LOST] += 1
            words[_GAP] = _GAP_BIT
            return
        words[_FIRST + at] = word | words[_GAP]
        words[_GAP] = 0
        words[_AT] = (at + 1) % _MARKS

    def now(self, stage):
        """Sets only the heartbeat to a stage, in a step that is recorded without its stages."""
        if self._words is not None:
            self._words[NOW] = monotonic_ns() << 4 | stage
            if self._run._light is not None:
                self._run._light.marked = False

    def marks(self):
        """Returns the words whose word NOW is the heartbeat's, or None."""
        return self._words

    def adopt(self):
        """Makes the calling thread the thread of the loop. Returns False if no agent reads marks."""
        if self._refused:
            return False
        where = ctypes.c_void_p()
        status = self._run._short.plumbline_marks(self._run._handle, ctypes.byref(where))
        self._run._check("marks", status)
        self._refused = not where.value
        if self._refused:
            return False
        self._words = memoryview((ctypes.c_uint64 * (_FIRST + _MARKS)).from_address(where.value)).cast("B").cast("Q")
        self._thread = get_ident()
        return True

    def waits(self):
        """Called when a wait for the next batch begins; it ends with got(). A thread that loads ahead does not count."""
        if self._run._light is not None:
            self.now(DATA)
        elif get_ident() == self._thread:
            self.enter(DATA)
        else:
            self.begin("data")

    def got(self):
        if self._run._light is not None:
            self.now(NONE)
        elif self.stage == DATA and get_ident() == self._thread:
            self.enter(NONE)
        else:
            self.end("data")

    # ---- by spans ------------------------------------------------------------------------------

    def begin(self, kind, name=None):
        run, span = self._run, self._spans.get(kind)
        if span is None:
            span = self._spans[kind] = _Span(kind, name)
        elif span.open:  # an exception ended the stage
            self.end(kind)
        if run._trainers_stages and (name or kind) in run._trainers_stages:
            return
        span.number.value = 0
        status = self._begin(run._handle, span.kind, span.name, span.where)
        if status < 0:
            run._check(("span", kind), status)
        span.open = span.number.value != 0

    def end(self, kind):
        span = self._spans.get(kind)
        if span is not None and span.open:
            span.open = False
            status = self._end(self._run._handle, span.number.value)
            if status < 0:
                self._run._check("span", status)

    def evaluates(self):
        """Called for a forward pass that is not trained on, once a second: a rank that evaluates while others wait for
        it does not seem to hang."""
        now = perf_counter()
        if now - self._evaluated >= 1:
            self._evaluated = now
            self.begin("evaluation")
            self.end("evaluation")

    # ---- its sources ---------------------------------------------------------------------------

    def hook(self):
        """Hooks data loaders and garbage collections; the other stages are entered by the hooks of their own modules."""
        for source in (Loading, Collections):
            source.add(self)
            self._undo.append(source)

    def remove(self):
        undo, self._undo = self._undo, []
        for source in undo:
            source.remove(self)
        self.enter(NONE)
        for kind in list(self._spans):
            self.end(kind)


class Loading:
    """Hooks torch's data loaders: the wait for the next batch."""

    stages = Weakly()
    kind, original, chooses = None, None, None

    @classmethod
    def add(cls, stages):
        cls.stages.add(stages)
        module = sys.modules.get("torch.utils.data.dataloader")
        kind = getattr(module, "_BaseDataLoaderIter", None)
        if cls.original is not None or kind is None:
            return
        original = cls.original = kind.__next__
        cls.kind = kind

        def __next__(self):
            every = cls.stages.refs
            for one in every:
                stages = one()
                if stages is not None:
                    stages.waits()
            try:
                batch = original(self)
                cls.loaded(self, batch)
                return batch
            finally:
                for one in every:
                    stages = one()
                    if stages is not None:
                        stages.got()

        kind.__next__ = __next__
        chooses = cls.chooses = getattr(kind, "_next_index", None)
        if chooses is not None:

            def _next_index(self):
                index = chooses(self)
                Loaded.index(self, index)
                return index

            kind._next_index = _next_index

    @classmethod
    def loaded(cls, iterator, batch):
        try:
            Loaded.got(iterator, batch)
        except Exception:  # another version of torch: nothing is known of the loader
            Loaded.newest = Loaded.rounds = None

    @classmethod
    def remove(cls, stages):
        cls.stages.discard(stages)
        if not cls.stages.refs and cls.original is not None:
            cls.kind.__next__ = cls.original
            if cls.chooses is not None:
                cls.kind._next_index = cls.chooses
            cls.original = None


class Collections:
    """Hooks full garbage collections; those of younger generations are short, and too many to record."""

    stages = Weakly()
    OLDEST, NAME = 2, "garbage collection"

    @classmethod
    def add(cls, stages):
        cls.stages.add(stages)
        if cls._collects not in gc.callbacks:
            gc.callbacks.append(cls._collects)

    @classmethod
    def _collects(cls, phase, info):
        if info["generation"] < cls.OLDEST:
            return
        for one in cls.stages.refs:
            stages = one()
            if stages is None:
                continue
            if phase == "start":
                stages.begin("other", cls.NAME)
            else:
                stages.end("other")

    @classmethod
    def remove(cls, stages):
        cls.stages.discard(stages)
        if not cls.stages.refs and cls._collects in gc.callbacks:
            gc.callbacks.remove(cls._collects)
