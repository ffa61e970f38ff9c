"""Which models a run watches: names and series of one are not those of another."""

import itertools
import weakref

from .loop import Loop


class Models:
    """Of one run."""

    def __init__(self):
        self._live = weakref.WeakKeyDictionary()  # model -> (number after its optimizers', names)
        self._loop = None
        self._watches = weakref.WeakKeyDictionary()  # model -> its Watch, weakly

    def loop(self, run):
        """That of the run's trainer: one for all of them."""
        if self._loop is None:
            self._loop = Loop(run)
        return self._loop

    def watch_of(self, model):
        """The one that watches it, or None."""
        known = self._watches.get(model)
        return known and known()

    def enter(self, model, optimizers, names):
        """(number of its first optimizer, what stands before its names: nothing unless another model has one of them)."""
        first = max((last for last, _ in self._live.values()), default=0)
        taken = set().union(*(names for _, names in self._live.values()))
        tries = itertools.chain([""], (f"model{k}." for k in itertools.count(2)))
        prefix = next(p for p in tries if taken.isdisjoint(p + name for name in names))
        self._live[model] = (first + len(optimizers), {prefix + name for name in names})
        return first, prefix

    def entered(self, model, watch):
        self._watches[model] = weakref.ref(watch)

    def leave(self, model):
        self._live.pop(model, None)
        self._watches.pop(model, None)

    def run_ends(self):
        """Before the run is closed."""
        if self._loop is not None and self._loop.watches:
            self._loop.watches[0]._guarded(self._loop.run_ends)

    def remove(self):
        """The run is over: the trainer goes on without hooks."""
        for held in list(self._watches.values()):
            watch = held()
            if watch is not None:
                watch.remove()
