"""Packs tensors, reductions, updates and products into the C ABI's structs."""

import array
import operator
import struct
import sys

from ._process_groups import describe_group
from ._routing import _choice, _count, _text
from ._tensors import MAX_AXES, ON_DEVICE, Unsupported, current_stream, describe_any

# The layouts of plumbline_tensor_t, _reduction_t, _update_t and _matmul_t; they have no padding.
TENSOR = struct.Struct("=Ii4Q")
REDUCTION = struct.Struct("=Ii8QiiQIIddIIQIiQ")
UPDATE = struct.Struct("=Ii9Q4dQ")
MATMUL = struct.Struct("=Ii7Qd5QII")
LOGITS = struct.Struct("=Ii4QdQ")
LOGPROBS = struct.Struct("=Ii16Qqq4dii3Q")

DTYPES = {None: 0, "f64": 1, "f32": 2, "f16": 3, "bf16": 4, "e4m3": 5, "e5m2": 6}
_ALIASES = {
    "float64": "f64", "double": "f64", "float32": "f32", "float": "f32", "fp32": "f32",
    "float16": "f16", "half": "f16", "fp16": "f16", "bfloat16": "bf16",
    "float8_e4m3fn": "e4m3", "fp8_e4m3": "e4m3", "float8_e5m2": "e5m2", "fp8_e5m2": "e5m2",
}  # fmt: skip
OPS = {None: 0, "sum": 1, "avg": 2, "max": 3, "min": 4, "product": 5, "other": 6,
       "accumulation": 1}  # fmt: skip
MODES = {None: 0, "raw_logprobs": 1, "processed_logprobs": 2}
LOGIT_MODES = {None: 0, "raw_logits": 1, "processed_logits": 2}
SELECTIONS = {None: 0, "all": 1, "filtered": 2}
SOURCES = {None: 0, "sampled": 1, "rescored": 2}
_NOT_GIVEN = float("nan")


def dtype_code(name, value):
    """Returns the code of a format's name ("bf16"), a torch dtype or None; other torch dtypes are not stated."""
    if value is None or isinstance(value, str):
        return _choice(name, DTYPES, _ALIASES.get(value, value))
    text = str(value).rpartition(".")[2]
    return DTYPES.get(_ALIASES.get(text), 0)


def _big_count(name, value):
    try:
        count = 0 if value is None else operator.index(value)
    except TypeError:
        count = -1
    if not 0 <= count < 2**64:
        raise Unsupported(f"{name} is {value!r}; expected a count")
    return count


def positive(name, value):
    """Returns a count of at least one, as sample_indices needs it."""
    count = _big_count(name, value)
    if count == 0:
        raise Unsupported(f"{name} is {value!r}; expected at least 1")
    return count


def _number(name, value, absent):
    if value is None:
        return absent
    try:
        return float(value)
    except (TypeError, ValueError):
        raise Unsupported(f"{name} is {value!r}; expected a number or None") from None


class _Packer:
    """Puts one call's tensors into the scratch block's slots, and remembers their stream."""

    def __init__(self, scratch, keep):
        self.scratch, self.keep = scratch, keep
        self.slot, self.stream = 0, 0
        self._data = {}

    def address_of(self, name):
        """Returns the address of a tensor's data; None for an empty or absent one."""
        return self._data.get(name)

    def put(self, name, value):
        if value is None:
            return 0
        try:
            described = describe_any(value, MAX_AXES, self.keep, self.stream or None)
        except Unsupported as error:
            raise Unsupported(f"{name}: expected {error}") from None
        if described[1] in ON_DEVICE:
            self.keep.append(value)  # the library may read it after the call
            if not self.stream:
                self.stream = current_stream(value, described[2])
        if described[0] and 0 not in described[4]:
            self._data[name] = described[0]
        address = self.scratch.put(self.slot, described)
        self.slot += 1
        return address


def pack_tensor(scratch, keep, values, role, target_format, replicas):
    put = _Packer(scratch, keep)
    address = put.put("x", values)
    if not address:
        raise Unsupported("a tensor is needed, not None")
    TENSOR.pack_into(
        scratch.block, 0, TENSOR.size, dtype_code("target_format", target_format), address,
        _text("role", role), _text("replicas", replicas), put.stream,
    )  # fmt: skip
    return scratch.address


def pack_reduction(scratch, keep, inputs, output, offsets, op, group, sequence, wire_dtype, count,
                   group_size, group_rank, prescale, postscale, ring_order, algorithm, channels,
                   chunk, transport, variable_count):  # fmt: skip
    if group is not None and not isinstance(group, str):
        known = describe_group(group)
        group = known.name
        group_size = known.size if group_size is None else group_size
        group_rank = known.rank if group_rank is None else group_rank
        transport = known.transport if transport is None else transport
    put = _Packer(scratch, keep)
    tensors = [put.put(*t) for t in (("inputs", inputs), ("output", output), ("offsets", offsets))]
    ring = 0
    if ring_order is not None:
        ranks = array.array("I", [_count("ring_order", r) for r in ring_order])
        keep.append(ranks)
        ring = ranks.buffer_info()[0]
    REDUCTION.pack_into(
        scratch.block, 0, REDUCTION.size, _choice("op", OPS, op), *tensors,
        _text("group", group), _text("algorithm", algorithm), _text("transport", transport), ring,
        _big_count("sequence", sequence), sequence is not None,
        dtype_code("wire_dtype", wire_dtype), _big_count("count", count),
        _count("group_size", group_size), _count("group_rank", group_rank),
        _number("prescale", prescale, 0.0), _number("postscale", postscale, 0.0),
        _count("channels", channels), 0, _big_count("chunk", chunk),
        len(ring_order) if ring else 0, bool(variable_count), put.stream,
    )  # fmt: skip
    return scratch.address


def pack_update(scratch, keep, before, after, intended, gradient, moment_before, moment_after,
                offsets, count, optimizer, lr, beta2, eps, decay, eps_dtype):  # fmt: skip
    put = _Packer(scratch, keep)
    tensors = [
        put.put(*t)
        for t in (("before", before), ("after", after), ("intended", intended),
                  ("gradient", gradient), ("moment_before", moment_before),
                  ("moment_after", moment_after), ("offsets", offsets))
    ]  # fmt: skip
    if put.address_of("before") == put.address_of("after") is not None:
        raise Unsupported(
            "before and after are the same memory; expected before to be a copy that was taken "
            "before the step (run.due returns whether one is needed)"
        )
    UPDATE.pack_into(
        scratch.block, 0, UPDATE.size, dtype_code("eps_dtype", eps_dtype), *tensors,
        _big_count("count", count), _text("optimizer", optimizer),
        _number("lr", lr, _NOT_GIVEN), _number("beta2", beta2, _NOT_GIVEN),
        _number("eps", eps, _NOT_GIVEN), _number("decay", decay, _NOT_GIVEN), put.stream,
    )  # fmt: skip
    return scratch.address


def _scale_bytes(value, scale_format):
    """Returns torch's scales of powers of two as bytes, and the name of their format."""
    dtype = str(getattr(value, "dtype", "")).rpartition(".")[2]
    if dtype != "float8_e8m0fnu":
        return value, scale_format
    torch = sys.modules["torch"]
    return value.view(torch.uint8), "e8m0"


def pack_matmul(scratch, keep, a, b, d, c, accumulator, input_format, library, scale, a_scale,
                b_scale, block, a_tile, b_tile, scale_format, output_rounding):  # fmt: skip
    put = _Packer(scratch, keep)
    a_scale, scale_format = _scale_bytes(a_scale, scale_format)
    b_scale, scale_format = _scale_bytes(b_scale, scale_format)
    tensors = [put.put(*t) for t in (("a", a), ("b", b), ("d", d), ("c", c))]
    scales = [put.put(*t) for t in (("a_scale", a_scale), ("b_scale", b_scale))]
    factor = _number("scale", scale, 1.0)
    if not factor:
        raise Unsupported("scale is 0; expected the factor of the product, or None")
    MATMUL.pack_into(
        scratch.block, 0, MATMUL.size, dtype_code("accumulator", accumulator), *tensors,
        _text("input_format", input_format), _text("library", library), put.stream,
        0.0 if scale is None else factor, *scales, _text("scale_format", scale_format),
        _text("output_rounding", output_rounding), _big_count("block", block),
        _count("a_tile", a_tile), _count("b_tile", b_tile),
    )  # fmt: skip
    return scratch.address


def _version(name, value):
    return -1 if value is None else _big_count(name, value)


_LOGPROBS_COLUMNS = (
    "tokens", "sequence_id", "position", "mask", "rollout", "train", "rollout_entropy",
    "rollout_varentropy", "train_entropy", "train_varentropy", "versions", "advantages",
    "turns", "cached_tokens", "t_start", "t_end",
)  # fmt: skip


def pack_logprobs(scratch, keep, *arguments):
    """Packs the columns in the struct's order, then numbers, choices and the worker's name."""
    columns, rest = arguments[:len(_LOGPROBS_COLUMNS)], arguments[len(_LOGPROBS_COLUMNS):]
    (train_version, top_k, temperature, top_p, kept_share, rescore_k2, mode, selection, source,
     worker, behaviour) = rest  # fmt: skip
    put = _Packer(scratch, keep)
    tensors = [put.put(name, column) for name, column in zip(_LOGPROBS_COLUMNS, columns)]
    behaviour = put.put("behaviour", behaviour)
    LOGPROBS.pack_into(
        scratch.block, 0, LOGPROBS.size, _choice("mode", MODES, mode), *tensors,
        _version("train_version", train_version), _version("top_k", top_k),
        _number("temperature", temperature, _NOT_GIVEN), _number("top_p", top_p, _NOT_GIVEN),
        _number("kept_share", kept_share, _NOT_GIVEN), _number("rescore_k2", rescore_k2, _NOT_GIVEN),
        _choice("selection", SELECTIONS, selection), _choice("source", SOURCES, source),
        _text("worker", worker), put.stream, behaviour,
    )  # fmt: skip
    return scratch.address


def pack_logits(scratch, keep, train, rollout, tokens, allowed, mode, temperature):
    put = _Packer(scratch, keep)
    named = (("train", train), ("rollout", rollout), ("tokens", tokens), ("allowed", allowed))
    tensors = [put.put(*t) for t in named]
    LOGITS.pack_into(
        scratch.block, 0, LOGITS.size, _choice("mode", LOGIT_MODES, mode), *tensors,
        _number("temperature", temperature, _NOT_GIVEN), put.stream,
    )  # fmt: skip
    return scratch.address
