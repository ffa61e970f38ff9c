"""Checks whether the first backward pass of a step finds gradients that are not zero. Only the smallest parameters
are checked, which is cheap."""

from .._screen import norms
from .._shards import gradients

_MOST, _ENOUGH = 8, 1024  # the most parameters that are checked; elements that are enough


def few(parameters):
    """Returns the smallest parameters. A gradient that was left is visible in these parameters as well as in all."""
    few, elements = [], 0
    for parameter in sorted(parameters, key=lambda p: p.numel()):
        if few and (len(few) == _MOST or elements >= _ENOUGH):
            break
        few.append(parameter)
        elements += parameter.numel()
    return few


class Leftover:
    """Checks the gradients that one watch's steps find."""

    def __init__(self, run, trained, shards):
        self._run, self._trained, self._shards = run, trained, shards
        self._smallest, self._count = few([p for _, p in trained]), len(trained)
        self._graded = False  # whether one of these parameters had a gradient at an update: then they represent all

    def before_update(self):
        self._graded = self._graded or any(p.grad is not None for p in self._smallest)

    def found(self):
        """Returns whether a gradient was left. On a device returns False, because reading the answer would block."""
        if len(self._trained) != self._count:  # another number of parameters is trained now
            self._smallest, self._count = few([p for _, p in self._trained]), len(self._trained)
        some = [g for _, g in gradients([("", p) for p in self._smallest], ("",))]
        if not some and not self._graded:
            some = [g for pair in self._trained for _, g in gradients([pair], self._shards)][:1]
        held = [g for g in some if g.device.type == "cpu"]
        return bool(held) and any(norm != 0 for norm in norms(self._run._library.short, held))
