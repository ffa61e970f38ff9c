"""The update ratio: the change of the weights in a step, divided by their size; one number for the whole model."""

import array
import math
import sys

_MOST = 16  # the most parameters that are read: the largest ones
_ELEMENTS = 256  # number of elements that are read of each: an element that is not cached costs 20 ns


class _InHand:
    """Reads parameters of fp32 in host memory by one call of the library; an operation of torch costs 100 us in a
    training step."""

    def __init__(self, library, strides):
        """strides: (parameter, stride) pairs. """
        self._library = library
        counts = [min(_ELEMENTS, -(-p.numel() // stride)) for p, stride in strides]
        self._stand_for = [p.numel() / n for (p, _), n in zip(strides, counts)]
        self._data = array.array("Q", [p.data_ptr() for p, _ in strides])
        self._arrays = [self._data, array.array("Q", [stride for _, stride in strides]), array.array("Q", counts)]
        self._kept, self._squares = array.array("f", bytes(4 * sum(counts))), array.array("d", bytes(16 * len(strides)))
        self._given = [a.buffer_info()[0] for a in self._arrays]

    @staticmethod
    def fits(strides):
        torch = sys.modules["torch"]
        return all(p.dtype is torch.float32 and p.device.type == "cpu" and p.is_contiguous() for p, _ in strides)

    def lies(self, strides):
        """Returns whether the addresses are unchanged, with the same number of elements."""
        return all(p.data_ptr() == at for (p, _), at in zip(strides, self._data))

    def _call(self, squares):
        if self._library.plumbline_moved(*self._given, len(self._data), self._kept.buffer_info()[0], squares) < 0:
            raise RuntimeError("update ratio: refused")

    def before(self):
        self._call(None)

    def after(self):
        self._call(self._squares.buffer_info()[0])
        changed = sum(map(float.__mul__, self._stand_for, self._squares[0::2]))
        was = sum(map(float.__mul__, self._stand_for, self._squares[1::2]))
        return math.sqrt(changed) / math.sqrt(was) if was else None


class Ratio:
    """|change| / |weight| over a few elements of the largest parameters, weighted by the elements that each one
    represents."""

    def __init__(self, library, parameters):
        """Chooses the parameters from (name, parameter) pairs. Biases and gains have no scale of their own; shards are
        not complete here."""
        torch = sys.modules["torch"]
        wide = [p for _, p in parameters if type(p) is torch.nn.Parameter and p.device.type in ("cpu", "cuda")]
        wide = [p for p in wide if p.dim() > 1 and p.is_floating_point() and p.numel()]
        wide = sorted(wide, key=lambda p: -p.numel())[:_MOST]
        wide = [p for p in wide if p.device == wide[0].device]
        # The strides are odd, so that the samples are not all in one column.
        self._strides = [(p, max(1, p.numel() // _ELEMENTS) | 1) for p in wide]
        self._stand_for = None  # square roots of the number of elements that each sample represents
        if any(stride > 1 for _, stride in self._strides):
            counts = [min(_ELEMENTS, -(-p.numel() // stride)) for p, stride in self._strides]
            each = [torch.full((n,), math.sqrt(p.numel() / n)) for (p, _), n in zip(self._strides, counts)]
            self._stand_for = torch.cat(each).to(wide[0].device)
        self._before = self._where = self._views = None
        self._library, self._in_hand, self._sizes = library, None, [p.numel() for p, _ in self._strides]

    def _elements(self):
        """Returns views of the elements, made again only if a parameter has moved: slicing costs more than reading."""
        where = [(p.data_ptr(), p.numel()) for p, _ in self._strides]
        if self._where != where:
            self._views = [p.detach().reshape(-1)[::stride][:_ELEMENTS] for p, stride in self._strides]
            self._where = where if all(p.is_contiguous() for p, _ in self._strides) else None  # if a parameter is not contiguous, its view is a copy
        return self._views

    def _now(self):
        torch = sys.modules["torch"]
        now = torch.cat(self._elements())
        return now if now.dtype is torch.float64 else now.float()

    def _lie_in_hand(self):
        """Returns whether no parameter has moved or has another size or type."""
        if [p.numel() for p, _ in self._strides] != self._sizes or not _InHand.fits(self._strides):
            return False
        if self._in_hand is None or not self._in_hand.lies(self._strides):
            self._in_hand = _InHand(self._library, self._strides)
        return True

    def before(self):
        self._before = None
        if not self._strides:
            return
        if self._lie_in_hand():
            self._in_hand.before()
            self._before = self._in_hand
        else:
            self._before = self._now()

    def after(self):
        """Returns the ratio since before(). Returns None if nothing was kept, or if the weights are zero or were split
        since then."""
        torch = sys.modules["torch"]
        before, self._before = self._before, None
        if before is None:
            return None
        if isinstance(before, _InHand):
            fits = self._lie_in_hand() and self._in_hand is before  # if not, the kept samples were replaced since before()
            return before.after() if fits else None
        now = self._now()
        if any(other is not None and other.numel() != now.numel() for other in (before, self._stand_for)):
            return None
        change = now - before
        if self._stand_for is not None:
            change, before = change * self._stand_for, before * self._stand_for
        moved, weight = torch.stack([change.norm(), before.norm()]).tolist()
        return moved / weight if weight else None
