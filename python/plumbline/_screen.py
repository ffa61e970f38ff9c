"""Screens every step on its own rank. If a value is notable, measurements are made at once and in the next steps.

A screening only decides when to measure, so it may be wrong in both directions; verdicts come from the measurements.
It is cheap: it reads one number per tensor, and only so often that its cost stays a small share of the step's time.
"""

import array
import math
import sys
from hashlib import blake2b

from ._library import OK
from ._tensors import local

_LOOK = 8  # number of steps in which measurements follow a notable value
_FAR = 10.0  # a gradient's norm is notable if more powers of two than this are between it and its usual value
_SETTLED = 8  # observations of a norm (of a loss, twice as many) before one of its values can be notable
_ZEROS, _AGAIN = 4, 100  # observations of a norm that was always zero, then a measurement is due; steps until the second one, which its rule needs
_STOPPED = 3  # updates that do not change a parameter, although its gradient is not zero, before this is notable
_WORDS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}


def norms(library, tensors):
    """Returns the Euclidean norm of each tensor, in fp32 at least. On a device waits for the numbers once."""
    torch = sys.modules["torch"]
    if all(t.dtype is torch.float32 and not t.is_cuda and t.is_contiguous() for t in tensors):
        data = array.array("Q", [t.data_ptr() for t in tensors])
        counts = array.array("Q", [t.numel() for t in tensors])
        out = array.array("d", bytes(8 * len(data)))
        if library.plumbline_square_sums(*(a.buffer_info()[0] for a in (data, counts)), len(data), out.buffer_info()[0]) < 0:
            raise RuntimeError("norms: refused")
        return [math.sqrt(square) if square == square else square for square in out]
    each = [_norm(t.detach()).double() for t in tensors]
    return torch.stack([one.cpu() for one in each] if len({t.device for t in each}) > 1 else each).tolist()


def _norm(tensor):
    torch = sys.modules["torch"]
    wide = tensor.dtype in (torch.float64, torch.complex64, torch.complex128)
    if not hasattr(torch.linalg, "vector_norm"):  # torch before 1.10
        return (tensor if wide else tensor.float()).norm()
    return torch.linalg.vector_norm(tensor, dtype=None if wide else torch.float32)


def total_norm(each):
    """Returns the norm of all tensors together, from the norm of each."""
    total = 0.0
    for one in each:
        total = math.hypot(total, one)
    return total


def _words_sum(tensor):
    """Returns the sum of a tensor's bits as words of 64, modulo 2^64: any single flipped bit changes it."""
    torch = sys.modules["torch"]
    flat = tensor.detach()
    size = flat.element_size()
    if flat.is_contiguous() and flat.numel() * size % 8 == 0 and flat.numel():
        return flat.reshape(-1).view(torch.int64).sum()
    return flat.view(getattr(torch, _WORDS[size])).sum(dtype=torch.int64)


class Checksums:
    """Returns one number for each of some tensors, by the library if all of them are complete in host memory."""

    def __init__(self, library, tensors):
        self._library, self._tensors = library, tensors
        self._where = None  # addresses of the last call
        self._data = self._bytes = self._sums = None

    def __call__(self):
        torch = sys.modules["torch"]
        where = [local(t).data_ptr() for t in self._tensors]
        if where != self._where:
            self._where = where
            self._data = None
            here = [local(t) for t in self._tensors]
            if all(t.device.type == "cpu" and t.is_contiguous() for t in here):
                self._data = array.array("Q", where)
                self._bytes = array.array("Q", [t.numel() * t.element_size() for t in here])
                self._sums = array.array("Q", bytes(8 * len(where)))
        if self._data is None:
            return torch.stack([_words_sum(local(t)).cpu() for t in self._tensors]).tolist()
        data, sizes, sums = (a.buffer_info()[0] for a in (self._data, self._bytes, self._sums))
        if self._library.plumbline_checksums(data, sizes, len(where), sums) < 0:
            raise RuntimeError("checksums: refused")
        return self._sums.tolist()


def combined(sums):
    """Returns one checksum of all parameters, short enough for a double."""
    digest = blake2b(repr(sums).encode(), digest_size=6).digest()
    return int.from_bytes(digest, "little")


class Screen:
    """Learns the usual norms and losses. Each check returns why a measurement is due, or None."""

    def __init__(self):
        self._usual = {}  # name -> [observations, mean of log2 of the norm]
        self._zeros = {}  # name -> [how often the norm was zero, the step of the next measurement, how many followed]
        self._notable = set()  # names that were reported; each is reported again only after its value was usual
        self._sums = None
        self._unchanged = {}
        self._loss = {}  # which -> (observations, mean, variance)

    def gradients(self, names, values, step):
        why = None
        for name, value in zip(names, values):
            found = self._gradient(name, value, step)
            if found is None:
                self._notable.discard(name)
            elif name not in self._notable:
                self._notable.add(name)
                why = why or f"{name}: {found}"
        return why

    def _gradient(self, name, value, step):
        if not math.isfinite(value):
            return "the gradient is not finite"
        usual = self._usual.setdefault(name, [0, 0.0])
        settled = usual[0] >= _SETTLED
        if value == 0.0:
            return "the gradient is zero" if settled or self._zero_again(name, step) else None
        exponent = math.log2(value)
        far = settled and abs(exponent - usual[1]) > _FAR
        usual[0] += 1
        usual[1] += (exponent - usual[1]) / min(usual[0], 32)
        return "the gradient changed strongly" if far else None

    def _zero_again(self, name, step):
        """Called for a norm that was always zero. Returns whether a measurement is due."""
        zeros = self._zeros.setdefault(name, [0, 0, 0])
        zeros[0] += 1
        if zeros[2] == 2 or zeros[0] < _ZEROS or (zeros[2] == 1 and step < zeros[1] + _AGAIN):
            return False
        zeros[1:] = step, zeros[2] + 1
        return True

    def weights(self, names, sums, moving):
        """Checks whether weights still change. `moving`: names of parameters whose gradient and learning rate are not
        zero."""
        before, self._sums = self._sums, sums
        if before is None or len(before) != len(sums):
            return None
        why = None
        for name, old, new in zip(names, before, sums):
            count = self._unchanged.get(name, 0) + 1 if old == new and name in moving else 0
            self._unchanged[name] = count
            if count == _STOPPED:
                why = why or f"{name}: it no longer changes"
        return why

    def level(self):
        """Returns (observations, mean, variance) of the loss of a loop with one optimizer."""
        return self._loss.get(None, (0, 0.0, 0.0))

    def set_level(self, level):
        self._loss[None] = level

    def loss(self, value, which=None):
        """Checks a loss. `which`: its backward pass; each pass has its own usual values."""
        if not math.isfinite(value):
            first = "loss" not in self._notable
            self._notable.add("loss")
            return "the loss is not finite" if first else None
        count, mean, variance = self._loss.get(which, (0, 0.0, 0.0))
        jumped = count >= 2 * _SETTLED and value - mean > 6 * math.sqrt(variance) and value > 1.5 * mean
        weight = 1 / min(count + 1, 64)
        self._loss[which] = (count + 1, mean + weight * (value - mean), (1 - weight) * (variance + weight * (value - mean) ** 2))
        first = jumped and "loss" not in self._notable
        (self._notable.add if jumped else self._notable.discard)("loss")
        return "the loss jumped" if first else None


def look(run, why):
    """Requests observations that are not due, if there is a reason and the budget allows it. `why`: the reason, or
    None."""
    if why is not None:
        if run._short.plumbline_look(run._handle, _LOOK) == OK:
            run._noticed(_LOOK)
