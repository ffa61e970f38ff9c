"""Describes tensors of any library as DLTensor structs, without copies and without importing the library.

torch tensors are described by their accessors, not through `__dlpack__`: that refuses bool (torch < 2.0) and tensors
that require gradients. numpy arrays go by `__array_interface__`, other libraries by `__dlpack__`, nested lists of
numbers become a small array.
"""

import array
import ctypes
import struct
import sys
import threading

INT, UINT, FLOAT, BFLOAT, BOOL = 0, 1, 2, 4, 6
FLOAT8_E4M3FN, FLOAT8_E5M2 = 10, 12
CPU, CUDA, CUDA_MANAGED = 1, 2, 13
ON_DEVICE = (CUDA, CUDA_MANAGED)

MAX_AXES = 8
_SLOTS = 17
_SLOT_BYTES = 48 + 2 * 8 * MAX_AXES  # bytes of a DLTensor with its shape and strides
_ROUTING_BYTES = 256

# data, device type, device id, ndim, type code, bits, lanes, shape, strides, byte offset; extents
_DLTENSOR = {n: struct.Struct(f"=QiiiBBHQQQ{2 * n}q") for n in range(MAX_AXES + 1)}


class Unsupported(ValueError):
    """A tensor that cannot be described. The text names what was expected."""


class Scratch(threading.local):
    """Per-thread memory into which structs are packed: one block, at a fixed address."""

    def __init__(self):
        self.block = bytearray(_ROUTING_BYTES + _SLOTS * _SLOT_BYTES)
        self._pin = (ctypes.c_char * len(self.block)).from_buffer(self.block)
        self.address = ctypes.addressof(self._pin)

    def put(self, slot, described):
        """Packs a description into a slot and returns the DLTensor's address."""
        data, device_type, device_id, dtype, shape, strides = described
        offset = _ROUTING_BYTES + slot * _SLOT_BYTES
        address = self.address + offset
        n = len(shape)
        _DLTENSOR[n].pack_into(
            self.block, offset, data, device_type, device_id, n, dtype[0], dtype[1], 1,
            address + 48, address + 48 + 8 * n, 0, *shape, *strides,
        )  # fmt: skip
        return address


def _torch_dtypes(torch):
    table = {
        torch.float64: (FLOAT, 64),
        torch.float32: (FLOAT, 32),
        torch.float16: (FLOAT, 16),
        torch.bfloat16: (BFLOAT, 16),
        torch.int64: (INT, 64),
        torch.int32: (INT, 32),
        torch.int16: (INT, 16),
        torch.int8: (INT, 8),
        torch.uint8: (UINT, 8),
        torch.bool: (BOOL, 8),
    }
    newer = {
        "uint16": (UINT, 16),
        "uint32": (UINT, 32),
        "uint64": (UINT, 64),
        "float8_e4m3fn": (FLOAT8_E4M3FN, 8),
        "float8_e5m2": (FLOAT8_E5M2, 8),
    }
    table.update({getattr(torch, n): v for n, v in newer.items() if hasattr(torch, n)})
    return table


_torch = None
_dtypes = {}


def _find_torch():
    """Returns torch if the trainer has imported it; never imports it."""
    global _torch
    if _torch is None:
        module = sys.modules.get("torch")
        if module is not None and hasattr(module, "Tensor") and hasattr(module, "strided"):
            _dtypes.update(_torch_dtypes(module))
            _torch = module
    return _torch


def local(tensor):
    """Returns this rank's part of a DTensor; returns any other tensor unchanged. Sends nothing between ranks."""
    if not hasattr(type(tensor), "_local_tensor"):
        return tensor
    part = tensor._local_tensor
    arrive = getattr(part, "wait", None)  # the part may be the result of a collective in progress
    return part if arrive is None else arrive()


def _negates(tensor):
    """Returns whether the tensor negates lazily, as some do from torch 1.10 on."""
    request = getattr(tensor, "is_neg", None)
    return request is not None and request()


def _describe_torch(tensor, keep):
    tensor = local(tensor)
    dtype = _dtypes.get(tensor.dtype)
    if dtype is None or tensor.layout is not _torch.strided:
        raise Unsupported(
            f"a dense tensor of floats, integers or bool, not {tensor.dtype} ({tensor.layout})"
        )
    if _negates(tensor):  # a view that negates lazily
        tensor = tensor.detach().resolve_neg()
        keep.append(tensor)
    if tensor.is_cuda:
        where, index = CUDA, tensor.get_device()
    elif tensor.device.type == "cpu":  # is_cpu exists from torch 1.10 on
        where, index = CPU, 0
    else:
        raise Unsupported(f"a tensor on the CPU or a CUDA device, not on {tensor.device}")
    address = tensor.data_ptr()
    if not address and tensor.numel():  # a wrapper around other tensors, or its memory was freed
        raise Unsupported(f"a tensor with its own memory, not a {type(tensor).__name__} without")
    return (address, where, index, dtype, tensor.shape, tensor.stride())


_KINDS = {"f": FLOAT, "i": INT, "u": UINT, "b": BOOL}


def _numpy_dtype(value, typestr):
    kind = _KINDS.get(typestr[1])
    bits = int(typestr[2:]) * 8 if typestr[2:].isdigit() else 0  # "|O" and "<M8[s]" have no size
    name = getattr(getattr(value, "dtype", None), "name", "")
    if name == "bfloat16":  # ml_dtypes calls bfloat16 '<V2'
        kind = BFLOAT
    foreign = typestr[0] == (">" if sys.byteorder == "little" else "<")
    if kind is None or not 0 < bits <= 64 or foreign:
        raise Unsupported(f"floats, integers or bool in the machine's byte order, not {typestr!r}")
    return (kind, bits)


def _c_strides(shape):
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def _describe_array(value, keep):
    interface = value.__array_interface__
    keep.append(interface)
    shape = interface["shape"]
    kind, bits = _numpy_dtype(value, interface["typestr"])
    strides = interface.get("strides")
    if strides is None:
        strides = _c_strides(shape)
    else:
        width = bits // 8
        if any(s % width for s in strides):
            raise Unsupported(f"strides that are multiples of the {width}-byte element")
        strides = tuple(s // width for s in strides)
    return (interface["data"][0], CPU, 0, (kind, bits), shape, strides)


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


# PyPy has no C API that ctypes could call: there arrays and lists are read, capsules are not.
_capsule_pointer = None
if hasattr(ctypes, "pythonapi"):
    _capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    _capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    _capsule_pointer.restype = ctypes.c_void_p


_LEGACY_STREAM = 1  # DLPack's number of the default stream, which the C ABI calls NULL


def _capsule(value, stream):
    """Returns the capsule from the tensor's library. On a device the library gets the stream on which we read (None:
    its own), and orders its work before ours there; the host does not wait."""
    where = getattr(value, "__dlpack_device__", None)
    if where is None:
        return value.__dlpack__()
    device_type, index = where()
    if device_type not in ON_DEVICE:
        return value.__dlpack__()
    if stream is None:
        stream = current_stream(value, index)
    return value.__dlpack__(stream=stream or _LEGACY_STREAM)


def _describe_dlpack(value, keep, stream):
    capsule = _capsule(value, stream)
    keep.append(capsule)  # its destructor releases the tensor
    tensor = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    n = tensor.ndim
    shape = tuple(tensor.shape[:n])
    strides = tuple(tensor.strides[:n]) if tensor.strides else _c_strides(shape)
    address = (tensor.data or 0) + tensor.byte_offset
    return (address, tensor.device_type, tensor.device_id, (tensor.code, tensor.bits), shape, strides)


def _flatten(value, depth, shape, flat):
    if not isinstance(value, (list, tuple, range)):
        if depth != len(shape):
            raise Unsupported("a list whose rows are equally deep")
        flat.append(value)
        return
    if depth == len(shape):
        if flat:
            raise Unsupported("a list whose rows are equally deep")
        shape.append(len(value))
    elif depth > len(shape) or shape[depth] != len(value):
        raise Unsupported("a list whose rows are equally long")
    for item in value:
        _flatten(item, depth + 1, shape, flat)


def _describe_list(value, keep):
    shape, flat = [], []
    _flatten(value, 0, shape, flat)
    if all(isinstance(x, bool) for x in flat):
        values, dtype = array.array("B", flat), (BOOL, 8)
    elif all(isinstance(x, int) for x in flat):
        values, dtype = array.array("q", flat), (INT, 64)
    else:
        try:
            values, dtype = array.array("d", [float(x) for x in flat]), (FLOAT, 64)
        except (TypeError, ValueError):
            kind = type(flat[0]).__name__
            raise Unsupported(f"one tensor or a list of numbers, not a list of {kind}") from None
    keep.append(values)
    return (values.buffer_info()[0], CPU, 0, dtype, tuple(shape), _c_strides(shape))


def _fit(described, axes, widen):
    """Returns the description with exactly `axes` axes: leading ones are merged; `widen`: [T] is read as [T,1]."""
    data, device_type, device_id, dtype, shape, strides = described
    shape, strides = tuple(shape), tuple(strides)
    if widen and len(shape) == axes - 1:
        return (data, device_type, device_id, dtype, shape + (1,), strides + (1,))
    while len(shape) > axes:
        if shape[0] != 1 and shape[1] != 1 and strides[0] != strides[1] * shape[1]:
            raise Unsupported(
                f"{axes} axes (leading ones are merged where their strides allow it), not shape "
                f"{list(described[4])} with strides {list(described[5])}"
            )
        stride = strides[1] if shape[1] != 1 else strides[0]
        shape = (shape[0] * shape[1],) + shape[2:]
        strides = (stride,) + strides[2:]
    if len(shape) != axes:
        raise Unsupported(f"{axes} axes, not shape {list(described[4])}")
    return (data, device_type, device_id, dtype, shape, strides)


def describe(value, axes, widen, keep, stream=None):
    """Does the same as describe_any, with exactly `axes` axes."""
    described = _describe(value, keep, stream)
    return described if len(described[4]) == axes else _fit(described, axes, widen)


def describe_any(value, most, keep, stream=None):
    """Returns (address, device type, device id, (code, bits), shape, strides in elements) of a tensor with at most `most` axes: leading ones are
    merged.

    `stream`: the one on which it will be read, if it is on a device and this is known already. Objects that must outlive the call are appended to
    `keep`.
    Raises Unsupported.
    """
    described = _describe(value, keep, stream)
    return described if len(described[4]) <= most else _fit(described, most, False)


def _describe(value, keep, stream):
    torch = _torch or _find_torch()
    if torch is not None and isinstance(value, torch.Tensor):
        described = _describe_torch(value, keep)
    elif hasattr(value, "__array_interface__"):
        described = _describe_array(value, keep)
    elif isinstance(value, (list, tuple, range)):
        described = _describe_list(value, keep)
    elif hasattr(value, "__dlpack__") and _capsule_pointer is not None:
        described = _describe_dlpack(value, keep, stream)
    else:
        raise Unsupported(f"a torch tensor, a numpy array or a list, not {type(value).__name__}")
    return described


def replay_stream():
    """Returns the stream on which torch would launch now, on its current device; 0: the default one."""
    torch = _torch or _find_torch()
    if torch is None or not torch.cuda.is_initialized():
        return 0
    if torch.cuda.is_current_stream_capturing():
        raise Unsupported("expected before torch.cuda.graph, or with the stream of the replays")
    return torch.cuda.current_stream().cuda_stream


def current_stream(value, index):
    """Returns the stream on which `value`'s library would launch now, on device `index`; 0: the default one.

    Only for tensors on a device: a library without tensors there is not called.
    """
    torch = _torch or _find_torch()
    if torch is not None and isinstance(value, torch.Tensor):
        return torch.cuda.current_stream(index).cuda_stream
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(value, cupy.ndarray):
        return cupy.cuda.get_current_stream().ptr
    if torch is not None and torch.cuda.is_initialized():
        return torch.cuda.current_stream(index).cuda_stream
    return 0
