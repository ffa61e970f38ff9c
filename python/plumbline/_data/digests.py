"""Digests of the token ids of each micro-batch that is trained on: the evidence of health/repeated-data (decision 0125).

A row's digest is the sum of its ids times odd random keys, modulo 2^64. A permutation of the 64-bit numbers, x (2 x + c) with an odd c, is
applied to it. The digest of several rows is the sum of their digests, so the order of rows, and their split into micro-batches and ranks, have
no influence.
"""

import sys

from .._library import CAPTURING, NO_STEP
from .._watching.ddp import lowest_rank
from .loaded import Loaded

_MOST_CPU, _MOST_DEVICE = 1 << 12, 1 << 18  # the most ids of a micro-batch that are read
_MOST_ROWS = 64  # the most rows that are summed in Python
_FIRST = 4  # steps in which the facts on the data loader are recorded
_MASK = (1 << 64) - 1


def mixed(number):
    """Returns a 64-bit number from `number` (splitmix64)."""
    z = (number + 1) * 0x9E3779B97F4A7C15 & _MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
    return z ^ z >> 31


def signed(number):
    return number - (1 << 64) if number >> 63 else number


class Keys:
    """Random odd keys, one for each position in a row, on each device."""

    def __init__(self):
        self._numbers, self._tensors = [], {}

    def of(self, length, device):
        """Returns the int64 tensor of the first `length` keys, and the odd number of rows of this length."""
        known = self._tensors.get((length, device))
        if known is None:
            torch = sys.modules["torch"]
            self._numbers += [signed(mixed(at) | 1) for at in range(len(self._numbers), length)]
            if len(self._tensors) >= 64:  # batches that are padded to their longest row have many lengths
                self._tensors.clear()
            keys = torch.tensor(self._numbers[:length], dtype=torch.int64).to(device)
            known = self._tensors[length, device] = keys, signed(mixed(~length) | 1)
        return known


KEYS = Keys()


def part(ids, most):
    """Returns rows of `ids` with at most `most` elements, or the beginning of one row."""
    shape = ids.shape
    length = shape[-1]
    if len(shape) != 2:
        ids = ids.reshape(-1, length)
    if shape.numel() <= most:
        return ids
    if length >= most:
        return ids[:1, :most]
    rows = most // length
    return ids[:: -(-len(ids) // rows)]


def digest(ids):
    """Returns the digest of a tensor of integers with two axes or more: a number below 2^64, or for a device an int64 tensor there."""
    on_cpu = ids.is_cpu
    ids = part(ids, _MOST_CPU if on_cpu else _MOST_DEVICE)
    number, length = ids.shape
    keys, odd = KEYS.of(length, ids.device)
    if not on_cpu:
        rows = (ids * keys).sum(1)
        return rows.mul(2).add_(odd).mul_(rows).sum()
    rows = (ids if ids.dtype is keys.dtype else ids.long()).matmul(keys)
    if number > _MOST_ROWS:
        return rows.mul(2).add_(odd).mul_(rows).sum().item() & _MASK
    return sum([row * (2 * row + odd) for row in rows.tolist()]) & _MASK  # a call of torch costs 15 us if nothing is cached


class Digests:
    """The digests of one watch."""

    def __init__(self, run):
        self._run, self._values, self._pending, self._step = run, [], [], NO_STEP
        self._on = not run._redacts
        self._steps, self._facts = 0, None  # number of steps with a digest; what the first of them show of the loader
        Loaded.digest = digest
        self.failed = None

    def takes(self, ids, step):
        """Called before a forward pass that is trained on, with its token ids."""
        if not self._on or step >= CAPTURING:
            return
        torch = sys.modules["torch"]
        if type(ids) is not torch.Tensor or not ids.numel() or ids.is_complex():
            return
        if step != self._step:
            self._step, self._values, self._pending = step, [], []
        try:
            self._take(torch, ids)
        except Exception as error:  # a dtype or a device that lacks an operation
            self._on, self.failed = False, repr(error)

    def _take(self, torch, ids):
        if ids.is_cpu:
            self._values.append(digest(ids))
        elif ids.device.type == "cuda" and not torch.cuda.is_current_stream_capturing():
            copied = digest(ids).to("cpu", non_blocking=True)
            done = torch.cuda.Event()
            done.record()
            self._pending.append((copied, done))

    def step_ends(self, ddp):
        """Records the digest of the open step. Never waits for a device: if a copy is not complete, the step has none."""
        if self._step != self._run._step or self._step == NO_STEP:
            return
        values, pending = self._values, self._pending
        self._values, self._pending, self._step = [], [], NO_STEP
        if not (values or pending) or not all(done.query() for _, done in pending):
            return
        values += [copied.item() & _MASK for copied, _ in pending]
        self._record_loader(values)
        value = sum(values) & _MASK
        self._record("high", value >> 32)
        self._record("low", value & 0xFFFFFFFF)
        if self._steps == 1:
            self._record("begins", 1)
            group = lowest_rank(ddp)
            if group is not None:
                self._record("group", group)

    def _record(self, name, value):
        self._run._own_scalar(f"batch_digest/{name}", value)

    def _record_loader(self, values):
        """Records the facts on the loader that hold in the second step and in the two steps after it."""
        self._steps += 1
        if self._steps <= _FIRST:
            fact = Loaded.count()
            self._facts = fact if self._steps == 2 or fact == self._facts else None
        if self._steps == _FIRST and self._facts is not None:
            for name, fact in zip(("epoch", "shuffles", "batches"), self._facts):
                if fact is not None:
                    self._record(name, fact)
        if Loaded.rounds is not None:
            Loaded.rounds.trained(values)
            for name, fact in Loaded.rounds.facts().items():
                self._record(name, fact)
