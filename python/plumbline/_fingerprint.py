"""fingerprint: names the order and the arithmetic of a sum, dot, product or all-reduce by its outputs."""

import ctypes
import inspect
import sys

from . import _library
from ._library import DISABLED, INVALID_ARGUMENT, OK, UNAVAILABLE, LibraryMissing

_c = ctypes
_DOUBLES = _c.POINTER(_c.c_double)
_SUM = _c.CFUNCTYPE(_c.c_int32, _c.c_void_p, _DOUBLES, _DOUBLES, _c.c_uint64, _c.c_uint32, _DOUBLES)


class _DataType(_c.Structure):
    """DLDataType."""

    _fields_ = [("code", _c.c_uint8), ("bits", _c.c_uint8), ("lanes", _c.c_uint16)]


class _Sum(_c.Structure):
    """plumbline_sum_t."""

    _fields_ = [
        ("size", _c.c_uint32),
        ("kind", _c.c_int32),
        ("n", _c.c_uint64),
        ("input", _DataType),
        ("output", _DataType),
        ("sum", _SUM),
        ("context", _c.c_void_p),
        ("name", _c.c_char_p),
        ("library", _c.c_char_p),
        ("seed", _c.c_uint64),
        ("samples", _c.c_uint32),
        ("batches", _c.c_int32),
    ]


class _Result(_c.Structure):
    """plumbline_fingerprint_result_t."""

    _fields_ = [
        ("size", _c.c_uint32),
        ("verdict", _c.c_int32),
        ("calls", _c.c_int64),
        ("tree_calls", _c.c_int64),
        ("matches", _c.c_int32),
        ("samples", _c.c_int32),
        ("tree", _c.c_char * 32),
        ("evidence", _c.c_char * 512),
        ("order", _c.c_char * 1024),
        ("arithmetic", _c.c_char * 1024),
        ("text", _c.c_char * 8192),
        ("contract", _c.c_char * 16384),
    ]


_KINDS = {"sum": 0, "dot": 1, "gemm": 2, "all-reduce": 3}
_DTYPES = {"f64": (2, 64), "f32": (2, 32), "f16": (2, 16), "bf16": (4, 16)}
_VERDICTS = ("verified", "order-only", "no-order", "nondeterministic")
_TORCH = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16"}


class FingerprintError(RuntimeError):
    """The function failed while its fingerprint was computed."""


class Fingerprint:
    """The result of `fingerprint`.

    verdict     "verified" (replayed on every sample, to the bit), "order-only" (its arithmetic is
                unexplained), "no-order" or "nondeterministic"
    order, arithmetic
                in words; arithmetic is empty unless verified
    tree        hash of the order
    evidence    why it is not verified
    matches, samples
                number of samples that were replayed to the bit, and number of all
    calls, tree_calls
                of the function; of them for the order
    contract    TOML; save() writes it
    """

    def __init__(self, raw):
        text = lambda field: field.decode("utf-8", "replace")
        self.verdict = _VERDICTS[raw.verdict]
        self.order, self.arithmetic = text(raw.order), text(raw.arithmetic)
        self.tree, self.evidence = text(raw.tree), text(raw.evidence)
        self.matches, self.samples = raw.matches, raw.samples
        self.calls, self.tree_calls = raw.calls, raw.tree_calls
        self.contract = text(raw.contract)
        self._text = text(raw.text)

    def save(self, path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.contract)

    def __repr__(self):
        return self._text.rstrip("\n")


# ---- calls of a Python function, or of a torch operation by name -----------------------------------


def _arrays(dtype):
    """Returns a function (address, count) -> the array for the tested function: a tensor if torch is loaded."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None:
        target = getattr(torch, _TORCH[dtype])

        def convert(address, count):
            block = (_c.c_double * count).from_address(_c.addressof(address.contents))
            return torch.frombuffer(block, dtype=torch.float64).to(target, copy=True)

    elif numpy is not None and dtype != "bf16":

        def convert(address, count):
            return numpy.ctypeslib.as_array(address, (count,)).astype(_TORCH[dtype])

    else:
        raise LibraryMissing(f"fingerprint: expected torch to be imported for {dtype}" +
                             ("" if dtype == "bf16" else ", or numpy"))  # fmt: skip
    return convert


def _torch_operation(name, kind):
    """Returns (function of (a[, b][, batch]), kind) for "torch.sum", "torch.matmul", ..."""
    import torch

    def padded(row, batch):
        rows = torch.ones((batch, row.numel()), dtype=row.dtype)
        rows[batch // 2] = row
        return rows

    def matmul(a, b, batch=1):
        columns = torch.ones((b.numel(), 8), dtype=b.dtype)
        columns[:, 4] = b
        return torch.matmul(padded(a, batch), columns)[batch // 2, 4]

    def linear(a, b, batch=1):
        return torch.nn.functional.linear(padded(a, batch), padded(b, 8))[batch // 2, 4]

    def index_add(a):
        return torch.zeros(1, dtype=a.dtype).index_add_(0, torch.zeros(a.numel(), dtype=torch.long), a)

    def embedding_backward(a):
        weight = torch.zeros((2, 1), dtype=a.dtype, requires_grad=True)
        out = torch.nn.functional.embedding(torch.ones(a.numel(), dtype=torch.long), weight)
        out.backward(a.reshape(-1, 1))
        return weight.grad[1, 0]

    operations = {
        "torch.sum": ("sum", lambda a, batch=1: padded(a, batch).sum(1)[batch // 2]),
        "torch.mean": (None, None),
        "torch.cumsum": ("sum", lambda a: torch.cumsum(a, 0)[-1]),
        "torch.index_add": ("sum", index_add),
        "torch.nn.functional.embedding.backward": ("sum", embedding_backward),
        "torch.dot": ("dot", torch.dot),
        "torch.matmul": ("gemm", matmul),
        "torch.mm": ("gemm", matmul),
        "torch.nn.functional.linear": ("gemm", linear),
    }
    operations.pop("torch.mean")  # a mean divides, so it is not a plain sum
    if name not in operations:
        raise ValueError(f"fingerprint: expected a callable or one of {', '.join(sorted(operations))}, "
                         f"found {name!r}")
    own, function = operations[name]
    if kind not in (None, own):
        raise ValueError(f"fingerprint: {name} is a {own}, found kind={kind!r}")
    return function, own


def _takes_batch(function):
    try:
        return "batch" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


class _Caller:
    """The C callback; keeps the exception that it may not throw."""

    def __init__(self, function, products, batches, dtype):
        self._function, self._products, self._batches = function, products, batches
        self._convert = _arrays(dtype)
        self.error = None

    def __call__(self, _context, a, b, n, batch, y):
        try:
            arrays = [self._convert(a, n)]
            if self._products:
                arrays.append(self._convert(b, n))
            extra = {"batch": batch} if self._batches else {}
            y[0] = float(self._function(*arrays, **extra))
            return 0
        except BaseException as error:  # fingerprint raises it again
            self.error = error
            return 1


def fingerprint(function, *, n, dtype="f32", kind=None, output=None, name=None, seed=1, samples=250):
    """Finds in which order and with which arithmetic `function` adds.

    function  callable: a [n] (and b [n] for a dot or gemm), torch tensors of `dtype` if torch is imported, else numpy arrays -> one number. With a
    parameter `batch` it is also tried with
              more rows. Or the name of a torch operation: "torch.sum", "torch.matmul", ...
    n         addends; for an all-reduce the ranks
    dtype     of the addends: "f64", "f32", "f16", "bf16"; output: of the result, if another
    kind      "sum", "dot", "gemm" or "all-reduce"; None: that of the named operation, else "sum"

    Asks some tens of thousands of sums at n = 4,096, then replays the order that it found on random data.
    Returns a Fingerprint. Raises FingerprintError if the function fails, ValueError if the request makes no sense, LibraryMissing without the
    library.
    """
    library = _library.load()
    if isinstance(function, str):
        name = name or function
        function, kind = _torch_operation(function, kind)
    kind = kind or "sum"
    output = output or dtype
    if kind not in _KINDS:
        raise ValueError(f"kind: expected one of {', '.join(_KINDS)}, found {kind!r}")
    for what, value in (("dtype", dtype), ("output", output)):
        if value not in _DTYPES:
            raise ValueError(f"{what}: expected one of {', '.join(_DTYPES)}, found {value!r}")
    if int(n) < 2:
        raise ValueError(f"n: expected at least 2 addends, found {n}")
    batches = _takes_batch(function)
    caller = _Caller(function, kind in ("dot", "gemm"), batches, dtype)
    given = _Sum(
        size=_c.sizeof(_Sum), kind=_KINDS[kind], n=int(n), input=_DataType(*_DTYPES[dtype], 1),
        output=_DataType(*_DTYPES[output], 1), sum=_SUM(caller),
        name=(name or getattr(function, "__name__", "callable")).encode(), seed=seed,
        samples=samples, batches=int(batches),
    )  # fmt: skip
    result = _Result(size=_c.sizeof(_Result))
    status = library.short.plumbline_fingerprint(_c.addressof(given), _c.addressof(result))
    if caller.error is not None:
        if not isinstance(caller.error, Exception):
            raise caller.error
        raise FingerprintError(f"the function failed: {caller.error}") from caller.error
    if status == OK:
        return Fingerprint(result)
    text = library.last_error()
    if status == INVALID_ARGUMENT:
        raise ValueError(text)
    if status == UNAVAILABLE:
        raise LibraryMissing(text)
    if status == DISABLED:
        raise FingerprintError("PLUMBLINE_DISABLE is set, or this is a forked child")
    raise FingerprintError(text)
