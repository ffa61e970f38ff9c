"""Decides when the steps of a watch may be light (light.py)."""

import platform

from .._shards import is_fsdp
from .budget import picked
from .modules import Backward
from .scaling import Scaling
from .words import processes

_ORDERED = platform.machine().lower() in ("x86_64", "amd64")  # processors on which stores become visible in their order
_MOST_WAITING = 32  # the most parameters without a gradient so far: each light step checks all of them


def _other_passes(watch):
    """Returns whether earlier steps showed that the trainer calls another method of the model than forward."""
    return watch._passes.listening and not watch._passes.expected


def is_plain(watch):
    """Returns whether the trainer is a plain loop: on the CPU, with one optimizer, without a framework but those of
    which each step is known (Lightning's automatic optimization, DeepSpeed's engine)."""
    if not (_ORDERED and watch.budget.governed):
        return False
    one = watch.found[0] if len(watch.found) == 1 else None
    if one is None or type(one.inner).__name__ == "LBFGS" or (not one.frame.is_light if one.frame is not None else one.pieces):
        return False
    if one.stepping is not one.inner and not one.captured:
        return False
    if not _ranks_fit(watch) or watch._is_compiled or _other_passes(watch):
        return False
    return not watch._modules.chosen and all(p.device.type == "cpu" for _, p in watch._trained)


def _ranks_fit(watch):
    """Returns whether the process is alone, or it is known how the processes sum: DistributedDataParallel, FSDP2,
    DeepSpeed. Their sums need nothing of this package in a light step."""
    known = watch._ddp is not None or bool(watch._frames)
    if processes() == 1:
        return known or not (watch._shards or watch._weights.replicas)
    return known or any(map(is_fsdp, watch._model.modules()))


def scales_otherwise(watch):
    """Returns whether the loss is scaled, and not by a scaler of torch's whose scale() and update() are hooked, or by one that
    calls step() even in a step that it skips."""
    scaler = watch._loop.scaler()
    if scaler is None or not scaler.is_enabled():
        return False
    itself = getattr(watch.optimizers[0], "_step_supports_amp_scaling", False)  # a fused step checks for infinities itself
    return scaler is not Scaling.scaler() or itself or bool(watch._frames)


def may_be_light(watch):
    """Returns whether no part of the watch needs the next step to be whole."""
    if len(Backward.watches.refs) != 1:
        return False
    if watch._arms or watch._left or watch._averages.known or watch._is_compiled or _other_passes(watch):
        return False
    if watch._ddp_pending or processes() != watch.world:
        return False
    if not watch._shares.settled:
        return False
    if watch._kept is not None and watch._kept.found:
        return False
    return watch._untrained.settled and len(watch._untrained.waiting()) <= _MOST_WAITING


def screens_whole(watch):
    """Returns whether a step that is screened must be a whole one: a framework's, one of shards or of copies within a
    group of ranks, or one whose passes are counted."""
    return bool(watch._frames) or bool(watch._shards) or not watch._weights.in_world or watch._loop.tokens.wants()


def next_whole(watch, step):
    """Returns the next step in which an observation is due."""
    steps = [watch._looks.next(step), max(64, 1 << 2 * ((step - 1).bit_length() + 1 >> 1))]
    if watch._routers is not None and watch._routers.routers:
        steps.append(picked(step, watch._routers.pace.every))
    if watch.world > 1:
        steps.append(watch.paced_sums.next(step))
    if screens_whole(watch):
        steps.append(picked(step, watch._pace.every))
    return min(steps)
