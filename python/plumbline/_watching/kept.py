"""Measures the factor by which a trainer multiplies its gradients between backward and the optimizer's step: a loss
scale of its own, or a division by the number of micro-batches or tokens. The step's loss is recorded with the same
factor."""

import math
import sys

from .._gradients.leftover import few

# Number of first steps, which are all measured; a later step is measured only if it has several micro-batches, or if a
# factor was found before.
_FIRST = 4
_ELEMENTS, _PARAMETERS = 32, 2
_CLOSE = 1e-4  # tolerance to a power of two, or to the number of micro-batches
_MOST_TOKENS = 1 << 20


class Kept:
    """The factor of one watch with one optimizer."""

    def __init__(self, trained):
        self._candidates = few([p for _, p in trained if p.is_floating_point()])
        self._some, self._on, self._number = None, False, None
        self._before = self._after = None
        self.others = False  # whether in the last ended step the optimizer got other gradients than the last pass left

    @property
    def open(self):
        """Returns whether gradients were sampled and no step has ended since."""
        return self._before is not None

    @property
    def found(self):
        """Returns whether the trainer multiplies its gradients."""
        return self._on

    def wants(self, step, micro, dropped):
        """Returns whether a step is measured. dropped: gradients of the step were cleared between two of its passes."""
        return self._on or step < _FIRST or micro > 1 or dropped

    def backward_ends(self):
        self._before = self._sample()

    def before_update(self):
        self._after = self._sample()

    def _sample(self):
        torch = sys.modules["torch"]
        if not self._some:
            self._some = [p for p in self._candidates if _plain(p) and bool(p.grad.any())][:_PARAMETERS]
        held = [p.grad.detach().reshape(-1)[:_ELEMENTS] for p in self._some if _plain(p)]
        return torch.cat(held).double() if held else None

    def factor(self, micro, clips, scale):
        """Called at the step's end. Returns the factor; 1 if the change of the gradients is not understood. `scale`:
        the scale of the scaler that has unscaled the gradients."""
        before, after = self._before, self._after
        self._before = self._after = None
        self.others = False
        if before is None or after is None or before.numel() != after.numel():
            return 1.0
        square, product = float(before @ before), float(before @ after)
        kept = product / square if square > 0 else math.nan
        if not (math.isfinite(kept) and kept > 0 and float((after - kept * before).norm()) <= _CLOSE * float(after.norm())):
            self.others = bool((after != before).any()) and bool(after.isfinite().all())
            return 1.0
        for clip in clips:
            kept /= clip.factor() or math.nan
        kept *= scale
        factor = self._known(kept, micro)
        self._on |= factor is not None and factor != 1
        return 1.0 if factor is None else factor

    def _known(self, kept, micro):
        """Returns the factor that `kept` is within rounding; None if it is none of the known ones."""
        if not kept > 0:
            return None
        power = math.log2(kept)
        if abs(power - round(power)) <= _CLOSE or abs(kept * micro - 1) <= _CLOSE:
            self._number = None
            return 2.0 ** round(power) if abs(power - round(power)) <= _CLOSE else 1 / micro
        count = 1 / kept  # the number of tokens, perhaps: the trainer's own clip may look like such a number in one step, but not in two
        whole = 1 < count < _MOST_TOKENS and abs(count - round(count)) <= 1e-6 * count
        twice, self._number = whole and self._number is not None, count if whole else None
        return kept if twice else None


def _plain(parameter):
    gradient = parameter.grad
    return type(gradient).__name__ == "Tensor" and not gradient.is_sparse and gradient.device.type == "cpu"
