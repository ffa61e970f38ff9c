"""Packs a router call into plumbline_routing_t."""

import ctypes
import operator
import struct

from ._tensors import ON_DEVICE, Unsupported, current_stream, describe

# The layout of plumbline_routing_t; native sizes, without padding.
STRUCT = struct.Struct("=IIQii9QiiQIIiiiIQQQQiIQ")

SCORE_FUNCTIONS = {None: 0, "identity": 0, "softmax": 1, "sigmoid": 2}
GROUP_SCORES = {None: 0, "max": 1, "sum2": 2}
POOLS = {None: 0, "microbatch": 1, "sequence": 2, "group": 3, "rank": 4, "world": 5}
FLATTENS = {None: 0, "seq-major": 1, "batch-major": 2}
CAPACITY_SOURCES = {None: 0, "declared": 1, "inferred": 2}
BIAS_CAPTURED = {None: 0, "before": 1, "after": 2}
_CAPACITY_ABSENT, _CAPACITY_NONE, _CAPACITY_DECLARED = 0, 1, 2

_strings = {}  # text -> (buffer, address): only a few texts


def _text(name, value):
    if value is None:
        return 0
    if not isinstance(value, str):
        raise Unsupported(f"{name} is {value!r}; expected a string or None")
    entry = _strings.get(value)
    if entry is None:
        if len(_strings) > 1000:
            _strings.clear()
        buffer = ctypes.create_string_buffer(value.encode())
        entry = _strings[value] = (buffer, ctypes.addressof(buffer))
    return entry[1]


def _choice(name, table, value):
    try:
        return table[value]
    except (KeyError, TypeError):
        words = ", ".join(repr(k) for k in table)
        raise Unsupported(f"{name} is {value!r}; expected one of {words}") from None


def _count(name, value):
    if value is None:
        return 0
    try:
        count = operator.index(value)
    except TypeError:
        count = -1
    if not 0 <= count < 2**32:
        raise Unsupported(f"{name} is {value!r}; expected a count")
    return count


def _capacity(value):
    if value is None:
        return _CAPACITY_ABSENT, 0
    if isinstance(value, str) and value == "none":
        return _CAPACITY_NONE, 0
    try:
        return _CAPACITY_DECLARED, _count("capacity", value)
    except Unsupported:
        text = f'capacity is {value!r}; expected a count per expert, "none" or None'
        raise Unsupported(text) from None


def _describe(name, value, axes, widen, keep, stream=None):
    try:
        return describe(value, axes, widen, keep, stream)
    except Unsupported as error:
        raise Unsupported(f"{name}: expected {error}") from None


def pack(scratch, keep, logits, scores, tensors, top_k, score_function, capacity, groups,
         top_groups, group_score, pool, flatten, randomness, bias_captured, mode,
         capacity_source=None, policy=None):  # fmt: skip
    """Fills the thread's scratch block and returns the struct's address.

    `tensors` are (name, value, axes, widen) from expert_bias to pool_id in the order of the struct, then
    region, which is its last member.
    """
    logits_given = logits is not None and (scores is None or score_function is not None)
    what, first = ("router_logits", logits) if logits_given else ("router_scores", scores)
    if first is None:
        raise Unsupported("expected router_logits or router_scores")
    described = _describe(what, first, 2, False, keep)
    scores_address = scratch.put(0, described)
    stream = current_stream(first, described[2]) if described[1] in ON_DEVICE else 0
    addresses = []
    slot = 0
    for name, value, axes, widen in tensors:
        if value is None:
            addresses.append(0)
            continue
        slot += 1
        described = _describe(name, value, axes, widen, keep, stream)
        addresses.append(scratch.put(slot, described))
        if top_k is None and name == "topk_indices":
            top_k = described[4][1]
    kind, limit = _capacity(capacity)
    STRUCT.pack_into(
        scratch.block, 0, STRUCT.size, _count("top_k", top_k), scores_address, logits_given,
        _choice("score_function", SCORE_FUNCTIONS, score_function), *addresses[:9],
        kind, _choice("group_score", GROUP_SCORES, group_score), limit,
        _count("groups", groups),
        _count("top_groups", top_groups),
        _choice("pool", POOLS, pool),
        _choice("flatten", FLATTENS, flatten),
        _choice("bias_captured", BIAS_CAPTURED, bias_captured), 0,
        _text("randomness", randomness), _text("mode", mode), stream,
        _text("policy", policy), _choice("capacity_source", CAPACITY_SOURCES, capacity_source), 0,
        addresses[9] if len(addresses) > 9 else 0,
    )  # fmt: skip
    return scratch.address
