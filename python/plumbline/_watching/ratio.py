"""How far a step moved the weights, against what they are: one number for the whole model."""

import math
import sys

_MOST = 16  # parameters: the largest
_ELEMENTS = 256  # of each: where a cache is cold, one costs 20 ns


class Ratio:
    """|change| / |weight| over a few elements of the largest parameters, each counted for those it stands for."""

    def __init__(self, parameters):
        """Of (name, parameter) pairs. Biases and gains have no scale of their own; shards are not whole here."""
        torch = sys.modules["torch"]
        wide = [p for _, p in parameters if type(p) is torch.nn.Parameter and p.device.type in ("cpu", "cuda")]
        wide = [p for p in wide if p.dim() > 1 and p.is_floating_point() and p.numel()]
        wide = sorted(wide, key=lambda p: -p.numel())[:_MOST]
        wide = [p for p in wide if p.device == wide[0].device]
        # Odd, so that it does not stay in one column.
        self._strides = [(p, max(1, p.numel() // _ELEMENTS) | 1) for p in wide]
        self._stand_for = None  # roots of how many elements each one stands for
        if any(stride > 1 for _, stride in self._strides):
            counts = [min(_ELEMENTS, -(-p.numel() // stride)) for p, stride in self._strides]
            each = [torch.full((n,), math.sqrt(p.numel() / n)) for (p, _), n in zip(self._strides, counts)]
            self._stand_for = torch.cat(each).to(wide[0].device)
        self._before = self._where = self._views = None

    def _elements(self):
        """Views of them, made anew only where a parameter lies elsewhere: slicing costs more than what it gives."""
        where = [(p.data_ptr(), p.numel()) for p, _ in self._strides]
        if self._where != where:
            self._views = [p.detach().reshape(-1)[::stride][:_ELEMENTS] for p, stride in self._strides]
            self._where = where if all(p.is_contiguous() for p, _ in self._strides) else None  # else they are copies
        return self._views

    def _now(self):
        torch = sys.modules["torch"]
        now = torch.cat(self._elements())
        return now if now.dtype is torch.float64 else now.float()

    def before(self):
        self._before = self._now() if self._strides else None

    def after(self):
        """The ratio since before(); None where nothing was kept, the weights are zero, or were taken apart meanwhile."""
        torch = sys.modules["torch"]
        before, self._before = self._before, None
        if before is None:
            return None
        now = self._now()
        if any(other is not None and other.numel() != now.numel() for other in (before, self._stand_for)):
            return None
        change = now - before
        if self._stand_for is not None:
            change, before = change * self._stand_for, before * self._stand_for
        moved, weight = torch.stack([change.norm(), before.norm()]).tolist()
        return moved / weight if weight else None
