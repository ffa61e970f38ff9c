"""Parameters of which a rank holds a part: DTensors (FSDP2, tensor parallel), and those that FSDP1 has cut up."""

from ._tensors import local

FSDP = ("FullyShardedDataParallel", "FSDPModule")  # torch's first and second


def is_fsdp(module):
    """The name of what shards this module's parameters, or None."""
    return next((c.__name__ for c in type(module).__mro__ if c.__name__ in FSDP), None)


def part(parameter):
    """What DeepSpeed's ZeRO 3 keeps here of a parameter, which is empty while it is not used; else the parameter."""
    return getattr(parameter, "ds_tensor", parameter)


def named_parameters(model):
    """(name, parameter) pairs, as an optimizer holds them: around a forward pass FSDP2 puts whole ones in the place of its shards."""
    shards = {}
    for module in model.modules():
        state = module._get_fsdp_state() if hasattr(module, "_get_fsdp_state") else None
        group = getattr(state, "_fsdp_param_group", None) if not hasattr(state, "_fsdp_param_groups") else None
        for one in (p for g in (getattr(state, "_fsdp_param_groups", None) or [group]) if g is not None for p in g.fsdp_params):
            if hasattr(one, "_unsharded_param"):
                shards[id(one._unsharded_param)] = one.sharded_param
    return [(name, shards.get(id(p), p)) for name, p in model.named_parameters()]


def shard_names(model):
    """Names of the parameters of which this rank may hold a part alone."""
    named = named_parameters(model)
    names = {name for name, p in named if local(p) is not p or part(p) is not p}
    inside = [f"{name}." if name else "" for name, module in model.named_modules() if is_fsdp(module)]
    return names | {name for name, _ in named if name.startswith(tuple(inside))}


def own_gradient(parameter):
    """The part of the gradient that belongs to the part of the parameter on this rank.

    Returns None if there is no gradient, if it is sparse, or if this rank has only one addend of it: the ranks add them within the optimizer."""
    gradient = parameter.grad
    if gradient is None or gradient.is_sparse:
        return None
    placed, wanted = getattr(gradient, "placements", None), getattr(parameter, "placements", None)
    if placed != wanted and placed is not None and wanted is not None:
        if any(one.is_partial() or (one.is_shard() and one != other) for one, other in zip(placed, wanted)):
            return None
        gradient = gradient.detach().redistribute(parameter.device_mesh, wanted)  # of copies: without a message
    return local(gradient)


def gradients(parameters, shards):
    """(name, gradient) of those that have one; of a shard what lies here, where that is not nothing."""
    held = [(name, own_gradient(p)) for name, p in parameters]
    return [(name, g) for name, g in held if g is not None and (name not in shards or g.numel())]


def is_idle(name, gradient, shards):
    """A shard may be zero in health: rows that no token asked for, one neuron that is at rest."""
    return name in shards and not bool(gradient.any())
