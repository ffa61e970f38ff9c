"""Tensor.backward, hooked once for all watches."""

import sys
import weakref


class Backward:
    """Tensor.backward, which tells the watches whose trainer calls it on a scalar."""

    watches = weakref.WeakSet()
    original, running = None, 0

    @classmethod
    def add(cls, watch):
        cls.watches.add(watch)
        tensor = sys.modules["torch"].Tensor
        if cls.original is None:
            original = cls.original = tensor.backward

            def backward(self, *arguments, **options):
                for one in list(cls.watches):
                    one._guarded(one._before_backward, self)
                cls.running += 1
                try:
                    return original(self, *arguments, **options)
                finally:
                    cls.running -= 1

            backward.__doc__ = original.__doc__
            tensor.backward = backward

    @classmethod
    def remove(cls, watch):
        cls.watches.discard(watch)
        if not cls.watches and cls.original is not None:
            sys.modules["torch"].Tensor.backward = cls.original
            cls.original = None
