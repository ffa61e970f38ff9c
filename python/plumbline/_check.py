"""check_router: runs a router on a batch and on variations of it, and reports which variations change its choices."""

import contextlib
import ctypes
import math
import random
import sys

from . import _library
from ._library import DISABLED, OK, INVALID_ARGUMENT, UNAVAILABLE, LibraryMissing
from ._tensors import Scratch, Unsupported, describe

_c = ctypes
_ROUTE = _c.CFUNCTYPE(_c.c_int32, _c.c_void_p, _c.c_void_p, _c.c_uint64, _c.c_void_p)


class _Check(_c.Structure):
    """plumbline_router_check_t."""

    _fields_ = [
        ("size", _c.c_uint32),
        ("max_calls", _c.c_uint32),
        ("seed", _c.c_uint64),
        ("route", _ROUTE),
        ("context", _c.c_void_p),
        ("logits", _c.c_void_p),
        ("sequence_id", _c.c_void_p),
        ("position", _c.c_void_p),
        ("padding_mask", _c.c_void_p),
        ("rank", _c.c_void_p),
        ("max_sequences", _c.c_uint32),
        ("reserved", _c.c_uint32),
    ]


class _Verdict(_c.Structure):
    """plumbline_router_verdict_t."""

    _fields_ = [
        ("size", _c.c_uint32),
        ("verdict", _c.c_int32),
        ("level", _c.c_int32),
        ("strength", _c.c_int32),
        ("future_share", _c.c_double),
        ("earlier_share", _c.c_double),
        ("later_share", _c.c_double),
        ("other_rank_share", _c.c_double),
        ("calls", _c.c_int64),
        ("witness_row", _c.c_int64),
        ("witness_sequence", _c.c_int64),
        ("witness_position", _c.c_int64),
        ("changed_sequence", _c.c_int64),
        ("changed_from", _c.c_int64),
        ("lost_expert", _c.c_int32),
        ("gained_expert", _c.c_int32),
        ("row", _c.c_char * 32),
        ("witness", _c.c_char * 512),
        ("explanation", _c.c_char * 1024),
        ("assumptions", _c.c_char * 512),
    ]


_VERDICTS = {1: "pass", 2: "finding", 3: "inconclusive"}
_LEVELS = {0: None, 1: "note", 2: "warning", 3: "error"}
_STRENGTHS = {0: None, 1: "heuristic", 2: "statistical", 3: "bounded", 4: "proved"}

_HEADLINES = {
    "clean": "no assignment moved",
    "batch-dependent": "routing depends on other sequences of the batch",
    "future-leak": "routing depends on later tokens",
    "nondeterministic": "the router gives different results for equal inputs",
    "not-tried": "no tokens could be replaced",
    "disabled": "PLUMBLINE_DISABLE is set, or this is a forked child",
}


class RouterCheckError(RuntimeError):
    """The router failed while it was checked, or its result is not a routing."""


class RouterVerdict:
    """The result of `check_router`.

    verdict      "pass", "finding" or "inconclusive"
    level        "error" (sees the future) or "warning" (sees other sequences); None without a finding
    strength     "proved" with a finding, else None
    row          "clean", "batch-dependent", "future-leak", "nondeterministic", "not-tried"
    future_share, earlier_share, later_share, other_rank_share
                 shares of the interventions that moved an assignment: later tokens of its own
                 sequence, a sequence before, one after, one of another rank; None: not tried
    witness      dict: row, sequence, position, lost_expert, gained_expert, changed_sequence,
                 changed_from, text; or None
    explanation  the checks and their results
    assumptions  list of texts
    calls        number of calls of the router
    """

    def __init__(self, raw):
        text = lambda field: field.decode("utf-8", "replace")
        share = lambda value: None if math.isnan(value) else value
        self.verdict = _VERDICTS[raw.verdict]
        self.level = _LEVELS[raw.level]
        self.strength = _STRENGTHS[raw.strength]
        self.row = text(raw.row)
        self.future_share = share(raw.future_share)
        self.earlier_share = share(raw.earlier_share)
        self.later_share = share(raw.later_share)
        self.other_rank_share = share(raw.other_rank_share)
        self.calls = raw.calls
        self.explanation = text(raw.explanation)
        self.assumptions = [a for a in text(raw.assumptions).split("; ") if a]
        self.witness = None
        if raw.witness_row >= 0:
            expert = lambda e: None if e < 0 else e
            self.witness = {
                "row": raw.witness_row,
                "sequence": raw.witness_sequence,
                "position": raw.witness_position,
                "lost_expert": expert(raw.lost_expert),
                "gained_expert": expert(raw.gained_expert),
                "changed_sequence": raw.changed_sequence,
                "changed_from": raw.changed_from,
                "text": text(raw.witness),
            }

    def __repr__(self):
        grade = f" ({self.level}, {self.strength})" if self.level else ""
        lines = [f"{self.verdict}{grade}: {_HEADLINES.get(self.row, self.row)}"]
        if self.witness:
            lines.append("  witness: " + self.witness["text"])
        lines.append("  " + self.explanation)
        lines += ["  assuming: " + assumption for assumption in self.assumptions]
        return "\n".join(lines)


def _torch():
    module = sys.modules.get("torch")
    return module if module is not None and hasattr(module, "Tensor") else None


@contextlib.contextmanager
def _seeds_restored(device):
    """Restores the generators, so that a check changes nothing in the trainer."""
    torch, numpy = _torch(), sys.modules.get("numpy")
    python = random.getstate()
    host = torch.get_rng_state() if torch else None
    cuda = torch.cuda.get_rng_state(device) if torch and device is not None else None
    array = numpy.random.get_state() if numpy else None
    try:
        yield
    finally:
        random.setstate(python)
        if torch:
            torch.set_rng_state(host)
        if cuda is not None:
            torch.cuda.set_rng_state(cuda, device)
        if numpy:
            numpy.random.set_state(array)


def _seed(seed):
    random.seed(seed)
    torch, numpy = _torch(), sys.modules.get("numpy")
    if torch:
        torch.manual_seed(seed)
    if numpy:
        numpy.random.seed(seed % 2**32)


class _TorchBatch:
    """torch logits: the router gets a fresh tensor of their dtype on their device."""

    def __init__(self, torch, logits):
        self._torch = torch
        self.shape = tuple(logits.shape)
        self.device = logits.device if logits.is_cuda else None
        self._like = logits
        self.host = logits.detach().cpu().contiguous()

    def fresh(self, address):
        torch, like = self._torch, self._like
        count = self.host.numel() * self.host.element_size()
        block = bytearray((_c.c_char * count).from_address(address))
        return torch.frombuffer(block, dtype=like.dtype).reshape(self.shape).to(like.device)

    def quiet(self):
        return self._torch.no_grad()


class _NumpyBatch:
    """numpy logits: the router gets a fresh array."""

    device = None

    def __init__(self, numpy, logits):
        self._numpy = numpy
        self.shape = tuple(logits.shape)
        self.host = numpy.ascontiguousarray(logits)

    def fresh(self, address):
        count = self.host.size * self.host.itemsize
        block = bytearray((_c.c_char * count).from_address(address))
        return self._numpy.frombuffer(block, dtype=self.host.dtype).reshape(self.shape)

    def quiet(self):
        return contextlib.nullcontext()


def _batch(logits):
    torch, numpy = _torch(), sys.modules.get("numpy")
    if torch is not None and isinstance(logits, torch.Tensor):
        batch = _TorchBatch(torch, logits)
    elif numpy is not None and isinstance(logits, numpy.ndarray):
        batch = _NumpyBatch(numpy, logits)
    else:
        raise TypeError(f"logits: expected a torch tensor or a numpy array, not {type(logits).__name__}")
    if len(batch.shape) != 2:
        raise ValueError(f"logits: expected shape [T, E], found {list(batch.shape)}; reshape them, and "
                         "let the router reshape its input")
    return batch


# ---- the router's answers -----------------------------------------------------------------------


def _as_torch_or_numpy(what, value):
    """Returns (module, array) with a host array of integers, floats or bool."""
    torch, numpy = _torch(), sys.modules.get("numpy")
    if torch is not None and isinstance(value, torch.Tensor):
        return torch, value.detach().cpu()
    if numpy is not None and hasattr(value, "__array__"):
        return numpy, numpy.asarray(value)
    if isinstance(value, (list, tuple)) and (numpy or torch):
        return (numpy, numpy.asarray(value)) if numpy else (torch, torch.tensor(value))
    raise TypeError(f"{what}: expected a torch tensor or a numpy array, not {type(value).__name__}")


def _is_integer(module, array):
    if module is _torch():
        return array.dtype != module.bool and not array.dtype.is_floating_point
    return array.dtype.kind in "iu"


def _is_permutation(module, array):
    """Returns whether every row holds each of 0..E-1 once: then they are indices of k = E choices, not a map."""
    ordered = module.sort(array, 1)
    ordered = ordered[0] if module is _torch() else ordered
    return bool((ordered == module.arange(array.shape[1])).all())


def _fates_of_indices(shape, indices, keep):
    tokens, experts = shape
    module, indices = _as_torch_or_numpy("indices", indices)
    if not _is_integer(module, indices) or tuple(indices.shape[:1]) != (tokens,) or indices.ndim != 2:
        raise ValueError(f"indices: expected integers [T, k] with T = {tokens}, found "
                         f"{indices.dtype} {list(indices.shape)}")
    if int(indices.max()) >= experts or int(indices.min()) < -1:
        raise ValueError(f"indices: expected 0 to {experts - 1}, or -1 for no choice, found "
                         f"{int(indices.min())} to {int(indices.max())}")
    if keep is None:
        fate = module.ones_like(indices)
    else:
        _, keep = _as_torch_or_numpy("keep_mask", keep)
        if tuple(keep.shape) != tuple(indices.shape):
            raise ValueError(f"keep_mask: expected the shape of the indices, {list(indices.shape)}, "
                             f"found {list(keep.shape)}")
        keep = module.asarray(keep) if hasattr(module, "asarray") else keep
        fate = module.where(keep != 0, module.ones_like(indices), module.full_like(indices, 2))
    # An additional column takes the missing choices.
    fates = module.zeros((tokens, experts + 1), dtype=module.uint8)
    column = module.where(indices < 0, module.full_like(indices, experts), indices)
    if module is _torch():
        fates.scatter_(1, column.long(), fate.to(module.uint8))
    else:
        module.put_along_axis(fates, column.astype(module.int64), fate.astype(module.uint8), 1)
    return module, fates[:, :experts]


def _fates(shape, answer):
    """Returns (module, [T,E] of 0 not chosen, 1 kept, 2 refused) from the result of a router."""
    if isinstance(answer, tuple) and len(answer) == 2:
        return _fates_of_indices(shape, *answer)
    module, array = _as_torch_or_numpy("the router's answer", answer)
    if _is_integer(module, array) and (
        tuple(array.shape) != tuple(shape) or _is_permutation(module, array)
    ):
        return _fates_of_indices(shape, array, None)
    if tuple(array.shape) != tuple(shape):
        raise ValueError(f"the router's answer: expected indices [T, k], (indices, keep_mask), or a map "
                         f"{list(shape)}, found {array.dtype} {list(array.shape)}")
    return module, array != 0


def _write(shape, answer, address):
    module, fates = _fates(shape, answer)
    if module is _torch():
        fates = fates.to(module.uint8).contiguous()
        source = fates.data_ptr()
    else:
        fates = module.ascontiguousarray(fates, dtype=module.uint8)
        source = fates.ctypes.data
    _c.memmove(address, source, shape[0] * shape[1])


# ---- the check ------------------------------------------------------------------------------------


class _Caller:
    """The C callback around a Python router; keeps the exception that it may not throw."""

    def __init__(self, route, batch):
        self._route, self._batch = route, batch
        self.error = None

    def __call__(self, _context, logits, seed, fates):
        try:
            data = _c.c_void_p.from_address(logits).value  # DLTensor.data comes first
            _seed(seed)
            with self._batch.quiet():
                answer = self._route(self._batch.fresh(data))
            _write(self._batch.shape, answer, fates)
            return 0
        except BaseException as error:  # check_router raises it again
            self.error = error
            return 1


def _columns(scratch, keep, **columns):
    addresses = {}
    for slot, (name, value) in enumerate(columns.items(), start=1):
        addresses[name] = None
        if value is None:
            continue
        torch = _torch()
        if torch is not None and isinstance(value, torch.Tensor):
            value = value.detach().cpu()
            keep.append(value)
        try:
            addresses[name] = scratch.put(slot, describe(value, 1, False, keep))
        except Unsupported as error:
            raise ValueError(f"{name}: expected {error}") from None
    return addresses


def check_router(route, logits, *, sequence_id=None, position=None, padding_mask=None, rank=None,
                 seed=1, max_calls=1000, max_sequences=4):  # fmt: skip
    """Checks whether a router's choice for a token depends on later tokens, or on other sequences.

    route          callable: logits [T, E] (a fresh torch tensor or numpy array, as `logits` is) ->
                   integer indices [T, k]; or (indices, keep_mask [T, k]); or a map [T, E] (bool, or
                   weights, where zero means not chosen)
    logits         an ordinary batch, [T, E], without NaN (-inf masks an expert)
    sequence_id, position, padding_mask, rank
                   [T] integers or bool; without sequence_id all rows are one sequence, without
                   position they are in time order, without rank another rank is not tried

    Runs `route` on the batch twice, then with suffixes and whole sequences replaced by random and by competing tokens,
    shapes and padding kept, and compares the choices exactly. Before every call random, numpy and torch are seeded with
    `seed`; afterwards their states are restored. Returns a RouterVerdict. Raises RouterCheckError if the router fails,
    ValueError or TypeError if the inputs are malformed, LibraryMissing without the library.
    """
    library = _library.load()
    batch = _batch(logits)
    scratch, keep = Scratch(), []
    caller = _Caller(route, batch)
    described = describe(batch.host, 2, False, keep)
    addresses = _columns(scratch, keep, sequence_id=sequence_id, position=position,
                         padding_mask=padding_mask, rank=rank)  # fmt: skip
    check = _Check(
        size=_c.sizeof(_Check), max_calls=max_calls, seed=seed, route=_ROUTE(caller),
        logits=scratch.put(0, described), max_sequences=max_sequences, **addresses,
    )  # fmt: skip
    raw = _Verdict(size=_c.sizeof(_Verdict))
    with _seeds_restored(batch.device):
        status = library.blocking.plumbline_check_router(_c.byref(check), _c.byref(raw))
    if caller.error is not None:
        _raise(caller.error, library.last_error())
    if status == DISABLED:
        return _disabled()
    if status == INVALID_ARGUMENT:
        raise ValueError(library.last_error())
    if status != OK:
        kind = LibraryMissing if status == UNAVAILABLE else RouterCheckError
        raise kind(f"{library.status_name(status)}: {library.last_error()}")
    return RouterVerdict(raw)


def _raise(error, where):
    if not isinstance(error, Exception):
        raise error  # KeyboardInterrupt, SystemExit
    where = where.rpartition(": route returned")[0] or where
    raise RouterCheckError(f"{where}: {type(error).__name__}: {error}") from error


def _disabled():
    raw = _Verdict(verdict=3, witness_row=-1, row=b"disabled")
    raw.future_share = raw.earlier_share = raw.later_share = raw.other_rank_share = math.nan
    raw.explanation = b"Nothing was run: PLUMBLINE_DISABLE is set, or this is a forked child."
    return RouterVerdict(raw)
