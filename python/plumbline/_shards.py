"""Parameters that are split over ranks: DTensors (FSDP2, tensor parallel), and parameters of FSDP1."""

from ._tensors import local

FSDP = ("FullyShardedDataParallel", "FSDPModule")  # torch's first and second wrapper of this kind


def is_fsdp(module):
    """Returns the name of the wrapper that shards this module's parameters, or None."""
    return next((c.__name__ for c in type(module).__mro__ if c.__name__ in FSDP), None)


def part(parameter):
    """Returns this rank's part of a parameter of DeepSpeed's ZeRO 3, which is empty while it is not used; else the
    parameter."""
    return getattr(parameter, "ds_tensor", parameter)


def named_parameters(model):
    """Returns (name, parameter) pairs as an optimizer holds them: around a forward pass FSDP2 replaces its shards by
    complete parameters."""
    shards = {}
    for module in model.modules():
        state = module._get_fsdp_state() if hasattr(module, "_get_fsdp_state") else None
        group = getattr(state, "_fsdp_param_group", None) if not hasattr(state, "_fsdp_param_groups") else None
        for one in (p for g in (getattr(state, "_fsdp_param_groups", None) or [group]) if g is not None for p in g.fsdp_params):
            if hasattr(one, "_unsharded_param"):
                shards[id(one._unsharded_param)] = one.sharded_param
    return [(name, shards.get(id(p), p)) for name, p in model.named_parameters()]


def shard_names(model):
    """Returns the names of the parameters of which this rank may hold only a part."""
    named = named_parameters(model)
    names = {name for name, p in named if local(p) is not p or part(p) is not p}
    inside = [f"{name}." if name else "" for name, module in model.named_modules() if is_fsdp(module)]
    return names | {name for name, _ in named if name.startswith(tuple(inside))}


def own_gradient(parameter):
    """Returns the part of the gradient that belongs to this rank's part of the parameter.

    Returns None if there is no gradient, if it is sparse, or if this rank has only one addend of it: the ranks add
    them within the optimizer.
    """
    gradient = parameter.grad
    if gradient is None or gradient.is_sparse:
        return None
    placed, wanted = getattr(gradient, "placements", None), getattr(parameter, "placements", None)
    if placed != wanted and placed is not None and wanted is not None:
        if any(one.is_partial() or (one.is_shard() and one != other) for one, other in zip(placed, wanted)):
            return None
        gradient = gradient.detach().redistribute(parameter.device_mesh, wanted)  # each rank has a copy of the gradient: this needs no communication
    return local(gradient)


def gradients(parameters, shards):
    """Returns (name, gradient) of the parameters with a gradient; for a shard this rank's part, if it is not empty."""
    held = [(name, own_gradient(p)) for name, p in parameters]
    return [(name, g) for name, g in held if g is not None and (name not in shards or g.numel())]


def is_idle(name, gradient, shards):
    """Returns whether a shard is zero, which may be healthy: rows that no token used, or one inactive neuron."""
    return name in shards and not bool(gradient.any())
