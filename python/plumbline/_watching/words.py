"""The one line that a watch prints about itself."""

import sys

from .._shards import is_fsdp
from .unwrap import held_by, held_elsewhere


def processes():
    """Returns the number of processes of torch.distributed's world, if there is one."""
    distributed = sys.modules.get("torch.distributed")
    return distributed.get_world_size() if distributed is not None and distributed.is_available() and distributed.is_initialized() else 1


def _counted(number, what):
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _adapters(watch):
    """Returns ", LoRA r=8 on q_proj, v_proj (8 adapters), base frozen" for peft's models; empty for others."""
    configs = getattr(watch._model, "peft_config", None)
    if not isinstance(configs, dict) or len(configs) != 1:
        return ""
    config = next(iter(configs.values()))
    kind = str(getattr(getattr(config, "peft_type", ""), "value", "")).replace("LORA", "LoRA")
    rank, targets = getattr(config, "r", None), getattr(config, "target_modules", None)
    within = [name.partition(".lora_")[0] for name, _ in watch._trained if ".lora_" in name]
    text = f", {kind}" + (f" r={rank}" if rank else "")
    if isinstance(targets, (set, list, tuple)) and targets:
        text += f" on {', '.join(sorted(targets))}"
    if within:
        text += f" ({_counted(len(set(within)), 'adapter')}){', base frozen' if len(within) == len(watch._trained) else ''}"
    return text


_ALONE = ("no DistributedDataParallel around the model was found, and no sum of gradients over the processes was observed; pass the wrapper to run.watch, "
          "or report the sums with run.observe_reduction")  # fmt: skip
_NO_SUMS = ("no sum of gradients over the processes was observed in the first updates: if the processes train one model, does something "
            "other than torch.distributed sum them? Report such sums with run.observe_reduction")  # fmt: skip


def alone(watch):
    """Returns whether this is one of several processes, without a known wrapper and without shards."""
    return watch._weights.replicas is None and not watch._shards and not watch._frames and processes() > 1


def unseen_sums(watch):
    """Returns (layer, op) of the site that is declared if no sum over the processes is seen. Returns None if there may
    be no such sum, as with tensor parallelism."""
    layer = f"{watch._prefix}sums over {processes()} processes"
    if alone(watch):
        return layer, f"unseen: {_ALONE}"
    return (layer, f"unhooked: {_NO_SUMS}") if watch._frames or any(map(is_fsdp, watch._model.modules())) else None


def describe(watch):
    """Returns one line about the things that are watched and those that are not."""
    kinds = [type(o).__name__ for o in watch.optimizers]
    each = dict.fromkeys(kinds)
    optimizers = ", ".join(kind if kinds.count(kind) == 1 else f"{kinds.count(kind)} of {kind}" for kind in each) or "no optimizer yet"
    unknown = [type(o).__name__ for o in watch.optimizers if watch._updates[id(o)].kind is None]
    text = f"watching {_counted(len(watch._trained), 'trained parameter')}, {optimizers}{_adapters(watch)}"
    held = held_by(watch.found) | held_elsewhere(watch.found)
    missing = [name for name, p in watch._trained if id(p) not in held] if watch.found else []
    if missing and len(missing) == len(watch._trained):
        text += " (no optimizer holds any of them: it was created for another model, or holds copies)"
    elif missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        text += f" (no optimizer holds {missing[0]}{more}: requires_grad_(False) if they are frozen)"
    if alone(watch):
        text += f", one of {processes()} processes (no DistributedDataParallel around it was found: sums are watched if process groups make them, copies are not)"
    elif watch._ddp is not None:
        text += ", the ranks' copies and sums of DistributedDataParallel"
    elif watch.sums.watched:
        text += f", the {'copies and ' if watch._weights.replicas else ''}sums of {processes()} processes"
    text += watch._routers.describe() if watch._routers is not None else ""
    if watch._modules.chosen:
        text += f", the outputs of {_counted(len(watch._modules.chosen), 'module')}"
    for what in watch._modules.unhooked:
        text += f"; not inside {what}"
    if unknown:
        text += f"; not the updates of {', '.join(unknown)} (its update rule is not known; see observe_update)"
    return text
