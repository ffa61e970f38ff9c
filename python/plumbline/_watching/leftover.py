"""Does the first backward pass of a step find gradients that are not zero? Asked of the smallest parameters: it is cheap."""

from .._screen import norms
from .._shards import gradients

_MOST, _ENOUGH = 8, 1024  # parameters, elements of them


def few(parameters):
    """A gradient that was left shows in them as well as in all."""
    few, elements = [], 0
    for parameter in sorted(parameters, key=lambda p: p.numel()):
        if few and (len(few) == _MOST or elements >= _ENOUGH):
            break
        few.append(parameter)
        elements += parameter.numel()
    return few


class Leftover:
    """Of one watch."""

    def __init__(self, run, trained, shards):
        self._run, self._trained, self._shards = run, trained, shards
        self._smallest = few([p for _, p in trained])

    def found(self):
        """On a device nobody waits for the answer: False."""
        some = [g for _, g in gradients([("", p) for p in self._smallest], ("",))]
        held = [g for g in some or [g for _, g in gradients(self._trained, self._shards)][:1] if g.device.type == "cpu"]
        return bool(held) and any(norm != 0 for norm in norms(self._run._library.short, held))
