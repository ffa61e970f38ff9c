"""Which models a run watches: names and series of one are not those of another."""

import itertools
import weakref


class Models:
    """Of one run."""

    def __init__(self):
        self._live = weakref.WeakKeyDictionary()  # model -> (number behind its optimizers', names)
        self._watches = weakref.WeakKeyDictionary()  # model -> its Watch, weakly

    def watch_of(self, model):
        """The one that watches it, or None."""
        known = self._watches.get(model)
        return known and known()

    def enter(self, model, optimizers, names):
        """(number of its first optimizer, what stands before its names: nothing unless another model has one of them)."""
        for other in list(self._watches):
            watch = self.watch_of(other)
            if watch is not None:
                watch.shares()
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

    @property
    def alone(self):
        return len(self._live) < 2
