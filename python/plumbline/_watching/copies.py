"""Finds which weights of a model are copies on several ranks, and which process groups sum their gradients."""

from collections import namedtuple

from .._screen import combined
from .._shards import is_fsdp

Copies = namedtuple("Copies", "group ignored")  # group: a process group, None: the world; ignored: names of parameters that are not copies in it
_MEGATRON_GROUPS = ("dp_group", "dp_cp_group", "intra_dp_cp_group", "expt_dp_group", "intra_expt_dp_group")


def _is(one, name):
    return any(kind.__name__ == name for kind in type(one).__mro__)


def _own_groups(model):
    """Returns the names of parameters that are summed by another group than the dense ones: experts that are spread over ranks."""
    return {name for name, p in model.named_parameters() if not getattr(p, "allreduce", True)}


def megatron_wrapper(model):
    """Returns Megatron-core's DistributedDataParallel inside of the given object, or None."""
    return next((one for one in model.modules() if _is(one, "DistributedDataParallel") and hasattr(one, "ddp_config")), None)


def _of_deepspeed(engine, model):
    if engine.zero_optimization_stage() > 2:
        return None  # each rank has only its part
    group = getattr(engine, "seq_data_parallel_group", None)
    return Copies(group, _own_groups(model)) if group is not None and group.size() > 1 else None


def _of_megatron(wrapper, model):
    group = getattr(wrapper, "dp_cp_group", None)
    late = getattr(wrapper.ddp_config, "overlap_param_gather", False)  # a step's weights come with the next forward pass
    return Copies(group, _own_groups(model)) if group is not None and group.size() > 1 and not late else None


def _of_mesh(model):
    """Returns Copies for tensor parallelism by DTensors on one axis: a plain parameter (a norm, a bias) is a copy on each
    of its ranks."""
    parts = {name: p for name, p in model.named_parameters() if hasattr(p, "placements")}
    meshes = {p.device_mesh for p in parts.values()}
    if len(meshes) != 1 or any(map(is_fsdp, model.modules())) or len(parts) == len(list(model.parameters())):
        return None
    mesh = meshes.pop()
    return Copies(mesh.get_group(), set(parts)) if mesh.ndim == 1 and mesh.size() > 1 else None


def copies_of(ddp, frames, model):
    """Returns Copies, or None. ddp: torch's wrapper, or None. frames: objects of frames.py."""
    if ddp is not None:
        return Copies(getattr(ddp, "process_group", None), getattr(ddp, "parameters_to_ignore", ()))
    for frame in frames:
        if hasattr(frame.owner, "zero_optimization_stage"):
            return _of_deepspeed(frame.owner, model)
        if getattr(frame, "wrapper", None) is not None:
            return _of_megatron(frame.wrapper, model)
    return _of_mesh(model)


def gradient_groups(given):
    """Returns the process groups of Megatron-core's wrapper that sum gradients; None: not known."""
    wrapper = megatron_wrapper(given)
    if wrapper is None:
        return None
    return [group for name in _MEGATRON_GROUPS if (group := getattr(wrapper, name, None)) is not None]


class Parting:
    """For a watch whose model several processes train without a wrapper: checks whether the copies diverge because nothing is summed."""

    def __init__(self, run, sums, checksums):
        self._run, self._sums, self._checksums = run, sums, checksums
        self._before, self._updates, self._next = None, 0, 4

    def before_update(self):
        if self._before is None:
            self._before = combined(self._checksums())

    def step_ends(self):
        """Called after an update, in the open step."""
        self._updates += 1
        summed = self._sums.seen or self._sums.others
        if self._next == 0 or (self._updates < self._next and not summed):
            return
        record = self._run._own_scalar
        if summed:  # sums are made, perhaps not at every step
            if self._next > 4:
                record("unsummed/summed", 1)
            self._next = 0
            return
        if self._next == 4:
            record("unsummed/before", self._before)
        record("unsummed/after", combined(self._checksums()))
        self._next *= 2
