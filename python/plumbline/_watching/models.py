"""The models that a run watches. Each has its own names and series."""

import itertools
import weakref

from .loop import Loop


class Models:
    """The models that one run watches."""

    def __init__(self):
        self._live = weakref.WeakKeyDictionary()  # model -> (the number after those of its optimizers, names)
        self._loop = None
        self._watches = weakref.WeakKeyDictionary()  # model -> its Watch, weakly

    def loop(self, run):
        """Returns the loop of the run's trainer: one for all models."""
        if self._loop is None:
            self._loop = Loop(run)
        return self._loop

    def watch_of(self, model):
        """Returns the watch of a model, or None."""
        known = self._watches.get(model)
        return known and known()

    def enter(self, model, optimizers, names):
        """Returns (number of its first optimizer, prefix of its names: empty unless another model has one of them)."""
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
        """Called before the run is closed."""
        if self._loop is not None and self._loop.watches:
            self._loop.watches[0]._guarded(self._loop.run_ends)

    def remove(self):
        """Called when the run is over: the trainer continues without hooks."""
        for held in list(self._watches.values()):
            watch = held()
            if watch is not None:
                watch.remove()
