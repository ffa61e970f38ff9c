"""Floating inputs of a model: their scale, elements that are not finite, constant rows. Evidence of health/batch-facts."""

import math
import sys

_MOST = 8  # the most inputs of one pass that are checked
_PROBED, _FEW = 64, 8  # elements of the first row that are read; an input with at most _FEW values there is a mask or a code
_ROWS = 4  # the fewest rows that must all be constant
_MASKS, _TARGETS = ("mask", "bias"), ("label", "target")  # parts of the names of arguments that are infinite on purpose, or no inputs


def _named(inputs, words):
    """Returns (name, tensor) of the floating arguments with two axes or more."""
    torch = sys.modules["torch"]
    given = [*((f"argument {at}", value) for at, value in enumerate(inputs)), *words.items()]
    return [
        (name, value.detach()) for name, value in given
        if type(value) is torch.Tensor and value.is_floating_point() and value.dim() > 1 and value.numel() and not any(part in name for part in _MASKS)
    ][:_MOST]  # fmt: skip


def _square(value):
    """Returns the mean square."""
    torch = sys.modules["torch"]
    if not hasattr(torch.linalg, "vector_norm"):  # torch before 1.10
        return float(value.float().square().mean())
    wide = torch.float64 if value.dtype is torch.float64 else torch.float32
    return float(torch.linalg.vector_norm(value, dtype=wide)) ** 2 / value.numel()


def _lost(name, value):
    """Returns the number of elements that are not finite; 0 for a mask that is passed by position: its infinities are
    negative."""
    torch = sys.modules["torch"]
    if name.startswith("argument ") and bool((value == -math.inf).any()):
        return 0
    return int((~torch.isfinite(value)).sum())


class Inputs:
    """The inputs of one watch."""

    def __init__(self):
        self._varies = {}  # input -> whether each of its batches so far had more than _FEW values

    def facts(self, inputs, words):
        """Returns ({input: scale}, {input: number of rows} of constant inputs, number of elements that are not finite) of
        one pass. The scale is the root of the mean square; an input that is not finite has none. Under
        torch.no_grad()."""
        scales, constants, lost = {}, {}, 0
        for name, value in _named(inputs, words):
            square = _square(value)
            if not math.isfinite(square):  # an element, or the sum of large ones
                lost += _lost(name, value)
                continue
            if any(part in name for part in _TARGETS):
                continue
            name = f"{name}[{'*,' * (value.dim() - 1)}{value.shape[-1]}]"
            several = len(set(value[0].reshape(-1)[:_PROBED].tolist())) > _FEW
            if several and self._varies.setdefault(name, True):
                scales[name] = math.sqrt(square)
            elif square and self._varies.get(name) and self._is_constant(value):  # zeros may represent an input that is absent
                scales[name], constants[name] = math.sqrt(square), len(value)
            elif square:
                self._varies[name] = False
        return scales, constants, lost

    @staticmethod
    def _is_constant(value):
        """Returns whether all elements are equal in each row."""
        rows = value.reshape(len(value), -1)
        return len(rows) >= _ROWS and rows.shape[1] > _FEW and bool((rows == rows[:, :1]).all())
