"""Runs a model in double: each operation is widened, and with it the casts inside the model."""

import contextlib

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_SMALL = 256 << 20  # bytes of parameters up to which they are widened once per pass, not in each operation
_FLOAT8 = [getattr(torch, name) for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
           if hasattr(torch, name)]  # fmt: skip
_COARSE = frozenset([torch.float16, torch.bfloat16, *_FLOAT8])
_NARROW = {torch.float32: torch.float64, **{kind: torch.float64 for kind in _COARSE}, torch.complex64: torch.complex128}
if hasattr(torch, "complex32"):
    _NARROW[torch.complex32] = torch.complex128


class NotWidened(Exception):
    """The model cannot run in double."""


def _mapped(value, change):
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(one, change) for one in value)
    return value


def _wider(tensor):
    kind = _NARROW.get(tensor.dtype)
    return tensor if kind is None or tensor.layout is not torch.strided else tensor.to(kind)


class Widened(TorchDispatchMode):
    """Computes each operation in double. With `keep_casts`, a cast to 16 or 8 bits still rounds its values."""

    def __init__(self, keep_casts=False):
        super().__init__()
        self._keep = keep_casts
        self.coarse_casts = 0
        self._written = {}

    def _writes(self, func):
        """Returns the names and places of the arguments that `func` writes."""
        known = self._written.get(func)
        if known is None:
            infos = [(at, a.name, a.alias_info) for at, a in enumerate(func._schema.arguments)]
            known = self._written[func] = {key for at, name, info in infos if info is not None and info.is_write for key in (at, name)}
        return known

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, written = dict(kwargs or {}), self._writes(func)
        rounded = self._rounds(func, kwargs)
        args = [a if at in written else _mapped(a, _wider) for at, a in enumerate(args)]
        for name, value in kwargs.items():
            if isinstance(value, torch.dtype):
                kwargs[name] = _NARROW.get(value, value)
            elif name not in written:
                kwargs[name] = _mapped(value, _wider)
        if func._schema.name in ("aten::_softmax", "aten::_log_softmax"):
            args[2] = False  # half_to_float
        args = [_NARROW.get(a, a) if isinstance(a, torch.dtype) and "view" not in func._schema.name else a for a in args]
        func = _WITHOUT_DOUBLE.get(func._schema.name, func)
        out = func(*args, **kwargs)
        return out if rounded is None else out.to(rounded).to(torch.float64)

    def _rounds(self, func, kwargs):
        """Returns the type to which the values of this cast are rounded, or None."""
        target = kwargs.get("dtype")
        if target not in _COARSE or func._schema.name not in ("aten::_to_copy", "aten::to"):
            return None
        self.coarse_casts += 1
        return target if self._keep else None


def _grouped_product(a, b, offs=None, bias=None, out_dtype=None):
    """Does what aten::_grouped_mm does. a: [n,k] or [G,m,k], b: [G,k,m], or [k,n] if a is [m,n]; offs: ends of the groups."""
    if offs is None:
        return a @ b
    ends = [0, *offs.tolist()]
    groups = list(zip(ends, ends[1:]))
    if a.dim() == 2 and b.dim() == 2:
        return torch.stack([a[:, i:j] @ b[i:j] for i, j in groups])
    if a.dim() == 2:
        parts = [a[i:j] @ b[g] for g, (i, j) in enumerate(groups)]
        return torch.cat([*parts, a.new_zeros(a.shape[0] - ends[-1], b.shape[2])])
    return torch.cat([a[g] @ b[:, i:j] for g, (i, j) in enumerate(groups)], 1)


_WITHOUT_DOUBLE = {"aten::_grouped_mm": _grouped_product}  # operations without a kernel for double


@contextlib.contextmanager
def default_double():
    """New tensors without a type are doubles."""
    kept = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(kept)


@contextlib.contextmanager
def widened_state(state, parameters):
    """Gives buffers and attributes, and parameters if they are small, values of double. Restores the storages at the end."""
    own = {id(p) for p in parameters}
    small = sum(p.numel() * p.element_size() for p in parameters) <= _SMALL
    kept = []
    try:
        for tensor in state.tensors():
            kind = _NARROW.get(tensor.dtype)
            if kind is not None and tensor.layout is torch.strided and (small or id(tensor) not in own):
                kept.append((tensor, tensor.data))
                tensor.data = tensor.data.to(kind)
        yield
    finally:
        for tensor, data in kept:
            tensor.data = data
