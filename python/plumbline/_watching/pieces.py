"""Tensors that an optimizer holds in the place of a parameter: an fp32 copy of it, or a part of a flat tensor with
several parameters."""


class Piece:
    """`parameter`: the model's parameter. `held`: the optimizer's tensor. `at`: the elements of `held` that belong to
    the parameter; None: all of them.

    It replaces a parameter where a gradient is read: it has the .grad that the optimizer gets.
    """

    __slots__ = ("parameter", "held", "at")

    def __init__(self, parameter, held, at=None):
        self.parameter, self.held, self.at = parameter, held, at

    def of(self, tensor):
        """Returns this piece's elements of a tensor that has the layout of the held tensor."""
        flat = tensor.detach().reshape(-1)
        return flat if self.at is None else flat[self.at]

    @property
    def grad(self):
        held = getattr(self.held, "decoupled_grad", None)  # Megatron-core's precision-aware optimizer
        held = self.held.grad if held is None else held
        return None if held is None else self.of(held)

    @property
    def whole(self):
        """Returns whether the piece holds all of the parameter."""
        held = self.held.numel() if self.at is None else len(range(*self.at.indices(self.held.numel())))
        return held == self.parameter.numel()


def _in_turn(parameters, flat, sizes=None):
    """Returns pieces of parameters that are adjacent in a flat tensor."""
    pieces, start = [], 0
    for k, parameter in enumerate(parameters):
        size = parameter.numel() if sizes is None else sizes[k]
        if size:
            pieces.append(Piece(parameter, flat, slice(start, start + size)))
        start += size
    return pieces


def _paired(groups, held_groups):
    return [Piece(p, held) for group, held_group in zip(groups, held_groups) for p, held in zip(group, held_group) if held is not None]


def _of_megatron(optimizer):
    names = (
        ("float16_groups", "fp32_from_float16_groups"), ("fp32_from_fp32_groups", "fp32_from_fp32_groups"),  # Float16OptimizerWithFloat16Params
        ("model_float16_groups", "shard_fp32_from_float16_groups"), ("model_fp32_groups", "shard_fp32_groups"),  # DistributedOptimizer
    )  # fmt: skip
    pieces = []
    for groups, held in names:
        if hasattr(optimizer, groups) and hasattr(optimizer, held):
            pieces += _paired(getattr(optimizer, groups), getattr(optimizer, held))
    if not any(piece.held.dtype.itemsize == 4 for piece in pieces) and hasattr(optimizer, "shard_float16_groups"):  # a precision-aware optimizer
        pieces += _paired(optimizer.model_float16_groups, optimizer.shard_float16_groups)
    return pieces


def _of_fragments(groups, flats):
    """Returns the pieces of DeepSpeed's ZeRO 1 and 2, and of its bf16 optimizer: each parameter knows its part of the
    rank's flat tensor."""
    pieces = []
    for group, flat in zip(groups, flats):
        for p in group:
            fragment = getattr(p, "_hp_mapping", None)
            if fragment is not None:
                at = fragment.hp_fragment_address
                pieces.append(Piece(p, flat, slice(at.start, at.start + at.numel)))
    return pieces


def _of_stage_3(optimizer):
    flats, groups = optimizer.fp32_partitioned_groups_flat, getattr(optimizer, "fp16_groups", ())
    pieces = []
    for p in (p for group in groups for p in group):
        number, start, size = optimizer.grad_position[optimizer.get_param_id(p)]
        if flats[number] is not None and size:
            pieces.append(Piece(p, flats[number], slice(start, start + size)))
    return pieces


def pieces_of(wrapper):
    """Returns the pieces of one wrapper of an optimizer; empty if it holds the model's own parameters, or is not
    known."""
    if hasattr(wrapper, "float16_groups") or hasattr(wrapper, "model_float16_groups"):
        return _of_megatron(wrapper)
    if hasattr(wrapper, "fp32_partitioned_groups_flat"):
        return _of_stage_3(wrapper)
    if hasattr(wrapper, "single_partition_of_fp32_groups"):
        return _of_fragments(wrapper.bit16_groups, wrapper.single_partition_of_fp32_groups)
    if hasattr(wrapper, "fp32_groups_flat_partition"):
        return _of_fragments(wrapper.bf16_groups, wrapper.fp32_groups_flat_partition)
    if hasattr(wrapper, "fp16_groups") and hasattr(wrapper, "fp32_groups_flat"):
        return [piece for group, flat in zip(wrapper.fp16_groups, wrapper.fp32_groups_flat) for piece in _in_turn(group, flat)]
    if hasattr(wrapper, "fp16_groups") and hasattr(wrapper, "fp32_groups"):
        return _paired(wrapper.fp16_groups, wrapper.fp32_groups)
    return []


def spread_of(wrapper):
    """Returns all parameters that a wrapper updates and of which each rank has a part: DeepSpeed's ZeRO,
    Megatron-core's distributed optimizer."""
    groups = next((getattr(wrapper, name) for name in ("bit16_groups", "bf16_groups") if hasattr(wrapper, name)), None)
    if groups is None and hasattr(wrapper, "fp32_partitioned_groups_flat"):
        groups = getattr(wrapper, "fp16_groups", ())
    if groups is None and hasattr(wrapper, "model_float16_groups"):
        groups = [buffer.params for buffer in getattr(wrapper, "buffers", ()) if hasattr(buffer, "params")]
    return [p for group in groups or () for p in group]
