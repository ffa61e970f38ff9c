"""A small model trained in one of the ways that torch offers, with the two lines in it. Prints a digest of its losses, a line a rank.

    modern_trainer.py KIND FAULT RECORD     FAULT: none, nan (in the loss of step 20, the last rank); RECORD: a folder, or "none"
    modern_trainer.py kinds                 those that this torch knows
"""

import contextlib
import hashlib
import inspect
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.utils.checkpoint import checkpoint

import plumbline

STEPS, AT = 40, 20
VERSION = tuple(int(n) for n in torch.__version__.split("+")[0].split(".")[:2])


class Gate(nn.Module):
    """A router that the compiler can compile whole, and that Plumbline recognises as a router."""

    def __init__(self):
        super().__init__()
        self.gate, self.top_k = nn.Linear(16, 4, bias=False), 2

    def forward(self, x):
        weights, chosen = torch.topk(torch.softmax(self.gate(x), dim=-1), self.top_k, dim=-1)
        return weights, chosen


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.router, self.experts = Gate(), nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def forward(self, x):
        weights, chosen = self.router(x)
        dense = torch.zeros(x.shape[0], 4).scatter(1, chosen, weights)
        return x + sum(dense[:, e : e + 1] * expert(x) for e, expert in enumerate(self.experts))


class Model(nn.Module):
    def __init__(self, checkpoint=None, routed=False):
        super().__init__()
        self.embed = nn.Embedding(64, 16)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 16)) for _ in range(2))
        self.head = nn.Linear(16, 1)
        self.checkpoint, self.experts = checkpoint, Experts() if routed else nn.Identity()

    def forward(self, words):
        x = self.embed(words).sum(1)
        for block in self.blocks:
            if self.checkpoint is None:
                x = x + block(x)
            else:
                x = x + checkpoint(block, x, **({} if VERSION < (1, 11) else {"use_reentrant": self.checkpoint}))
        return self.head(self.experts(x))


# ---- ways to step -------------------------------------------------------------------------------


def optimizers(kind):
    """Returns the kinds that this torch has: the name, and a function from parameters to the optimizer."""
    found = {
        "sgd": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9),
        "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3),
        "foreach": lambda p: torch.optim.AdamW(p, lr=1e-3, foreach=True),
        "foreach-sgd": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, nesterov=True, foreach=True),
        "amsgrad": lambda p: torch.optim.Adam(p, lr=1e-3, amsgrad=True, foreach=True),
        "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3),
        "lbfgs": lambda p: torch.optim.LBFGS(p, lr=0.01, max_iter=2),
    }
    if VERSION >= (2, 4):  # the fused steps on the CPU
        found["fused"] = lambda p: torch.optim.AdamW(p, lr=1e-3, fused=True)
        found["fused-sgd"] = lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, fused=True)
        found["tensor-rate"] = lambda p: torch.optim.AdamW(p, lr=torch.tensor(1e-3), foreach=False)
    if hasattr(torch.optim, "Adafactor"):
        found["adafactor"] = lambda p: torch.optim.Adafactor(p, lr=1e-2)
    return found


ALONE = ["checkpoint", "checkpoint-reentrant", "autocast", "set-to-zero", *optimizers("")]
if hasattr(torch, "compile"):
    ALONE += ["compile-before", "compile-after", "compile-in-place", "compile-aot", "compile-router", "compile-router-after"]
if VERSION >= (2, 3):
    ALONE += ["scaler", "scaler-fused", "scaler-fused-sgd", "steps-in-backward"]
RANKS = ["ddp", "ddp-fp16", "ddp-powersgd", "ddp-view", "ddp-static"]
if VERSION >= (2, 0):
    RANKS += ["fsdp1", "fsdp1-original"]
if VERSION >= (2, 6):
    RANKS += ["fsdp2", "tensor-parallel", "ddp-compiled", "ddp-compiled-after"]


# ---- models -------------------------------------------------------------------------------------


class Event:
    """torch 2.6 lets FSDP2 run on the CPU, but for an event that its stand-in for a stream does not have."""

    def wait(self, *_):
        pass


def sharded(model):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    if not hasattr(torch.cpu.Stream, "record_event"):
        torch.cpu.Stream.record_event = lambda self, event=None: Event()
        torch.cpu.Stream.wait_event = lambda self, event: None
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for part in (*model.blocks, model):
        fully_shard(part, mesh=mesh, reshard_after_forward=False)
    return model


def parallel(model):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        block[2] = nn.Identity()  # otherwise each rank would draw a different mask
        parallelize_module(block, mesh, {"0": ColwiseParallel(), "3": RowwiseParallel()})
    return model


def distributed(kind, model):
    options = {"ddp-view": {"gradient_as_bucket_view": True}, "ddp-static": {"static_graph": True}}.get(kind, {})
    model = nn.parallel.DistributedDataParallel(model, **options)
    if kind in ("ddp-fp16", "ddp-powersgd"):
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
    if kind == "ddp-fp16":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    if kind == "ddp-powersgd":
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=4)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return model


def compiled(kind, model):
    """Compiles the whole model: a graph break because of Plumbline would be an error."""
    return torch.compile(model, backend="aot_eager" if kind == "compile-aot" else "eager", fullgraph=not kind.startswith("ddp"))


def wrapped(kind, model):
    """Returns the model as the trainer trains it. Called after plumbline.init."""
    if kind.startswith("ddp"):
        model = distributed(kind, model)
    if kind in ("compile-before", "compile-aot", "compile-router", "ddp-compiled"):
        return compiled(kind, model)
    if kind == "compile-in-place":
        model.compile(backend="eager", fullgraph=True)
    if kind.startswith("fsdp1"):
        from torch.distributed.fsdp import FullyShardedDataParallel

        return FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=kind != "fsdp1")
    return {"fsdp2": sharded, "tensor-parallel": parallel}.get(kind, lambda m: m)(model)


# ---- the loop -----------------------------------------------------------------------------------


def in_backward(model, run):
    """One optimizer per parameter, which steps within the backward pass."""
    each = {p: torch.optim.AdamW([p], lr=1e-3) for p in model.parameters()}
    if run is not None:
        run.watch(model, list(each.values()))

    def update(parameter):
        each[parameter].step()
        each[parameter].zero_grad()

    for parameter in each:
        parameter.register_post_accumulate_grad_hook(update)


def train(rank, ranks, kind, fault, record):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    run = plumbline.init(run="modern", record=record, every=1) if record != "none" else None
    model = wrapped(kind, Model({"checkpoint": False, "checkpoint-reentrant": True}.get(kind), "router" in kind))
    optimizer = scaler = None
    if kind == "steps-in-backward":
        in_backward(model, run)
    else:
        optimizer = optimizers(kind).get(kind.partition("scaler-")[2] or kind, optimizers(kind)["adamw"])(model.parameters())
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10) if kind.startswith("scaler") else None
        if run is not None:
            run.watch(model, optimizer, scaler=scaler, activations=["*blocks.1"] if kind == "compile-after" else None)
    if kind.endswith("-after"):
        model = compiled(kind, model)
    seen, generator = hashlib.sha256(), torch.Generator().manual_seed(5 + (rank if kind != "tensor-parallel" else 0))
    for step in range(STEPS):
        words = torch.randint(0, 24, (32, 4), generator=generator)  # none of them in one shard of the embedding

        def loss_of():
            narrow = kind == "autocast" or scaler is not None
            with torch.autocast("cpu", dtype=torch.bfloat16) if narrow else contextlib.nullcontext():
                loss = (model(words).float() - words.float().sum(1, keepdim=True) / 64).pow(2).mean()
            return loss * float("nan") if fault == "nan" and step == AT and rank == ranks - 1 else loss

        def closure():
            optimizer.zero_grad()
            loss = loss_of()
            loss.backward()
            return loss

        if kind == "lbfgs":
            loss = optimizer.step(closure)
        else:
            loss = loss_of()
            one_step(kind, loss, optimizer, scaler)
        seen.update(torch.as_tensor(loss).detach().numpy().tobytes())
    os.write(1, f"rank {rank} {seen.hexdigest()}\n".encode())
    if run is not None:
        run.finish()


def one_step(kind, loss, optimizer, scaler):
    if optimizer is None:
        loss.backward()
    elif scaler is not None:
        scaler.scale(loss).backward()
        if kind == "scaler":  # a fused step does this itself
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    else:
        loss.backward()
        optimizer.step()
    if optimizer is not None:
        with_option = "set_to_none" in inspect.signature(optimizer.zero_grad).parameters
        optimizer.zero_grad(**({"set_to_none": kind != "set-to-zero"} if with_option else {}))


def one_rank(rank, ranks, meeting, *rest):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks))
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    train(rank, ranks, *rest)
    dist.destroy_process_group()
    if rest[0] == "ddp-powersgd":  # gloo's threads release Python callbacks while the interpreter ends, and abort, also without Plumbline
        sys.stderr.flush()
        os._exit(0)


def main():
    if sys.argv[1] == "kinds":
        return print(*ALONE, "|", *RANKS)
    kind, fault, record = sys.argv[1:]
    if kind in ALONE:
        return train(0, 1, kind, fault, record)
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(one_rank, (2, f"{folder}/meeting", kind, fault, record), nprocs=2)


if __name__ == "__main__":
    main()
